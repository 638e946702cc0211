"""Allocators of the memories of a PE that need no machine.

The engine has its own; ``RuntimeContext._allocators`` shows those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from kernbench.policy.address._ranges import Ranges
from kernbench.policy.address.phyaddr import PhysAddr

__all__ = ["AddressConfig", "AllocationError", "PEMemAllocator"]

_ALIGN = 64  # bytes: what DMAs and values of kernels are aligned to


class AllocationError(MemoryError):
    """A memory has no room left for what was asked."""


@dataclass(frozen=True)
class AddressConfig:
    """The counts of a machine, and the bytes of its memories."""

    sip_count: int
    cubes_per_sip: int
    pes_per_cube: int
    hbm_bytes_per_cube: int
    hbm_slices_per_cube: int
    tcm_bytes_per_pe: int
    tcm_scheduler_reserved_bytes: int
    sram_bytes_per_cube: int

    @property
    def hbm_slice_bytes(self) -> int:
        """Bytes of a slice of the HBM, of which each PE has one."""
        return self.hbm_bytes_per_cube // self.hbm_slices_per_cube


class PEMemAllocator:
    """Allocates the HBM slice and the TCM of one PE, without what the scheduler keeps."""

    def __init__(
        self, *, rack_id: int, sip_id: int, cube_id: int, pe_id: int, cfg: AddressConfig
    ) -> None:
        limits = (
            ("sip_id", sip_id, cfg.sip_count),
            ("cube_id", cube_id, cfg.cubes_per_sip),
            ("pe_id", pe_id, cfg.pes_per_cube),
            ("pe_id (its HBM slice)", pe_id, cfg.hbm_slices_per_cube),
        )
        for name, value, count in limits:
            if not 0 <= value < count:
                raise ValueError(f"{name} is {value}: 0 to {count - 1} are possible")
        self.rack_id, self.sip_id, self.cube_id, self.pe_id = rack_id, sip_id, cube_id, pe_id
        self.cfg = cfg
        self._hbm = Ranges(0, cfg.hbm_slice_bytes)
        self._tcm = Ranges(0, cfg.tcm_bytes_per_pe - cfg.tcm_scheduler_reserved_bytes)

    @property
    def _place(self) -> tuple[int, int, int, int]:
        return self.rack_id, self.sip_id, self.cube_id, self.pe_id

    def _take(self, ranges: Ranges, memory: str, nbytes: int) -> int:
        if nbytes < 0:
            raise ValueError(f"cannot allocate {nbytes} bytes")
        offset = ranges.take(nbytes, _ALIGN)
        if offset is None:
            raise AllocationError(
                f"out of {memory} at sip{self.sip_id}.cube{self.cube_id}.pe{self.pe_id}: "
                f"{nbytes} bytes requested, {ranges.free_bytes} free"
            )
        return offset

    @staticmethod
    def _give(ranges: Ranges, offset: int, address: PhysAddr) -> None:
        try:
            ranges.give(offset)
        except KeyError:
            raise ValueError(f"{address} is not allocated") from None

    def alloc_hbm(self, nbytes: int) -> PhysAddr:
        """A block in the PE's slice of the HBM."""
        offset = self._take(self._hbm, "hbm", nbytes)
        return PhysAddr.pe_hbm_addr(*self._place, offset, self.cfg.hbm_slice_bytes)

    def alloc_tcm(self, nbytes: int) -> PhysAddr:
        """A block in the PE's TCM."""
        return PhysAddr.pe_tcm_addr(*self._place, self._take(self._tcm, "tcm", nbytes))

    def free_hbm(self, address: Union[PhysAddr, int], nbytes: int = 0) -> None:
        """Frees a block. Its length is known; `nbytes` is accepted and ignored."""
        del nbytes
        pa = address if isinstance(address, PhysAddr) else PhysAddr.decode(address)
        self._give(self._hbm, pa.offset - self.pe_id * self.cfg.hbm_slice_bytes, pa)

    def free_tcm(self, address: Union[PhysAddr, int], nbytes: int = 0) -> None:
        """Frees a block. Its length is known; `nbytes` is accepted and ignored."""
        del nbytes
        pa = address if isinstance(address, PhysAddr) else PhysAddr.decode(address)
        self._give(self._tcm, pa.offset, pa)
