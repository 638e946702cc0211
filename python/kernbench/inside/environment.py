"""The simulated clock."""

from __future__ import annotations

from typing import Any

__all__ = ["EnvironmentView"]


class EnvironmentView:
    """``engine._env``."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    @property
    def now(self) -> float:
        """The simulated time in ns."""
        return self._engine.core.now_ns
