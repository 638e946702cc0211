"""hierarchical_allreduce: over the PEs of a cube, the cubes of a SIP, the SIPs, and back.

Each level is a ring that is reduced in both directions to its first member: of n members those up
to n/2 send down, the others up and around, which takes n/2 rounds instead of n - 1. The way back is
a chain. Levels of one member are skipped. It adds up the tiles of all PEs.

Directions: E and W in a cube, N and S between PE 0 of the cubes of a SIP, and between the SIPs
``global_E`` and ``global_W``, or ``parent`` where two SIPs have that.
"""

from kernbench.ccl.algorithms._steps import (
    ITEM_BYTES,
    broadcast_along,
    pieces,
    reduce_along,
    ring_exchange,
)

PES_PER_CUBE, CUBES_PER_SIP = 8, 16  # of the default machine

# Sizes that are smaller than a machine: (PEs of a cube, cubes of a SIP, SIPs) by world size.
_SMALL = {16: (4, 2, 2)}


def _levels(world_size):
    """PEs of a cube, cubes of a SIP, SIPs."""
    if world_size in _SMALL:
        return _SMALL[world_size]
    pes = min(PES_PER_CUBE, world_size)
    cubes = min(CUBES_PER_SIP, world_size // pes)
    sips = world_size // (pes * cubes)
    if pes * cubes * sips != world_size:
        raise ValueError(
            f"hierarchical_allreduce needs whole cubes of {pes} PEs and whole SIPs of {cubes} "
            f"cubes, found {world_size} ranks"
        )
    return pes, cubes, sips


def kernel_args(world_size, n_elem):
    """The arguments behind t_ptr."""
    return (n_elem, *_levels(world_size))


def _ring(first, stride, count, place, up, down):
    if count < 2:
        return {}
    return {
        up: first + (place + 1) % count * stride,
        down: first + (place - 1) % count * stride,
    }


def neighbors(rank, world_size, base_map):
    """Rings of the PEs of a cube, of the first PEs of the cubes of a SIP, and of the SIPs."""
    pes, cubes, sips = _levels(world_size)
    pe, cube, sip = rank % pes, rank // pes % cubes, rank // (pes * cubes)
    result = dict(base_map)
    result.update(_ring(rank - pe, 1, pes, pe, "E", "W"))
    if pe == 0:
        result.update(_ring(sip * cubes * pes, pes, cubes, cube, "N", "S"))
        if cube == 0:
            result.update(_ring(0, cubes * pes, sips, sip, "global_E", "global_W"))
    return result


def _towards_first(place, count, up, down):
    """A ring as a line from its far side over member 0 to its far side."""
    upper = (count - 1) // 2  # members that send up and around
    return ((place + upper) % count, count, upper, up, down)


def _between_sips(tl):
    """Up and down between SIPs, as the queues have it."""
    return ("parent", "parent") if tl.can_send("parent") else ("global_E", "global_W")


def _reduce(acc, levels, tl):
    """Sums go to the first member of each level."""
    for place, count, up, down in levels:
        acc = reduce_along(acc, *_towards_first(place, count, up, down), tl)
    return acc


def _broadcast(value, levels, tl):
    """The result comes back."""
    for place, count, up, down in reversed(levels):
        value = broadcast_along(value, place, count, 0, up, down, tl)
    return value


def kernel(t_ptr, n_elem, pes_per_cube, cubes_per_sip, num_sips, tl, sip_rank=None):
    """Runs on every PE.

    A PE does not know its SIP. Without sip_rank the first PEs of the SIPs all send to each other,
    around a ring; with it they reduce to SIP 0, as the engine's kernel does.
    """
    pe, number = tl.program_id(0), tl.program_id(1)
    cube = number % cubes_per_sip
    in_cube = (pe, pes_per_cube, "E", "W")
    in_sip = (cube, cubes_per_sip, "N", "S")
    is_first = pe == 0 and cube == 0
    levels = [in_cube] if pe > 0 else [in_cube, in_sip]
    if is_first and num_sips > 1 and sip_rank is not None:
        levels.append((sip_rank, num_sips, *_between_sips(tl)))

    own = int(t_ptr) + (number * pes_per_cube + pe) * n_elem * ITEM_BYTES
    for address, shape in pieces(own, n_elem):
        acc = tl.load(address, shape=shape, dtype="f16")
        if is_first and num_sips > 1 and sip_rank is None:
            acc = _reduce(acc, levels, tl)
            acc = ring_exchange(acc, num_sips, *_between_sips(tl), tl)
            acc = _broadcast(acc, levels, tl)
        else:
            acc = _broadcast(_reduce(acc, levels, tl), levels, tl)
        tl.store(address, acc)
