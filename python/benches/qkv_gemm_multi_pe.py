"""qkv_gemm_multi_pe: the QKV projection with columns over all cubes and PEs of each SIP, which has
X as a whole at every PE. One launch for each SIP, all sent before any is waited for."""

import numpy as np

from kernbench.policy.placement.dp import DPPolicy

TOKENS, COLUMNS_OF_A_PE, WIDTH = 16, 8, 256

_EVERYWHERE = DPPolicy(cube="replicate", pe="replicate")
_COLUMNS = DPPolicy(cube="column_wise", pe="column_wise")


def _kernel(x_ptr, w_ptr, out_ptr, tokens, width, columns, tl):
    pe = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    x = tl.load(x_ptr, shape=(tokens, width), dtype="f16")
    w = tl.load(w_ptr + pe * width * columns * 2, shape=(width, columns), dtype="f16")
    tl.store(out_ptr + pe * tokens * columns * 2, tl.dot(x, w))


def run(torch):
    """The bench."""
    spec = torch.spec
    mesh, layout = spec["sip"]["cube_mesh"], spec["cube"]["pe_layout"]
    pes = mesh["w"] * mesh["h"] * layout["pe_per_corner"] * len(layout["corners"])
    total = pes * COLUMNS_OF_A_PE
    random = np.random.default_rng(3)
    x = random.uniform(-1, 1, (TOKENS, WIDTH)).astype(np.float16)
    weights = {name: random.uniform(-1, 1, (WIDTH, total)).astype(np.float16) for name in "qkv"}

    launches, outputs = [], []
    for sip in range(spec["system"]["sips"]["count"]):
        torch.ahbm.set_device(sip)
        x_tensor = torch.empty(x.shape, dp=_EVERYWHERE, name=f"x{sip}")
        x_tensor.copy_(torch.from_numpy(x))
        for name, values in weights.items():
            w = torch.empty(values.shape, dp=_COLUMNS, name=f"w_{name}{sip}")
            w.copy_(torch.from_numpy(values))
            out = torch.empty((TOKENS, total), dp=_COLUMNS, name=f"{name}{sip}")
            launches += torch.launch(
                f"{name}_gemm",
                _kernel,
                x_tensor,
                w,
                out,
                TOKENS,
                WIDTH,
                COLUMNS_OF_A_PE,
                _defer_wait=True,
            )
            outputs.append((name, out))
    for handle, _, meta in launches:
        torch.wait(handle, _meta=meta)
    for name, out in outputs:
        expected = x.astype(np.float32) @ weights[name].astype(np.float32)
        np.testing.assert_allclose(out.numpy(), expected, rtol=1e-2, atol=2e-2)
    print(f"qkv_gemm_multi_pe: {len(outputs)} products of (16, {WIDTH}) and ({WIDTH}, {total}): OK")
