"""Queues for intercube_allreduce: along the mesh of cubes, and between SIPs."""

from __future__ import annotations

from math import isqrt
from typing import Any, Callable

__all__ = ["configure_sfr_intercube_multisip"]

_STEPS = (("N", 0, -1), ("S", 0, 1), ("E", 1, 0), ("W", -1, 0))


def _neighbors(place: int, w: int, h: int, wraps: bool, prefix: str = "") -> dict[str, int]:
    """The neighbours of a place in a grid; a grid that wraps has them in axes longer than one."""
    y, x = divmod(place, w)
    found = {}
    for direction, dx, dy in _STEPS:
        to_x, to_y = x + dx, y + dy
        if wraps:
            to_x, to_y = to_x % w, to_y % h
        peer = to_y * w + to_x
        if 0 <= to_x < w and 0 <= to_y < h and peer != place:
            found[prefix + direction] = peer
    return found


def _sip_grid(sips: dict[str, Any]) -> tuple[int, int, bool]:
    """Sides of the grid of SIPs, and whether it wraps. A ring is a row that wraps."""
    count, topology = sips["count"], sips["topology"]
    if topology == "ring_1d":
        return count, 1, True
    w, h = sips.get("w"), sips.get("h")
    if not w or not h:
        w = h = isqrt(count)
    if w * h != count:
        raise ValueError(f"system.sips: {count} SIPs are not a grid of {w} x {h}")
    return w, h, topology != "mesh_2d_no_wrap"


def intercube_neighbors(spec: dict[str, Any]) -> Callable[[int, int], dict[str, int]]:
    """The neighbours of a cube's leader: a function (rank, count) -> {dir: rank}.

    Ranks are cubes, SIP by SIP. If they are not those of all SIPs, these are a ring.
    """
    mesh, sips = spec["sip"]["cube_mesh"], spec["system"]["sips"]
    w, h = mesh["w"], mesh["h"]
    cubes = w * h

    def neighbors(rank: int, count: int) -> dict[str, int]:
        sip, cube = divmod(rank, cubes)
        grid = _sip_grid(sips) if count == sips["count"] * cubes else (count // cubes, 1, True)
        inside = _neighbors(cube, w, h, wraps=False)
        outside = _neighbors(sip, *grid, prefix="global_")
        found = {direction: sip * cubes + peer for direction, peer in inside.items()}
        found.update({direction: peer * cubes + cube for direction, peer in outside.items()})
        return found

    return neighbors


def configure_sfr_intercube_multisip(
    engine: Any, spec: dict[str, Any], merged: dict[str, Any]
) -> dict[str, Any]:
    """Installs queues on PE 0 of every cube of all SIPs, and returns the plan.

    N S E W lead to the neighbours in the mesh of cubes, which does not wrap; global_N, global_S,
    global_E and global_W to the same cube of the SIP's neighbours in system.sips.topology. A single
    SIP has none of these. Ranks are cubes, SIP by SIP.
    """
    from kernbench.ccl.install import install_table  # which needs this module too

    mesh, sips = spec["sip"]["cube_mesh"], spec["system"]["sips"]
    cubes = mesh["w"] * mesh["h"]
    ranks = [(sip, cube, 0) for sip in range(sips["count"]) for cube in range(cubes)]
    neighbors = intercube_neighbors(spec)
    table = {rank: neighbors(rank, len(ranks)) for rank in range(len(ranks))}
    return install_table(engine, merged, ranks, table)
