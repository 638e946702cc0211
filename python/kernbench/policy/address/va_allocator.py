"""Virtual addresses without a machine, in whole pages."""

from __future__ import annotations

from kernbench.policy.address._ranges import Ranges
from kernbench.policy.address.allocator import AllocationError

__all__ = ["VirtualAllocator"]


class VirtualAllocator:
    """Allocates ranges of virtual addresses. It maps nothing: see ``PeMMU``."""

    def __init__(
        self, va_base: int = 0x1_0000_0000, va_size: int = 1 << 48, page_size: int = 4096
    ) -> None:
        if page_size < 1 or va_base % page_size:
            raise ValueError(f"va_base {va_base:#x} is not a multiple of the page, {page_size}")
        self.va_base, self.va_size, self.page_size = va_base, va_size, page_size
        self._ranges = Ranges(va_base, va_size)

    def alloc(self, nbytes: int) -> int:
        """The first address of a new range."""
        if nbytes < 0:
            raise ValueError(f"cannot allocate {nbytes} bytes")
        address = self._ranges.take(nbytes, self.page_size)
        if address is None:
            raise AllocationError(
                f"out of virtual addresses: {nbytes} bytes requested, "
                f"{self._ranges.free_bytes} free"
            )
        return address

    def free(self, va: int, nbytes: int = 0) -> None:
        """Frees a range. Its length is known; `nbytes` is accepted and ignored."""
        del nbytes
        try:
            self._ranges.give(va)
        except KeyError:
            raise ValueError(f"{va:#x} is not allocated") from None
