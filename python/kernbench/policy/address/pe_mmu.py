"""The MMU of a PE without a machine: which physical address a virtual one means."""

from __future__ import annotations

from bisect import bisect_right

__all__ = ["PageFault", "PeMMU"]


class PageFault(LookupError):
    """A virtual address that is not mapped."""


class PeMMU:
    """Translates by ranges, not page by page."""

    def __init__(self, page_size: int = 4096) -> None:
        self.page_size = page_size
        self._starts: list[int] = []
        self._ranges: list[tuple[int, int, int]] = []  # va, pa, bytes; by va

    def map(self, va: int, pa: int, size: int) -> None:
        """Maps `size` bytes from `va` on; ValueError if some of them are mapped already."""
        if size < 1:
            raise ValueError(f"cannot map {size} bytes")
        index = bisect_right(self._starts, va)
        before = self._ranges[index - 1] if index > 0 else None
        after = self._ranges[index] if index < len(self._ranges) else None
        if (before and before[0] + before[2] > va) or (after and va + size > after[0]):
            raise ValueError(f"{va:#x}+{size:#x} is mapped already")
        self._starts.insert(index, va)
        self._ranges.insert(index, (va, int(pa), size))

    def unmap(self, va: int, size: int = 0) -> None:
        """Removes the range that begins there. Its length is known; `size` is ignored."""
        del size
        index = bisect_right(self._starts, va) - 1
        if index < 0 or self._starts[index] != va:
            raise PageFault(f"no range is mapped at {va:#x}")
        del self._starts[index], self._ranges[index]

    def translate(self, va: int) -> int:
        """The physical address; PageFault if there is none."""
        index = bisect_right(self._starts, va) - 1
        if index >= 0:
            start, pa, size = self._ranges[index]
            if va < start + size:
                return pa + va - start
        raise PageFault(f"{va:#x} is not mapped")
