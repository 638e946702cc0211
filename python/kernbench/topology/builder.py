"""Machines, from a file or by name.

    >>> t = resolve_topology("default")
    >>> t.topology_obj.spec["system"]["sips"]["count"]
    2
"""

from __future__ import annotations

import copy
import json
import os
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Iterator, Sequence

from kernbench import _core

__all__ = ["ResolvedTopology", "TopologyGraph", "resolve_topology"]


class TopologyGraph:
    """A machine: where its description is, and ``spec``, all of it with defaults filled in.

    ``spec`` is made of plain dicts and lists. An engine that is made after a change to it has the
    changed machine.
    """

    def __init__(self, source: str, settings: Sequence[str] = ()) -> None:
        self.source = source
        self.settings = tuple(settings)
        self.spec: dict[str, Any] = _core.parse_yaml(_core.describe_machine(source, self.settings))
        self._as_read = copy.deepcopy(self.spec)

    @contextmanager
    def description(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The file (or name) and the settings that an engine is made from."""
        if self.spec == self._as_read:
            yield self.source, self.settings
            return
        handle, path = tempfile.mkstemp(prefix="kernbench-", suffix=".yaml")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(self.spec, file)  # which is YAML too
            yield path, ()
        finally:
            os.unlink(path)

    def __repr__(self) -> str:
        return f"TopologyGraph({self.source!r})"


@dataclass(frozen=True)
class ResolvedTopology:
    """What resolve_topology() returns: the machine, and the path that it was asked for."""

    topology_obj: TopologyGraph
    path: str

    @property
    def spec(self) -> dict[str, Any]:
        """The machine's description."""
        return self.topology_obj.spec


def resolve_topology(path: Any, settings: Sequence[str] = ()) -> ResolvedTopology:
    """Reads a machine file, or takes a built-in machine by its name ("default").

    The path is absolute or relative to the working directory. `settings` are as those of --set:
    "sip.ucie.bw_gbs=1024".
    """
    text = os.fspath(path)
    absolute = os.path.abspath(text)
    source = absolute if os.path.exists(absolute) or os.sep in text else text
    return ResolvedTopology(TopologyGraph(source, settings), text)
