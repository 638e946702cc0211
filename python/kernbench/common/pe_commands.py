"""Values of kernels, and commands to the units of a PE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from kernbench._core import TensorHandle

__all__ = ["CompositeCmd", "GemmCmd", "MathCmd", "TensorHandle"]


@dataclass(frozen=True, eq=False)
class MathCmd:
    """A command to the vector engine: op ("maximum", "exp", ..) of the inputs gives out."""

    op: str
    inputs: tuple[TensorHandle, ...]
    out: Optional[TensorHandle] = None


@dataclass(frozen=True, eq=False)
class GemmCmd:
    """A command to the matrix engine: a times b gives out."""

    a: TensorHandle
    b: TensorHandle
    out: Optional[TensorHandle] = None
    m: int = 0
    k: int = 0
    n: int = 0


@dataclass(frozen=True, eq=False)
class CompositeCmd:
    """A command to the scheduler: a matrix product that it cuts into tiles."""

    op: str
    a: Any
    b: Any
    out_addr: int
    out_nbytes: int
