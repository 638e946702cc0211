"""hello_send: each PE sends its tile to E and stores what it receives from W. The first kernel."""

from kernbench.ccl.algorithms._steps import own_tile, pieces


def kernel_args(world_size, n_elem):
    """The kernel's arguments behind t_ptr."""
    return (n_elem,)


def kernel(t_ptr, n_elem, tl):
    """Runs on every PE."""
    for address, shape in pieces(own_tile(t_ptr, n_elem, tl), n_elem):
        tl.send(dir="E", src=tl.load(address, shape=shape, dtype="f16"))
        tl.store(address, tl.recv(dir="W", shape=shape, dtype="f16"))
