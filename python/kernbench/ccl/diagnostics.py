"""What queues did, and where they stand.

With KERNBENCH_CCL_TRACE=1 in the environment each send and receive of a queue is a line on stdout.
"""

from __future__ import annotations

import os
from typing import Any

from kernbench._core import IpcqDeadlock

__all__ = [
    "IpcqDeadlock",
    "log_recv",
    "log_send",
    "pointer_dump",
    "reload_trace_setting",
    "trace_enabled",
]


def _from_environment() -> bool:
    return os.environ.get("KERNBENCH_CCL_TRACE") == "1"


_trace = _from_environment()


def trace_enabled() -> bool:
    """Whether sends and receives are traced: as the environment was when it was read last."""
    return _trace


def reload_trace_setting() -> None:
    """Reads KERNBENCH_CCL_TRACE again, for contexts that are made from here on."""
    global _trace
    _trace = _from_environment()


def log_send(*, t_ns: float, sender: str, direction: str, nbytes: int, sender_seq: int) -> None:
    """Prints a line for a send, if sends are traced."""
    if _trace:
        what = f"{nbytes} bytes seq={sender_seq}"
        print(f"[ccl] t={t_ns:.1f} ns send {sender} dir={direction} {what}")


def log_recv(*, t_ns: float, receiver: str, direction: str, nbytes: int) -> None:
    """Prints a line for a receive, if receives are traced."""
    if _trace:
        print(f"[ccl] t={t_ns:.1f} ns recv {receiver} dir={direction} {nbytes} bytes")


def pointer_dump(engine: Any) -> str:
    """All queues of an engine as text, with the slots that their two ends count."""
    return engine.queues_dump()
