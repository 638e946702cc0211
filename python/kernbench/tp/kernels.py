"""The kernel of the layers."""


def _gemm_kernel(a_ptr, b_ptr, out_ptr, M, K, N, tl, DTYPE="f16"):
    """out (M, N) = a (M, K) * b (K, N), on PE 0 of cube 0, which has them: in tiles that the
    scheduler streams from memory, so that they may be larger than the TCM."""
    if tl.program_id(0) != 0 or tl.program_id(1) != 0:
        return
    a = tl.ref(int(a_ptr), shape=(M, K), dtype=DTYPE)
    b = tl.ref(int(b_ptr), shape=(K, N), dtype=DTYPE)
    tl.wait(tl.composite(op="gemm", a=a, b=b, out_ptr=int(out_ptr)))
