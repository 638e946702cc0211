"""my_bench: y = a * x + b, where each PE computes its shard. Right on any machine, for any size.

    kernbench run --bench ./my_bench.py --verify-data
"""

import numpy as np

from kernbench.policy.placement.dp import DPPolicy

N = 100_000  # elements of x
BLOCK = 4096  # of these at a time, as the TCM of a PE is small


def axpb(x_ptr, y_ptr, n, a, b, tl):
    """Runs once on each PE that has a shard of x or y."""
    # x is split over the cubes, and each cube's part over its PEs: the shard of this PE.
    cube, cubes = tl.program_id(1), tl.num_programs(1)
    pe, pes = tl.program_id(0), tl.num_programs(0)
    of_cube = tl.part_size(n, cubes, cube)
    begin = tl.part_begin(n, cubes, cube) + tl.part_begin(of_cube, pes, pe)
    end = begin + tl.part_size(of_cube, pes, pe)

    for at in range(begin, end, BLOCK):
        shape = (min(BLOCK, end - at),)
        v = tl.load(x_ptr + at * 4, shape=shape, dtype="f32")
        tl.store(y_ptr + at * 4, v * a + b)


def run(torch):
    """The host program. `torch` is the context: tensors, launches, devices and ranks."""
    a, b = 2.5, -1.0
    split = DPPolicy(cube="column_wise", pe="column_wise")
    numbers = np.random.default_rng(1).uniform(-1, 1, N).astype(np.float32)
    x = torch.empty((N,), dtype="f32", dp=split, name="x")
    y = torch.empty((N,), dtype="f32", dp=split, name="y")
    x.copy_(torch.from_numpy(numbers))
    torch.launch("axpb", axpb, x, y, N, a, b)
    np.testing.assert_allclose(y.numpy(), a * numbers + b, rtol=1e-6, atol=1e-6)
    print(f"my_bench: {N} elements are right")
