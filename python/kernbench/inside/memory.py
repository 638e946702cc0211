"""The memories of an engine, without simulated time."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from kernbench.common import dtypes

__all__ = ["MemoryView"]


class MemoryView:
    """``engine.memory_store``.

    Addresses are those of kernels: virtual ones, or physical ones. Of a replicated tensor all
    copies are written and the first is read.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def read(
        self, space: str, addr: int, shape: Sequence[int] = (), dtype: str = "f16"
    ) -> np.ndarray:
        """What is there."""
        array = np.empty(tuple(int(n) for n in shape), dtypes.numpy_dtype(dtype))
        if array.size:
            self._engine.core.read_memory(int(addr), array, space)
        return array

    def write(self, space: str, addr: int, array: Any) -> None:
        """Puts the array's bytes there."""
        data = np.ascontiguousarray(array)
        if data.size:
            self._engine.core.write_memory(int(addr), data, space)
