"""Running a collective's kernel on all ranks without a machine: no time passes.

Queues are plain lists without bounds, so a mock run cannot find a lack of credits. An unknown
direction, a wrong shape and a deadlock are errors as in a real run.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import numpy as np

from kernbench import _core
from kernbench.ccl.topologies import resolve_topology
from kernbench.common import dtypes

__all__ = ["run_kernel_in_mock"]


def run_kernel_in_mock(
    kernel_fn: Callable[..., Any],
    world_size: int,
    topology: str,
    inputs: Sequence[np.ndarray],
    kernel_args: Sequence[Any] = (),
    algo_module: Optional[Any] = None,
    pes_per_cube: int = 0,
) -> list[np.ndarray]:
    """Runs kernel_fn(0, *kernel_args, tl=tl) on each rank and returns what each has then.

    Rank r has its input at address r * input.nbytes, which is what it returns unless it stores
    there; nothing is 0. `topology` is a name of ``kernbench.ccl.topologies``, changed by the
    neighbors() of `algo_module`. Of `pes_per_cube` PEs each cube has as many; 0: all ranks are in
    one. RuntimeError "deadlock" if kernels wait for ever.
    """
    if len(inputs) != world_size:
        raise ValueError(f"{len(inputs)} inputs for {world_size} ranks: expected one for each")
    arrays = [np.ascontiguousarray(array) for array in inputs]
    first = arrays[0]
    for rank, array in enumerate(arrays):
        if array.nbytes != first.nbytes or array.dtype != first.dtype:
            raise ValueError(
                f"inputs differ: rank 0 has {first.shape} {first.dtype}, rank {rank} has "
                f"{array.shape} {array.dtype}"
            )
    neighbors = resolve_topology(topology, algo_module)
    edges = [
        (rank, direction, peer)
        for rank in range(world_size)
        for direction, peer in neighbors(rank, world_size).items()
    ]
    results = _core.run_mock(
        kernel_fn,
        world_size,
        edges,
        tuple(kernel_args),
        arrays,
        dtypes.name_of(first.dtype),
        pes_per_cube,
    )
    return [
        np.frombuffer(bytearray(data), array.dtype).reshape(array.shape)
        for data, array in zip(results, arrays)
    ]
