"""Physical addresses of 51 bits, and what they mean (docs/decisions/0008-memory.md).

    >>> pa = PhysAddr.pe_tcm_addr(0, 1, 0, 3, 0x1234)
    >>> str(pa)
    'sip1.cube0.pe3.tcm+0x1234'
    >>> PhysAddr.decode(pa.encode()) == pa
    True
"""

from __future__ import annotations

from dataclasses import dataclass

from kernbench import _core

__all__ = ["PhysAddr"]


@dataclass(frozen=True)
class PhysAddr:
    """A decoded address. ``kind`` is a memory or a component of a PE, ``offset`` is inside that.

    Kinds: hbm (of a cube, all slices one behind the other), sram, m_cpu, and of a PE tcm, ipcq,
    scratchpad, registers, status and reserved.
    """

    rack_id: int
    sip_id: int
    cube_id: int
    kind: str
    pe_id: int
    offset: int

    @staticmethod
    def decode(address: int) -> "PhysAddr":
        """What an address means; ValueError if it means nothing."""
        try:
            return PhysAddr(*_core.pa_decode(int(address)))
        except _core.KernbenchError as error:
            raise _core.InputError(str(error)) from None

    def encode(self) -> int:
        """The address as a number; ValueError if a field is out of range."""
        return _core.pa_encode(
            self.rack_id, self.sip_id, self.cube_id, self.kind, self.pe_id, self.offset
        )

    @classmethod
    def _checked(cls, *fields) -> "PhysAddr":
        address = cls(*fields)
        address.encode()
        return address

    @classmethod
    def hbm_addr(cls, rack_id: int, sip_id: int, cube_id: int, hbm_offset: int) -> "PhysAddr":
        """In the HBM of a cube."""
        return cls._checked(rack_id, sip_id, cube_id, "hbm", 0, hbm_offset)

    @classmethod
    def pe_hbm_addr(
        cls,
        rack_id: int,
        sip_id: int,
        cube_id: int,
        pe_id: int,
        pe_local_hbm_offset: int,
        slice_size_bytes: int,
    ) -> "PhysAddr":
        """In the slice of a PE in the HBM of its cube."""
        if not 0 <= pe_local_hbm_offset < slice_size_bytes:
            raise ValueError(
                f"offset {pe_local_hbm_offset:#x} is outside the slice of "
                f"{slice_size_bytes:#x} bytes"
            )
        offset = pe_id * slice_size_bytes + pe_local_hbm_offset
        return cls._checked(rack_id, sip_id, cube_id, "hbm", 0, offset)

    @classmethod
    def pe_tcm_addr(
        cls, rack_id: int, sip_id: int, cube_id: int, pe_id: int, tcm_offset: int
    ) -> "PhysAddr":
        """In the TCM of a PE."""
        return cls._checked(rack_id, sip_id, cube_id, "tcm", pe_id, tcm_offset)

    @classmethod
    def cube_sram_addr(
        cls, rack_id: int, sip_id: int, cube_id: int, sram_offset: int
    ) -> "PhysAddr":
        """In the SRAM of a cube."""
        return cls._checked(rack_id, sip_id, cube_id, "sram", 0, sram_offset)

    def __int__(self) -> int:
        return self.encode()

    def __index__(self) -> int:
        return self.encode()

    def __str__(self) -> str:
        return _core.pa_name(self.encode())
