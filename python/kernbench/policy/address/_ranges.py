"""Which parts of a range of addresses are free: first fit, free neighbours are one."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Optional

__all__ = ["Ranges"]


def _round_up(value: int, align: int) -> int:
    return -(-value // align) * align


class Ranges:
    """Keeps books of the addresses from `base` to before `base + size`."""

    def __init__(self, base: int, size: int) -> None:
        if base < 0 or size < 0:
            raise ValueError(f"invalid range: base {base}, size {size}")
        self._free: list[tuple[int, int]] = [(base, base + size)] if size else []
        self._used: dict[int, int] = {}

    @property
    def free_bytes(self) -> int:
        """How many are free in all."""
        return sum(end - start for start, end in self._free)

    @property
    def used(self) -> dict[int, int]:
        """The length of each block by its start."""
        return dict(self._used)

    def take(self, nbytes: int, align: int) -> Optional[int]:
        """The start of a new block, or None if there is no room."""
        nbytes = max(_round_up(nbytes, align), align)
        for index, (start, end) in enumerate(self._free):
            at = _round_up(start, align)
            if at + nbytes <= end:
                rest = [(start, at), (at + nbytes, end)]
                self._free[index : index + 1] = [part for part in rest if part[0] < part[1]]
                self._used[at] = nbytes
                return at
        return None

    def give(self, start: int) -> None:
        """Frees the block that starts there; KeyError if none does."""
        end = start + self._used.pop(start)
        insort(self._free, (start, end))
        index = bisect_left(self._free, (start, end))
        merged = self._free[max(index - 1, 0) : index + 2]
        joined: list[tuple[int, int]] = []
        for part in merged:
            if joined and joined[-1][1] == part[0]:
                joined[-1] = (joined[-1][0], part[1])
            else:
                joined.append(part)
        self._free[max(index - 1, 0) : index + 2] = joined
