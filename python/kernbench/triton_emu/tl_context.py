"""A `tl` that knows its place and nothing else, for functions that only ask for that.

Kernels that load, compute or send get the engine's `tl`; without a machine they run in
``kernbench.ccl.testing.run_kernel_in_mock``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Optional, Sequence, Union

__all__ = ["TLContext"]


class TLContext:
    """program_id() and num_programs() as given: a number for axis 0, or one for each axis."""

    _active: ClassVar[Optional[Any]] = None

    def __init__(
        self,
        pe_id: Union[int, Sequence[int]] = 0,
        num_programs: Union[int, Sequence[int]] = 1,
        cube_id: int = 0,
        num_cubes: int = 1,
    ) -> None:
        self._ids = (pe_id, cube_id) if isinstance(pe_id, int) else tuple(pe_id)
        counts = num_programs
        self._counts = (counts, num_cubes) if isinstance(counts, int) else tuple(counts)

    @staticmethod
    def _of_axis(values: Sequence[int], axis: int) -> int:
        if not 0 <= axis < len(values):
            raise ValueError(f"axis {axis}: expected 0 (the PE) or 1 (the cube)")
        return values[axis]

    def program_id(self, axis: int = 0) -> int:
        """Axis 0: the PE in its cube; axis 1: the cube in its SIP."""
        return self._of_axis(self._ids, axis)

    def num_programs(self, axis: int = 0) -> int:
        """How many PEs of a cube, and how many cubes, run the kernel."""
        return self._of_axis(self._counts, axis)

    @staticmethod
    def cdiv(a: int, b: int) -> int:
        """How often b goes into a, rounded up."""
        return -(-a // b)

    @classmethod
    def _set_active(cls, tl: Optional[Any]) -> None:
        """Notes a `tl` as the current one; operators of an engine's kernel use that kernel's."""
        cls._active = tl
