"""tree_allreduce: sums go up a binary tree, the result comes down."""

from kernbench.ccl.algorithms._steps import own_tile, pieces

_CHILDREN = ("child_left", "child_right")


def kernel_args(world_size, n_elem):
    """The kernel's arguments behind t_ptr."""
    return (n_elem, world_size)


def kernel(t_ptr, n_elem, world, tl):
    """Runs on every PE."""
    if world < 2:
        return
    children = [direction for direction in _CHILDREN if tl.can_recv(direction)]
    for address, shape in pieces(own_tile(t_ptr, n_elem, tl), n_elem):
        acc = tl.load(address, shape=shape, dtype="f16")
        for child in children:
            acc = acc + tl.recv(dir=child, shape=shape, dtype="f16")
        if tl.can_send("parent"):
            tl.send(dir="parent", src=acc)
            acc = tl.recv(dir="parent", shape=shape, dtype="f16")
        for child in children:
            tl.send(dir=child, src=acc)
        tl.store(address, acc)
