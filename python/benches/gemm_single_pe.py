"""gemm_single_pe: C = A * B on one PE, whose operands stay in its HBM and are streamed."""

import numpy as np

from kernbench.policy.placement.dp import DPPolicy

M, K, N = 256, 256, 256

_ONE_PE = DPPolicy(num_cubes=1, num_pes=1)


def _kernel(a_ptr, b_ptr, out_ptr, m, k, n, tl):
    a = tl.ref(int(a_ptr), shape=(m, k), dtype="f16")
    b = tl.ref(int(b_ptr), shape=(k, n), dtype="f16")
    tl.wait(tl.composite(op="gemm", a=a, b=b, out_ptr=int(out_ptr)))


def run(torch):
    """The bench."""
    random = np.random.default_rng(1)
    left = random.uniform(-1, 1, (M, K)).astype(np.float16)
    right = random.uniform(-1, 1, (K, N)).astype(np.float16)
    a = torch.empty((M, K), dp=_ONE_PE, name="a").copy_(torch.from_numpy(left))
    b = torch.empty((K, N), dp=_ONE_PE, name="b").copy_(torch.from_numpy(right))
    out = torch.empty((M, N), dp=_ONE_PE, name="out")
    torch.launch("gemm", _kernel, a, b, out, M, K, N)
    expected = left.astype(np.float32) @ right.astype(np.float32)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-2, atol=1e-2)
    print(f"gemm_single_pe: C ({M}, {N}) = A ({M}, {K}) * B ({K}, {N}): OK")
