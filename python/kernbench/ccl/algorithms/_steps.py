"""What the kernels of this folder share."""

ITEM_BYTES = 2  # f16
SLOT_ELEMENTS = 4096 // ITEM_BYTES  # a default slot of a queue: a tile is sent in one piece


def own_tile(t_ptr, n_elem, tl):
    """The address of the PE's tile."""
    rank = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    return int(t_ptr) + rank * n_elem * ITEM_BYTES


def pieces(address, n_elem):
    """A tile in pieces that fit a slot: the address and the shape of each."""
    for begin in range(0, n_elem, SLOT_ELEMENTS):
        yield address + begin * ITEM_BYTES, (min(SLOT_ELEMENTS, n_elem - begin),)


def ring_exchange(acc, members, to, behind, tl):
    """Members of a ring: each gets all values, by forwarding what it receives, and adds them up."""
    if members < 2:
        return acc
    tl.send(dir=to, src=acc)
    for step in range(1, members):
        arrived = tl.recv(dir=behind, shape=acc.shape, dtype=acc.dtype)
        if step + 1 < members:
            tl.send(dir=to, src=arrived)
        acc = acc + arrived
    return acc


def reduce_along(acc, place, members, root, up, down, tl):
    """Members of a line: sums flow from both ends to the root. `up` leads to the next place."""
    if 0 < place <= root:
        acc = acc + tl.recv(dir=down, shape=acc.shape, dtype=acc.dtype)
    if root <= place < members - 1:
        acc = acc + tl.recv(dir=up, shape=acc.shape, dtype=acc.dtype)
    if place != root:
        tl.send(dir=up if place < root else down, src=acc)
    return acc


def broadcast_along(value, place, members, root, up, down, tl):
    """Members of a line: the value of the root flows to both ends."""
    if place != root:
        value = tl.recv(dir=up if place < root else down, shape=value.shape, dtype=value.dtype)
    if 0 < place <= root:
        tl.send(dir=down, src=value)
    if root <= place < members - 1:
        tl.send(dir=up, src=value)
    return value
