"""va_offset_verify: every PE copies its block of a tensor that it finds by address arithmetic,
base + pid * stride; with two axes and with one."""

import numpy as np

from kernbench.policy.placement.dp import DPPolicy

COLUMNS_OF_A_PE = 64


def _kernel(src_ptr, dst_ptr, n, tl):
    pid = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    offset = pid * n * 2
    tl.store(dst_ptr + offset, tl.load(src_ptr + offset, shape=(n,), dtype="f16"))


def _copy(torch, shape, policy, label):
    values = np.random.default_rng(4).uniform(-1, 1, shape).astype(np.float16)
    src = torch.empty(shape, dp=policy, name=f"src_{label}").copy_(torch.from_numpy(values))
    dst = torch.zeros(shape, dp=policy, name=f"dst_{label}")
    torch.launch("copy", _kernel, src, dst, COLUMNS_OF_A_PE)
    np.testing.assert_array_equal(dst.numpy(), values)
    print(f"va_offset_verify: {label}: OK")


def run(torch):
    """The bench."""
    mesh, layout = torch.spec["sip"]["cube_mesh"], torch.spec["cube"]["pe_layout"]
    cubes, pes = mesh["w"] * mesh["h"], layout["pe_per_corner"] * len(layout["corners"])
    rows = DPPolicy(cube="row_wise", pe="column_wise")
    columns = DPPolicy(cube="column_wise", pe="column_wise")
    _copy(torch, (cubes, pes * COLUMNS_OF_A_PE), rows, "2d")
    _copy(torch, (cubes * pes * COLUMNS_OF_A_PE,), columns, "1d")
