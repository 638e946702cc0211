"""Collectives in Python, to read and to copy.

An algorithm is a module with

- ``kernel(t_ptr, *args, tl)``, which runs on every PE that takes part;
- ``kernel_args(world_size, n_elem) -> tuple``, which makes its arguments;
- optionally ``neighbors(rank, world_size, base_map) -> map``, which changes the topology that
  ``ccl.yaml`` names;
- optionally ``TOPO_NAME_TO_KIND``, a number for each topology of SIPs: the kernel then also gets
  ``(sip_rank, kind, topo_w, topo_h)``.

Each PE finds its tile of f16 elements behind ``t_ptr``, at its rank times the bytes of a tile. The
engine has the same algorithms in C, which take the same simulated time; ``ccl.yaml`` uses those for
the names of this folder.
"""
