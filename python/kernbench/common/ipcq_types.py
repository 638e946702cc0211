"""Directions of queues between PEs."""

from kernbench._core import IpcqInvalidDirection

__all__ = ["DIRECTIONS", "IpcqInvalidDirection"]

# Those with a meaning of their own. Queues may have others: any name.
DIRECTIONS = (
    "N",
    "S",
    "E",
    "W",
    "parent",
    "child_left",
    "child_right",
    "global_N",
    "global_S",
    "global_E",
    "global_W",
)
