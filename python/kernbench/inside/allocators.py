"""Which memory of each PE the tensors of a context take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Iterable

__all__ = ["AllocatorView", "AllocatorsView"]


@dataclass(frozen=True)
class AllocatorView:
    """The blocks of tensors on a PE: (physical address, bytes, name of the tensor)."""

    sip: int
    cube: int
    pe: int
    blocks: tuple[tuple[int, int, str], ...]

    @property
    def used_bytes(self) -> int:
        """Bytes of all of them."""
        return sum(nbytes for _, nbytes, _ in self.blocks)


class AllocatorsView(Mapping):
    """``ctx._allocators``: by (sip, cube, pe), of every PE that has, or had, a part of a tensor.

    `places` has a SIP with the numbers of cubes and of PEs of a cube for each layout so far.
    """

    def __init__(self, tensors: Iterable[Any], places: Iterable[tuple[int, int, int]]) -> None:
        blocks: dict[tuple[int, int, int], list[tuple[int, int, str]]] = {
            (sip, cube, pe): []
            for sip, cubes, pes in places
            for cube in range(cubes)
            for pe in range(pes)
        }
        for tensor in tensors:
            handle = tensor._handle
            for shard in handle.shards if handle is not None else ():
                place = (shard.sip, shard.cube, shard.pe)
                blocks.setdefault(place, []).append((shard.pa, shard.nbytes, tensor.name))
        self._views = {
            place: AllocatorView(*place, tuple(sorted(blocks[place]))) for place in sorted(blocks)
        }

    def __getitem__(self, place: tuple[int, int, int]) -> AllocatorView:
        return self._views[place]

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)
