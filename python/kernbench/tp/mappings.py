"""Empty, as in the Python original: the regions are in ``kernbench.tp.primitives``."""
