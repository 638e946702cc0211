"""Placement of a tensor inside one SIP, on two levels: over its cubes, and over the PEs of each.

Each level is ``"replicate"`` (every member has all of it), ``"column_wise"`` (the last axis is
split) or ``"row_wise"`` (the first axis is split). Sizes need not divide: parts differ by at most
one row or column, the larger ones come first, and some may be empty. The engine places tensors by
the same rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Optional, Sequence

__all__ = [
    "DPPolicy",
    "LocalShard",
    "ShardSpec",
    "column_wise",
    "replicate",
    "resolve_dp_policy",
    "row_wise",
    "tiled_column_major",
    "tiled_row_major",
]

_SPLITS = ("replicate", "column_wise", "row_wise")


@dataclass(frozen=True)
class DPPolicy:
    """How a tensor is laid out over the cubes of a SIP and the PEs of a cube.

    ``num_cubes`` and ``num_pes`` use the first so many; None means all that the machine has.
    """

    cube: str = "replicate"
    pe: str = "replicate"
    num_pes: Optional[int] = None
    num_cubes: Optional[int] = None


@dataclass(frozen=True)
class ShardSpec:
    """A part of a tensor on one PE: where it begins in the tensor's bytes, and how long it is."""

    sip: int
    cube: int
    pe: int
    offset_bytes: int
    nbytes: int


@dataclass(frozen=True)
class LocalShard:
    """A part of a tensor on one PE of a cube."""

    local_pe: int
    offset_bytes: int
    nbytes: int


class _Block(NamedTuple):
    """A block of rows and columns, packed from an offset on."""

    offset: int
    rows: int
    columns: int


def _rows_and_columns(shape: Sequence[int]) -> tuple[int, int]:
    dims = tuple(int(n) for n in shape)
    if len(dims) > 2:
        raise ValueError(f"a placement has 1 or 2 axes, found shape {dims}")
    if any(n < 0 for n in dims):
        raise ValueError(f"negative size in shape {dims}")
    rows, columns = (1,) * (2 - len(dims)) + dims
    return rows, columns


def _split(block: _Block, how: str, parts: int, itemsize: int) -> list[_Block]:
    """Cuts a block into parts, packed one behind the other unless they are copies."""
    if how == "replicate":
        return [block] * parts
    size = block.columns if how == "column_wise" else block.rows
    blocks, offset = [], block.offset
    for part in range(parts):
        length = size // parts + (part < size % parts)
        rows, columns = (block.rows, length) if how == "column_wise" else (length, block.columns)
        blocks.append(_Block(offset, rows, columns))
        offset += rows * columns * itemsize
    return blocks


def _check_split(level: str, how: str) -> None:
    if how not in _SPLITS:
        raise ValueError(
            f"Unknown {level}-level policy: {how!r} (known: {', '.join(_SPLITS)})"
        )


def _count(what: str, wanted: Optional[int], available: int) -> int:
    if wanted is None:
        return available
    if not 0 < wanted <= available:
        raise ValueError(f"the policy requests {wanted} {what}: 1 to {available} are possible")
    return wanted


def resolve_dp_policy(
    policy: DPPolicy,
    *,
    shape: Sequence[int],
    itemsize: int,
    num_pe: int,
    num_cubes: int = 1,
    target_sip: int,
) -> list[ShardSpec]:
    """The shards of a tensor on a SIP of `num_cubes` cubes of `num_pe` PEs, by cube and PE."""
    _check_split("cube", policy.cube)
    _check_split("pe", policy.pe)
    rows, columns = _rows_and_columns(shape)
    cubes = _count("cubes", policy.num_cubes, num_cubes)
    pes = _count("PEs", policy.num_pes, num_pe)
    shards = []
    for cube, of_cube in enumerate(_split(_Block(0, rows, columns), policy.cube, cubes, itemsize)):
        for pe, block in enumerate(_split(of_cube, policy.pe, pes, itemsize)):
            nbytes = block.rows * block.columns * itemsize
            shards.append(ShardSpec(target_sip, cube, pe, block.offset, nbytes))
    return shards


def _over_pes(how: str, shape: Sequence[int], itemsize: int, num_pe: int) -> list[LocalShard]:
    rows, columns = _rows_and_columns(shape)
    blocks = _split(_Block(0, rows, columns), how, num_pe, itemsize)
    return [
        LocalShard(pe, block.offset, block.rows * block.columns * itemsize)
        for pe, block in enumerate(blocks)
    ]


def column_wise(*, shape: Sequence[int], itemsize: int, num_pe: int) -> list[LocalShard]:
    """Splits the last axis over the PEs of a cube."""
    return _over_pes("column_wise", shape, itemsize, num_pe)


def row_wise(*, shape: Sequence[int], itemsize: int, num_pe: int) -> list[LocalShard]:
    """Splits the first axis over the PEs of a cube."""
    return _over_pes("row_wise", shape, itemsize, num_pe)


def replicate(*, shape: Sequence[int], itemsize: int, num_pe: int) -> list[LocalShard]:
    """Gives all of the tensor to each PE of a cube."""
    return _over_pes("replicate", shape, itemsize, num_pe)


def _tiles(
    shape: Sequence[int], itemsize: int, num_pe: int, tile_m: int, tile_k: int, columns_first: bool
) -> list[LocalShard]:
    if tile_m < 1 or tile_k < 1:
        raise ValueError(f"tiles of {tile_m} x {tile_k}: both sizes must be at least 1")
    rows, columns = _rows_and_columns(shape)
    down = range(-(-rows // tile_m))
    along = range(-(-columns // tile_k))
    if columns_first:
        order = [(mi, ki) for mi in down for ki in along]
    else:
        order = [(mi, ki) for ki in along for mi in down]
    tiles = []
    for number, (mi, ki) in enumerate(order):
        height = min(tile_m, rows - mi * tile_m)
        width = min(tile_k, columns - ki * tile_k)
        offset = (mi * tile_m * columns + ki * tile_k) * itemsize
        tiles.append(LocalShard(number % num_pe, offset, height * width * itemsize))
    return tiles


def tiled_column_major(
    *, shape: Sequence[int], itemsize: int, num_pe: int, tile_m: int, tile_k: int
) -> list[LocalShard]:
    """Deals out tiles to the PEs in turn, along the last axis first.

    The offset of a tile is that of its first element in the row-major matrix.
    """
    return _tiles(shape, itemsize, num_pe, tile_m, tile_k, columns_first=True)


def tiled_row_major(
    *, shape: Sequence[int], itemsize: int, num_pe: int, tile_m: int, tile_k: int
) -> list[LocalShard]:
    """Deals out tiles to the PEs in turn, along the first axis first."""
    return _tiles(shape, itemsize, num_pe, tile_m, tile_k, columns_first=False)
