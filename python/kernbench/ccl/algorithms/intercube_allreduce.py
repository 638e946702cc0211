"""intercube_allreduce: over PE 0 of every cube, along the mesh of cubes, then over the SIPs.

    > > > v      Rows are reduced to the last column, that column to the south-east cube, the root.
    > > > v      The roots of the SIPs exchange their sums. Then the result goes back: up the last
    > > > v      column, along the rows.
    > > > R

It also adds up the cubes' tiles: every cube gets the sum over all cubes of all SIPs.
"""

from kernbench.ccl.algorithms._steps import (
    ITEM_BYTES,
    broadcast_along,
    pieces,
    reduce_along,
    ring_exchange,
)

TOPO_NAME_TO_KIND = {"ring_1d": 0, "torus_2d": 1, "mesh_2d": 1, "mesh_2d_no_wrap": 2}

CUBE_W, CUBE_H = 4, 4  # the mesh of cubes that kernel_args() assumes


def kernel_args(world_size, n_elem):
    """The arguments behind t_ptr; the call appends (sip_rank, kind, topo_w, topo_h)."""
    return (n_elem, CUBE_W, CUBE_H, world_size)


def _exchange(acc, n_sips, sip, kind, w, h, tl):
    """The roots of all SIPs, along their topology."""
    if kind == TOPO_NAME_TO_KIND["ring_1d"]:
        return ring_exchange(acc, n_sips, "global_E", "global_W", tl)
    if kind == TOPO_NAME_TO_KIND["torus_2d"]:
        acc = ring_exchange(acc, w, "global_E", "global_W", tl)
        return ring_exchange(acc, h, "global_S", "global_N", tl)
    row = (sip % w, w, w - 1, "global_E", "global_W")
    column = (sip // w, h, h - 1, "global_S", "global_N")
    for line in (row, column):
        acc = broadcast_along(reduce_along(acc, *line, tl), *line, tl)
    return acc


def kernel(
    t_ptr, n_elem, cube_w, cube_h, n_sips, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, tl
):
    """Runs on PE 0 of every cube."""
    y, x = divmod(tl.program_id(1), cube_w)
    row = (x, cube_w, cube_w - 1, "E", "W")
    column = (y, cube_h, cube_h - 1, "S", "N")
    own = int(t_ptr) + tl.program_id(1) * n_elem * ITEM_BYTES
    for address, shape in pieces(own, n_elem):
        acc = reduce_along(tl.load(address, shape=shape, dtype="f16"), *row, tl)
        if x == cube_w - 1:
            acc = reduce_along(acc, *column, tl)
            if y == cube_h - 1 and n_sips > 1:
                acc = _exchange(
                    acc, n_sips, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, tl
                )
            acc = broadcast_along(acc, *column, tl)
        tl.store(address, broadcast_along(acc, *row, tl))


# The name that an earlier version had.
allreduce_intercube_multidevice = kernel
