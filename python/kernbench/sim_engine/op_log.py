"""A log of commands with the values that they consumed, without a machine.

A command consumes values, not addresses: a value that a handle carries is the one that was
received, whatever is written to its place later.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

import numpy as np

from kernbench.common.pe_commands import GemmCmd, MathCmd
from kernbench.sim_engine.memory_store import MemoryStore

__all__ = ["OpLogger", "OpRecord"]


@dataclass
class OpRecord:
    """A command, where it ran, and from when to when."""

    node: str
    kind: str
    t_start: float
    t_end: Optional[float] = None
    params: dict[str, Any] = field(default_factory=dict)


def _inputs(cmd: Any) -> tuple:
    if isinstance(cmd, MathCmd):
        return tuple(cmd.inputs)
    if isinstance(cmd, GemmCmd):
        return (cmd.a, cmd.b)
    return ()


def _kind(cmd: Any) -> str:
    if isinstance(cmd, MathCmd):
        return "math"
    if isinstance(cmd, GemmCmd):
        return "gemm"
    return type(cmd).__name__


def _carried(handle: Any) -> Optional[np.ndarray]:
    data = getattr(handle, "data", None)
    return None if data is None else np.array(data, copy=True).reshape(tuple(handle.shape))


class OpLogger:
    """Records commands.

    ``records[i].params["input_snapshots"]`` has, for each input of a math or matrix command, a copy
    of the value that the handle carried when the command began; of a handle without a value, what
    the store has when the command ends: None if that is nothing, or something of another size.
    """

    def __init__(self, memory_store: Optional[MemoryStore] = None) -> None:
        self.memory_store = memory_store
        self.records: list[OpRecord] = []
        self._open: dict[tuple[str, int], list[OpRecord]] = {}

    def record_start(self, t_ns: float, node: str, cmd: Any) -> None:
        """A command begins on a node."""
        params = {"cmd": cmd, "op": getattr(cmd, "op", None)}
        record = OpRecord(node, _kind(cmd), t_ns, params=params)
        if _inputs(cmd):
            record.params["input_snapshots"] = [_carried(handle) for handle in _inputs(cmd)]
        self.records.append(record)
        self._open.setdefault((node, id(cmd)), []).append(record)

    def record_end(self, t_ns: float, node: str, cmd: Any) -> None:
        """The command ends; ValueError if it did not begin."""
        begun = self._open.get((node, id(cmd)))
        if not begun:
            raise ValueError(f"a command ends on {node} that did not begin there")
        record = begun.pop(0)
        if not begun:
            del self._open[node, id(cmd)]
        record.t_end = t_ns
        snapshots = record.params.get("input_snapshots", [])
        for index, handle in enumerate(_inputs(cmd)):
            if snapshots[index] is None:
                carried = _carried(handle)
                snapshots[index] = self._stored(handle) if carried is None else carried

    def _stored(self, handle: Any) -> Optional[np.ndarray]:
        store = self.memory_store
        if store is None or not store.has(handle.space, handle.addr):
            return None
        try:
            return store.read(handle.space, handle.addr, shape=handle.shape, dtype=handle.dtype)
        except ValueError:  # what is there now has another size: the value is gone
            return None
