"""Neighbours of a rank, by direction: each topology is a function (rank, world) -> {dir: rank}.

A rank without a neighbour in a direction does not have that direction. In a ring of two, E and W
lead to the same rank: they are two queues.
"""

from __future__ import annotations

from math import isqrt
from typing import Any, Callable, Optional

__all__ = [
    "mesh_2d",
    "mesh_2d_no_wrap",
    "none",
    "resolve_topology",
    "ring_1d",
    "ring_1d_unidir",
    "torus_2d",
    "tree_binary",
]

Neighbors = dict[str, int]
Topology = Callable[[int, int], Neighbors]


def _check(rank: int, world: int) -> None:
    if not 0 <= rank < world:
        raise ValueError(f"rank {rank} of {world}: ranks are 0 to {world - 1}")


def _side(world: int) -> int:
    side = isqrt(world)
    if side * side != world:
        raise ValueError(f"{world} ranks are not a square")
    return side


def ring_1d(rank: int, world: int) -> Neighbors:
    """A ring: E to the next rank, W to the previous one."""
    _check(rank, world)
    if world < 2:
        return {}
    return {"E": (rank + 1) % world, "W": (rank - 1) % world}


def ring_1d_unidir(rank: int, world: int) -> Neighbors:
    """A one-way ring: E to the next rank."""
    _check(rank, world)
    return {"E": (rank + 1) % world} if world > 1 else {}


def mesh_2d(rank: int, world: int) -> Neighbors:
    """A square, row by row, that wraps: N is the row above."""
    _check(rank, world)
    side = _side(world)
    if side < 2:
        return {}
    y, x = divmod(rank, side)
    return {
        "N": (y - 1) % side * side + x,
        "S": (y + 1) % side * side + x,
        "E": y * side + (x + 1) % side,
        "W": y * side + (x - 1) % side,
    }


def torus_2d(rank: int, world: int) -> Neighbors:
    """The same as mesh_2d."""
    return mesh_2d(rank, world)


def mesh_2d_no_wrap(rank: int, world: int) -> Neighbors:
    """A square, row by row, whose edges have fewer directions."""
    _check(rank, world)
    side = _side(world)
    y, x = divmod(rank, side)
    neighbors = {}
    if y > 0:
        neighbors["N"] = rank - side
    if y + 1 < side:
        neighbors["S"] = rank + side
    if x + 1 < side:
        neighbors["E"] = rank + 1
    if x > 0:
        neighbors["W"] = rank - 1
    return neighbors


def tree_binary(rank: int, world: int) -> Neighbors:
    """A binary tree in heap order."""
    _check(rank, world)
    neighbors = {}
    if rank > 0:
        neighbors["parent"] = (rank - 1) // 2
    for direction, child in (("child_left", 2 * rank + 1), ("child_right", 2 * rank + 2)):
        if child < world:
            neighbors[direction] = child
    return neighbors


def none(rank: int, world: int) -> Neighbors:
    """No neighbours: the algorithm has its own."""
    _check(rank, world)
    return {}


_BUILTIN: dict[str, Topology] = {
    f.__name__: f
    for f in (ring_1d, ring_1d_unidir, mesh_2d, torus_2d, mesh_2d_no_wrap, tree_binary, none)
}


def resolve_topology(name: str, algo_module: Optional[Any] = None) -> Topology:
    """The topology of that name, with the neighbors() of an algorithm's module applied to it."""
    try:
        base = _BUILTIN[name]
    except KeyError:
        raise ValueError(f"unknown topology {name!r} (known: {', '.join(_BUILTIN)})") from None
    change = getattr(algo_module, "neighbors", None)
    if change is None:
        return base

    def neighbors(rank: int, world: int) -> Neighbors:
        return dict(change(rank, world, base(rank, world)))

    neighbors.__name__ = name
    return neighbors
