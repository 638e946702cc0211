"""qkv_gemm: the QKV projection of a few tokens on one PE, which loads its operands itself."""

import numpy as np

from kernbench.policy.placement.dp import DPPolicy

TOKENS, WIDTH = 32, 256

_ONE_PE = DPPolicy(num_cubes=1, num_pes=1)


def _kernel(x_ptr, q_ptr, k_ptr, v_ptr, out_ptr, tokens, width, tl):
    x = tl.load(x_ptr, shape=(tokens, width), dtype="f16")
    for number, w_ptr in enumerate((q_ptr, k_ptr, v_ptr)):
        w = tl.load(w_ptr, shape=(width, width), dtype="f16")
        tl.store(out_ptr + number * tokens * width * 2, tl.dot(x, w))


def run(torch):
    """The bench."""
    random = np.random.default_rng(2)

    def matrix(name, rows):
        values = random.uniform(-1, 1, (rows, WIDTH)).astype(np.float16)
        tensor = torch.empty((rows, WIDTH), dp=_ONE_PE, name=name)
        return values, tensor.copy_(torch.from_numpy(values))

    x, x_tensor = matrix("x", TOKENS)
    weights, tensors = zip(*(matrix(name, WIDTH) for name in ("w_q", "w_k", "w_v")))
    out = torch.empty((3 * TOKENS, WIDTH), dp=_ONE_PE, name="qkv")
    torch.launch("qkv", _kernel, x_tensor, *tensors, out, TOKENS, WIDTH)
    expected = np.concatenate([x.astype(np.float32) @ w.astype(np.float32) for w in weights])
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-2, atol=2e-2)
    print(f"qkv_gemm: {TOKENS} tokens of width {WIDTH}: OK")
