"""The kernel language: values against numpy, handles, queues, everything of tl.h."""

import re

import numpy as np
import pytest

from kernbench.common.ipcq_types import IpcqInvalidDirection
from kernbench.common.pe_commands import TensorHandle
from kernbench.policy.placement.dp import DPPolicy
from support import ROOT, make_context, one_pe, pe_columns, put, random, run_on_pe


def erf(x):
    return np.vectorize(__import__("math").erf)(x)


UNARY = {
    "exp": (lambda x: np.exp(x), 1),
    "log": (lambda x: np.log(np.abs(x) + 0.5), 1),
    "sqrt": (lambda x: np.sqrt(np.abs(x)), 1),
    "rsqrt": (lambda x: 1 / np.sqrt(np.abs(x) + 0.5), 1),
    "abs": (np.abs, 0),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 1),
    "tanh": (np.tanh, 1),
    "cos": (np.cos, 1),
    "sin": (np.sin, 1),
    "gelu": (lambda x: x * (1 + erf(x / np.sqrt(2))) / 2, 1),
    "silu": (lambda x: x / (1 + np.exp(-x)), 1),
}

BINARY = {
    "maximum": np.maximum,
    "minimum": np.minimum,
}


class TestMath:
    @pytest.mark.parametrize("name", UNARY)
    @pytest.mark.parametrize("dtype", ["f16", "f32"])
    def test_unary(self, ctx, name, dtype):
        x = random((4, 16), 3, np.float16 if dtype == "f16" else np.float32)
        given = {"log": np.abs(x) + x.dtype.type(0.5), "rsqrt": np.abs(x) + x.dtype.type(0.5),
                 "sqrt": np.abs(x)}.get(name, x)
        want = {"log": np.log, "rsqrt": lambda v: 1 / np.sqrt(v), "sqrt": np.sqrt}.get(
            name, UNARY[name][0])(given.astype(np.float64))
        got = run_on_pe(ctx, lambda tl, v: getattr(tl, name)(v), given, out=(4, 16),
                        out_dtype=dtype)
        assert np.allclose(got, want, rtol=2e-3 if dtype == "f16" else 1e-5, atol=1e-5)

    def test_operators(self, ctx):
        a, b = random((2, 8), 1), random((2, 8), 2) + np.float16(4)
        for op in ("+", "-", "*", "/"):
            got = run_on_pe(ctx, lambda tl, x, y: eval(f"x {op} y"), a, b, out=(2, 8))
            want = eval(f"a {op} b")
            assert np.allclose(got, want, rtol=2e-3, atol=1e-3), op

    def test_operators_with_numbers_on_either_side(self, ctx):
        a = np.arange(1, 9, dtype=np.float16).reshape(1, 8)
        for text in ("x * 2", "2 * x", "x + 1.5", "1 - x", "8 / x", "x - 3", "-x", "x / 4"):
            got = run_on_pe(ctx, lambda tl, x: eval(text), a, out=(1, 8))
            want = eval(text, {"x": a.astype(np.float32)})
            assert np.allclose(got, want, rtol=1e-3), text

    def test_add_is_rounded_to_f16(self, ctx):
        a = np.full((1, 8), 2048, np.float16)
        b = np.full((1, 8), 1, np.float16)
        got = run_on_pe(ctx, lambda tl, x, y: x + y + y, a, b, out=(1, 8))
        assert (got == 2048).all()

    def test_binary(self, ctx):
        a, b = random((2, 8), 1), random((2, 8), 2)
        for name, f in BINARY.items():
            got = run_on_pe(ctx, lambda tl, x, y: getattr(tl, name)(x, y), a, b, out=(2, 8))
            assert (got == f(a, b)).all(), name

    def test_fma_and_clamp(self, ctx):
        a, b, c = (random((2, 8), i) for i in range(3))
        got = run_on_pe(ctx, lambda tl, x, y, z: tl.fma(x, y, z), a, b, c, out=(2, 8))
        assert np.allclose(got, a.astype(np.float32) * b + c, atol=2e-3)
        got = run_on_pe(ctx, lambda tl, x: tl.clamp(x, -0.5, 0.5), a, out=(2, 8))
        assert np.allclose(got, np.clip(a, -0.5, 0.5))
        got = run_on_pe(ctx, lambda tl, x: tl.clamp(x, min=-0.5, max=0.25), a, out=(2, 8))
        assert np.allclose(got, np.clip(a, -0.5, 0.25))

    def test_softmax(self, ctx):
        a = random((4, 16), 1, scale=5)

        def want(axis):
            e = np.exp(a.astype(np.float64) - a.max(axis, keepdims=True))
            return e / e.sum(axis, keepdims=True)

        got = run_on_pe(ctx, lambda tl, x: tl.softmax(x), a, out=(4, 16))
        assert np.allclose(got, want(-1), atol=1e-3)
        got = run_on_pe(ctx, lambda tl, x: tl.softmax(x, axis=0), a, out=(4, 16))
        assert np.allclose(got, want(0), atol=1e-3)
        got = run_on_pe(ctx, lambda tl, x: tl.softmax(x, axis=-1), a * 0 + np.float16(60000),
                        out=(4, 16))
        assert np.allclose(got, 1 / 16, atol=1e-3)

    def test_where_and_comparisons(self, ctx):
        a, b = random((2, 8), 1), random((2, 8), 2)
        for op in ("<", "<=", ">", ">=", "==", "!="):
            got = run_on_pe(ctx, lambda tl, x, y: tl.where(eval(f"x {op} y"), x, y), a, b,
                            out=(2, 8))
            assert (got == np.where(eval(f"a {op} b"), a, b)).all(), op

    def test_reductions(self, ctx):
        a = random((4, 16), 1, np.float32)
        for name in ("sum", "max", "min"):
            for axis, shape in ((0, (1, 16)), (1, (4, 1)), (-1, (4, 1))):
                got = run_on_pe(ctx, lambda tl, x: getattr(tl, name)(x, axis=axis), a, out=shape,
                                out_dtype="f32")
                want = getattr(np, name)(a, axis=axis, keepdims=True)
                assert np.allclose(got, want, atol=1e-5), (name, axis)

    def test_broadcasting(self, ctx):
        a, b = random((4, 1), 1), random((4, 16), 2)
        got = run_on_pe(ctx, lambda tl, x, y: x + y, a, b, out=(4, 16))
        assert np.allclose(got, a + b, atol=1e-3)

    def test_cast(self, ctx):
        a = random((2, 8), 1)
        got = run_on_pe(ctx, lambda tl, x: tl.cast(x, "f32") * 3.0, a, out=(2, 8), out_dtype="f32")
        assert (got == a.astype(np.float32) * 3).all()

    def test_transpose_and_reshape(self, ctx):
        a = random((4, 16), 1)
        assert (run_on_pe(ctx, lambda tl, x: tl.transpose(x), a, out=(16, 4)) == a.T).all()
        got = run_on_pe(ctx, lambda tl, x: tl.reshape(x, (8, 8)), a, out=(8, 8))
        assert (got == a.reshape(8, 8)).all()

    def test_arange_full_zeros(self, ctx):
        got = run_on_pe(ctx, lambda tl: tl.arange(3, 11), out=(8,), out_dtype="i32")
        assert (got == np.arange(3, 11)).all()
        got = run_on_pe(ctx, lambda tl: tl.full((2, 4), 1.5, "f16"), out=(2, 4))
        assert (got == 1.5).all()
        assert (run_on_pe(ctx, lambda tl: tl.zeros((2, 4), "f16"), out=(2, 4)) == 0).all()

    def test_dot(self, ctx):
        a, b = random((8, 64), 1), random((64, 16), 2)
        got = run_on_pe(ctx, lambda tl, x, y: tl.dot(x, y), a, b, out=(8, 16))
        want = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
        assert got.dtype == np.float16
        assert np.allclose(got, want, rtol=2e-3, atol=1e-2)

    def test_dot_accumulates_in_f32(self, ctx):
        a, b = np.full((1, 4096), 1, np.float16), np.full((4096, 1), 1, np.float16)
        got = run_on_pe(ctx, lambda tl, x, y: tl.dot(x, y), a, b, out=(1, 1))
        assert got[0, 0] == 4096  # f16 sums would stop at 2048

    def test_f32_dot(self, ctx):
        a, b = random((4, 8), 1, np.float32), random((8, 4), 2, np.float32)
        got = run_on_pe(ctx, lambda tl, x, y: tl.dot(x, y), a, b, out=(4, 4), out_dtype="f32")
        assert np.allclose(got, a @ b, atol=1e-5)

    def test_cdiv_is_static(self, ctx):
        seen = []

        def kernel(p, tl):
            seen.append((tl.cdiv(7, 2), tl.cdiv(8, 2), type(tl).cdiv(1, 8)))

        ctx.launch("k", kernel, ctx.zeros((1, 8), dp=one_pe()))
        assert seen == [(4, 4, 1)]

    def test_shapes_that_do_not_fit(self, ctx):
        with pytest.raises(RuntimeError):
            run_on_pe(ctx, lambda tl, x, y: x + y, random((2, 8)), random((2, 7)), out=(2, 8))
        with pytest.raises(RuntimeError):
            run_on_pe(ctx, lambda tl, x, y: tl.dot(x, y), random((2, 8)), random((2, 8)),
                      out=(2, 8))


class TestComposite:
    def test_operands_in_hbm(self, ctx):
        a, b = random((128, 256), 1), random((256, 64), 2)
        x, w = put(ctx, a), put(ctx, b)
        out = ctx.zeros((128, 64), dp=one_pe())

        def kernel(pa, pb, po, M, K, N, tl):
            f = tl.composite(
                op="gemm", a=tl.ref(pa, shape=(M, K), dtype="f16"),
                b=tl.ref(pb, shape=(K, N), dtype="f16"), out_ptr=po,
            )
            tl.wait(f)

        ctx.launch("gemm", kernel, x, w, out, 128, 256, 64)
        want = a.astype(np.float32) @ b.astype(np.float32)
        assert np.allclose(out.numpy(), want, rtol=2e-3, atol=5e-2)

    def test_positional_ref_and_loaded_operand(self, ctx):
        a, b = random((16, 32), 1), random((32, 16), 2)
        x, w = put(ctx, a), put(ctx, b)
        out = ctx.zeros((16, 16), dp=one_pe())

        def kernel(pa, pb, po, tl):
            loaded = tl.load(pa, shape=(16, 32), dtype="f16")
            tl.composite(op="gemm", a=loaded, b=tl.ref(pb, (32, 16), "f16"), out_ptr=po)

        ctx.launch("gemm", kernel, x, w, out)
        assert np.allclose(out.numpy(), a.astype(np.float32) @ b.astype(np.float32), atol=5e-2)

    def test_an_unknown_operation(self, ctx):
        def kernel(p, tl):
            r = tl.ref(p, (8, 8), "f16")
            tl.composite(op="conv", a=r, b=r, out_ptr=p)

        with pytest.raises((ValueError, RuntimeError), match="conv"):
            ctx.launch("k", kernel, ctx.zeros((8, 8), dp=one_pe()))


class TestHandles:
    def test_members_of_a_value(self, ctx):
        seen = []

        def kernel(p, tl):
            v = tl.load(p, shape=(2, 4), dtype="f16")
            seen.append((type(v), v.shape, v.dtype, type(v.addr), v.space))
            seen.append(np.array(v.data))

        t = put(ctx, np.arange(8, dtype=np.float16).reshape(2, 4))
        ctx.launch("k", kernel, t)
        assert seen[0] == (TensorHandle, (2, 4), "f16", int, "tcm")
        assert (seen[1] == np.arange(8).reshape(2, 4)).all()

    def test_load_takes_its_dtype_by_default(self, ctx):
        def kernel(p, tl):
            assert tl.load(p, shape=(8,)).dtype == "f16"
            assert tl.load(p, (8,)).shape == (8,)
            assert tl.load(int(p), shape=[8]).shape == (8,)

        ctx.launch("k", kernel, ctx.zeros((1, 8), dp=one_pe()))

    def test_dtypes_of_numpy(self, ctx):
        for dtype, name in ((np.float16, "f16"), (np.dtype("float32"), "f32"), (np.int32, "i32")):
            def body(tl, v):
                assert tl.cast(v, dtype).dtype == name
                return v

            run_on_pe(ctx, body, np.ones(8, np.float16), out=(8,))

    def test_item_and_branching(self, ctx):
        seen = []

        def kernel(p, tl):
            v = tl.load(p, shape=(8,), dtype="f16")
            total = tl.item(tl.sum(v, axis=0))
            seen.append(total)
            if total > 20:
                tl.store(p, v * 0)

        t = put(ctx, np.arange(8, dtype=np.float16).reshape(1, 8))
        ctx.launch("k", kernel, t)
        assert seen == [28.0] and (t.numpy() == 0).all()

    def test_now(self, ctx):
        seen = []

        def kernel(p, tl):
            before = tl.now()
            v = tl.load(p, shape=(8,), dtype="f16")
            tl.wait(v) if False else tl.item(tl.sum(v, axis=0))
            seen.append((before, tl.now()))

        start = ctx.engine._env.now
        ctx.launch("k", kernel, ctx.zeros((1, 8), dp=one_pe()))
        [(before, after)] = seen
        assert start < before < after < ctx.engine._env.now

    def test_values_free_their_tcm_when_python_drops_them(self, ctx):
        def kernel(p, tl):
            for _ in range(100):
                v = tl.load(p, shape=(512, 1024), dtype="f16")  # 1 MiB of 12
                v = v + v
            tl.store(p, v)

        ctx.launch("k", kernel, ctx.zeros((512, 1024), dp=one_pe()))

    def test_too_many_values(self, ctx):
        import kernbench as kb

        def kernel(p, tl):
            kept = []
            for _ in range(100):
                kept.append(tl.load(p, shape=(512, 1024), dtype="f16"))

        with pytest.raises(kb.KernelError, match="(?i)tcm"):
            ctx.launch("k", kernel, ctx.zeros((512, 1024), dp=one_pe()))

    def test_a_value_of_another_kernel_is_refused(self, ctx):
        kept = []

        def first(p, tl):
            kept.append(tl.load(p, shape=(8,), dtype="f16"))

        def second(p, tl):
            tl.store(p, kept[0])

        t = ctx.zeros((1, 8), dp=one_pe())
        ctx.launch("first", first, t)
        with pytest.raises((RuntimeError, ValueError)):
            ctx.launch("second", second, t)

    def test_tl_outside_its_kernel_is_refused(self, ctx):
        kept = []
        t = ctx.zeros((1, 8), dp=one_pe())
        ctx.launch("k", lambda p, tl: kept.append(tl), t)
        with pytest.raises(RuntimeError):
            kept[0].load(t.va, shape=(8,), dtype="f16")
        with pytest.raises(RuntimeError):
            kept[0].program_id(0)

    def test_an_unmapped_address(self, ctx):
        import kernbench as kb

        def kernel(p, tl):
            tl.load(p + (1 << 40), shape=(8,), dtype="f16")

        with pytest.raises(kb.KernelError) as caught:
            ctx.launch("reads_nothing", kernel, ctx.zeros((1, 8), dp=one_pe(), name="near"))
        text = str(caught.value)
        assert "reads_nothing" in text and "sip0.cube0.pe0" in text
        assert re.search(r"test_tl\.py:\d+", text), text
        assert "ns" in text


def ring_context(write_ccl, world=8, **entry):
    write_ccl("ring_allreduce_tcm", {"ring_allreduce_tcm": entry} if entry else None)
    ctx = make_context()
    ctx.install_ipcq(algorithm="ring_allreduce_tcm", world_size_override=world)
    return ctx


class TestQueues:
    @pytest.fixture
    def ring(self, write_ccl):
        with ring_context(write_ccl) as ctx:
            yield ctx

    def rows(self, ctx, n=8):
        a = np.repeat(np.arange(8, dtype=np.float16), n).reshape(1, 8 * n)
        return put(ctx, a, pe_columns())

    def launch(self, ctx, kernel, n=8):
        t = self.rows(ctx, n)
        ctx.launch("k", kernel, t)
        return t.numpy().reshape(8, n)

    def test_send_and_recv(self, ring):
        def kernel(p, tl):
            mine = p + tl.program_id(0) * 16
            tl.send(dir="E", src=tl.load(mine, shape=(8,), dtype="f16"))
            tl.store(mine, tl.recv(dir="W", shape=(8,), dtype="f16"))

        assert (self.launch(ring, kernel) == (np.arange(8)[:, None] - 1) % 8).all()

    def test_the_value_sent_is_the_one_given(self, ring):
        def kernel(p, tl):
            mine = p + tl.program_id(0) * 16
            v = tl.load(mine, shape=(8,), dtype="f16")
            tl.send(dir="E", src=v)
            tl.store(mine, v * 0)
            got = tl.recv(dir="W", shape=(8,), dtype="f16")
            tl.store(mine, got + 100)

        assert (self.launch(ring, kernel) == (np.arange(8)[:, None] - 1) % 8 + 100).all()

    @pytest.mark.parametrize("space", ["hbm", "tcm"])
    def test_send_from_memory(self, ring, space):
        def kernel(p, tl):
            mine = p + tl.program_id(0) * 16
            addr = mine
            v = tl.load(mine, shape=(8,), dtype="f16")
            if space == "tcm":
                addr = v.addr
            tl.send(dir="E", src_addr=addr, nbytes=16, shape=(8,), dtype="f16", space=space)
            tl.store(mine, tl.recv(dir="W", shape=(8,), dtype="f16"))

        assert (self.launch(ring, kernel) == (np.arange(8)[:, None] - 1) % 8).all()

    def test_send_of_a_handle_made_by_the_kernel(self, ring):
        def kernel(p, tl):
            mine = p + tl.program_id(0) * 16
            place = TensorHandle(id="anything", addr=mine, shape=(8,), dtype="f16", nbytes=16,
                                 data=None, space="hbm")
            tl.send(dir="E", src=place)
            tl.store(mine, tl.recv(dir="W", shape=(8,), dtype="f16"))

        assert (self.launch(ring, kernel) == (np.arange(8)[:, None] - 1) % 8).all()

    def test_forwarding_from_where_a_message_is(self, ring):
        """Each PE gets the value of the PE two places before it, sent on by its address."""
        def kernel(p, tl):
            mine = p + tl.program_id(0) * 16
            tl.send(dir="E", src=tl.load(mine, shape=(8,), dtype="f16"))
            h = tl.recv(dir="W", shape=(8,), dtype="f16")
            tl.send(dir="E", src_addr=h.addr, nbytes=h.nbytes, shape=h.shape, dtype=h.dtype,
                    space=h.space)
            tl.store(mine, tl.recv(dir="W", shape=(8,), dtype="f16"))

        assert (self.launch(ring, kernel) == (np.arange(8)[:, None] - 2) % 8).all()

    def test_send_of_a_handle_with_data(self, ring):
        """The value that the handle carries, whatever is at its address; made outside, too."""
        outside = TensorHandle("outside", 0, (8,), "f16", 16, data=np.full(8, 50, np.float16))

        def kernel(p, tl):
            mine = p + tl.program_id(0) * 16
            h = TensorHandle(id="h", addr=mine, shape=(8,), dtype="f16", nbytes=16,
                             data=np.full(8, 100 + tl.program_id(0), np.float16))
            tl.send(dir="E", src=h)
            tl.send(dir="E", src=outside)
            a = tl.recv(dir="W", shape=(8,), dtype="f16")
            b = tl.recv(dir="W", shape=(8,), dtype="f16")
            tl.store(mine, a + b)

        assert (self.launch(ring, kernel) == (np.arange(8)[:, None] - 1) % 8 + 150).all()

    def test_math_with_a_handle_made_by_the_kernel(self, ring):
        def kernel(p, tl):
            mine = p + tl.program_id(0) * 16
            h = TensorHandle(id="h", addr=mine, shape=(8,), dtype="f16", nbytes=16, space="hbm")
            tl.store(mine, tl.maximum(h + 1, tl.full((8,), 3.0)))

        assert (self.launch(ring, kernel) == np.maximum(np.arange(8)[:, None] + 1, 3)).all()

    def test_recv_into_the_tcm(self, ring):
        """Into the place of a value of the kernel."""
        def kernel(p, tl):
            mine = p + tl.program_id(0) * 16
            place = tl.load(mine, shape=(8,), dtype="f16")
            tl.send(dir="E", src=place)
            h = tl.recv(dir="W", shape=(8,), dtype="f16", dst_addr=place.addr, dst_space="tcm")
            assert h.addr == place.addr and h.space == "tcm"
            tl.store(mine, h)

        assert (self.launch(ring, kernel) == (np.arange(8)[:, None] - 1) % 8).all()

    def test_recv_into_memory(self, ring):
        handles = []

        def kernel(p, tl):
            mine = p + tl.program_id(0) * 16
            tl.send(dir="E", src=tl.load(mine, shape=(8,), dtype="f16"))
            h = tl.recv(dir="W", shape=(8,), dtype="f16", dst_addr=mine, dst_space="hbm")
            handles.append((h.addr == mine, h.space, h.shape))

        assert (self.launch(ring, kernel) == (np.arange(8)[:, None] - 1) % 8).all()
        assert handles == [(True, "hbm", (8,))] * 8

    def test_recv_into_an_unmapped_address(self, ring):
        def kernel(p, tl):
            tl.send(dir="E", src=tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16"))
            tl.recv(dir="W", shape=(8,), dtype="f16", dst_addr=p + (1 << 40), dst_space="hbm")

        with pytest.raises(RuntimeError):
            self.launch(ring, kernel)

    def test_recv_from_any_direction(self, ring):
        def kernel(p, tl):
            mine = p + tl.program_id(0) * 16
            v = tl.load(mine, shape=(8,), dtype="f16")
            tl.send(dir="E", src=v)
            tl.send(dir="W", src=v)
            a = tl.recv(shape=(8,), dtype="f16")
            b = tl.recv(dir=None, shape=(8,), dtype="f16")
            tl.store(mine, a + b)

        r = np.arange(8)[:, None]
        assert (self.launch(ring, kernel) == (r - 1) % 8 + (r + 1) % 8).all()

    def test_recv_takes_the_messages_shape(self, ring):
        def kernel(p, tl):
            mine = p + tl.program_id(0) * 16
            v = tl.load(mine, shape=(2, 4), dtype="f16")
            tl.send(dir="E", src=v)
            got = tl.recv(dir="W")
            assert got.shape == (2, 4) and got.dtype == "f16"
            tl.store(mine, got)

        assert (self.launch(ring, kernel) == (np.arange(8)[:, None] - 1) % 8).all()

    def test_recv_async(self, ring):
        def kernel(p, tl):
            mine = p + tl.program_id(0) * 16
            f = tl.recv_async(dir="W", shape=(8,), dtype="f16")
            v = tl.load(mine, shape=(8,), dtype="f16")
            tl.send(dir="E", src=v)
            got = tl.wait(f)
            assert isinstance(got, TensorHandle) and got.shape == (8,)
            tl.store(mine, got)

        assert (self.launch(ring, kernel) == (np.arange(8)[:, None] - 1) % 8).all()

    def test_two_recv_async(self, ring):
        def kernel(p, tl):
            mine = p + tl.program_id(0) * 16
            v = tl.load(mine, shape=(8,), dtype="f16")
            first = tl.recv_async(dir="W", shape=(8,), dtype="f16")
            second = tl.recv_async(dir="W", shape=(8,), dtype="f16")
            tl.send(dir="E", src=v)
            tl.send(dir="E", src=v * 10)
            b, a = tl.wait(second), tl.wait(first)
            tl.store(mine, b - a)

        assert (self.launch(ring, kernel) == (np.arange(8)[:, None] - 1) % 8 * 9).all()

    @pytest.mark.parametrize("thing", [42, None, "future", object()])
    def test_wait_on_something_else(self, ctx, thing):
        with pytest.raises(TypeError):
            ctx.launch("k", lambda p, tl: tl.wait(thing), ctx.zeros((1, 8), dp=one_pe()))

    def test_an_unknown_direction(self, ring):
        for call in (
            lambda p, tl: tl.send(dir="NE", src=tl.load(p, shape=(8,), dtype="f16")),
            lambda p, tl: tl.recv(dir="up", shape=(8,), dtype="f16"),
            lambda p, tl: tl.send(dir="N", src=tl.load(p, shape=(8,), dtype="f16")),
        ):
            t = ring.zeros((1, 8), dp=one_pe())
            with pytest.raises(IpcqInvalidDirection) as caught:
                ring.launch("k", call, t)
            assert "E" in str(caught.value) and "W" in str(caught.value)

    def test_a_direction_that_is_no_text(self, ring):
        with pytest.raises((TypeError, IpcqInvalidDirection)):
            ring.launch("k", lambda p, tl: tl.recv(dir=3, shape=(8,), dtype="f16"),
                        ring.zeros((1, 8), dp=one_pe()))

    def test_no_queues(self, ctx):
        t = ctx.zeros((1, 8), dp=one_pe())
        with pytest.raises(RuntimeError, match="queue"):
            ctx.launch("k", lambda p, tl: tl.send(dir="E", src=tl.load(p, (8,), "f16")), t)

    def test_shapes_that_disagree(self, ring):
        def kernel(p, tl):
            tl.send(dir="E", src=tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16"))
            tl.recv(dir="W", shape=(4,), dtype="f16")

        with pytest.raises(RuntimeError) as caught:
            self.launch(ring, kernel)
        assert "8" in str(caught.value) and "4" in str(caught.value)

    def test_slots_are_reused_and_values_stay(self, ring):
        """More messages than slots, of changing shapes; values that were received do not change."""
        rounds = 24

        def kernel(p, tl):
            pe = tl.program_id(0)
            got = []
            for i in range(rounds):
                shape = (8,) if i % 2 else (2, 4)
                tl.send(dir="E", src=tl.full(shape, pe * 100 + i, dtype="f16"))
                got.append(tl.recv(dir="W", shape=shape, dtype="f16"))
            for i, v in enumerate(got):
                tl.store(p + (pe * rounds + i) * 16, v)

        t = ring.zeros((1, 8 * 8 * rounds), dp=pe_columns())
        ring.launch("k", kernel, t)
        got = t.numpy().reshape(8, rounds, 8)
        want = ((np.arange(8) - 1) % 8)[:, None] * 100 + np.arange(rounds)[None, :]
        assert (got == want.astype(np.float16)[:, :, None]).all()

    def test_messages_larger_than_a_slot(self, ring):
        n = 6000  # 12,000 bytes in slots of 4,096

        def kernel(p, tl):
            mine = p + tl.program_id(0) * n * 2
            tl.send(dir="E", src=tl.load(mine, shape=(n,), dtype="f16"))
            tl.store(mine, tl.recv(dir="W", shape=(n,), dtype="f16"))

        assert (self.launch(ring, kernel, n) == (np.arange(8)[:, None] - 1) % 8).all()


class TestEverythingOfTheHeader:
    # Calls of tl.h that are something else in Python.
    ELSEWHERE = {
        "shape": "a tuple", "strides": "a tuple", "user": "the function itself",
        "try": "exceptions", "assign": "an assignment", "scalar": "a number",
        "raise": "raise", "split_sizes": "split with sizes",
    }

    def names(self):
        text = (ROOT / "include" / "kernbench" / "tl.h").read_text()
        names = set(re.findall(r"^#define tl_([a-z0-9_]+?)\(", text, re.M))
        names |= set(re.findall(r"^static inline \w+ tl_([a-z0-9_]+)\(", text, re.M))
        return names - set(self.ELSEWHERE)

    def test_names(self, ctx):
        missing = []

        def kernel(p, tl):
            missing.extend(n for n in sorted(self.names()) if not callable(getattr(tl, n, None)))

        ctx.launch("k", kernel, ctx.zeros((1, 8), dp=one_pe()))
        assert not missing

    def test_pieces(self, ctx):
        a = random((4, 8), 1)
        got = run_on_pe(ctx, lambda tl, x: tl.slice(x, 1, 2, 6), a, out=(4, 4))
        assert (got == a[:, 2:6]).all()
        got = run_on_pe(ctx, lambda tl, x: tl.concat(tl.split(x, 0, 2)[::-1], axis=0), a,
                        out=(4, 8))
        assert (got == np.concatenate([a[2:], a[:2]])).all()

    def test_picking(self, ctx):
        a = random((4, 8), 1)
        got = run_on_pe(ctx, lambda tl, x: tl.argmax(x, axis=1), a, out=(4, 1), out_dtype="i32")
        assert (got[:, 0] == a.argmax(1)).all()
        got = run_on_pe(ctx, lambda tl, x: tl.topk(x, 3, 1)[0], a, out=(4, 3))
        assert (got == -np.sort(-a, axis=1)[:, :3]).all()
        index = np.array([[1, 0, 3], [2, 2, 7], [0, 1, 2], [5, 6, 7]], np.int32)
        got = run_on_pe(ctx, lambda tl, x, i: tl.gather(x, i, 1), a, index, out=(4, 3))
        assert (got == np.take_along_axis(a, index, 1)).all()

    def test_masked_and_strided_memory(self, ctx):
        a = random((4, 8), 1)
        t = put(ctx, a)
        out = ctx.zeros((4, 4), dp=one_pe())

        def kernel(p, q, tl):
            v = tl.load(p, shape=(4, 4), dtype="f16", strides=(8, 2))
            tl.store(q, v)

        ctx.launch("k", kernel, t, out)
        assert (out.numpy() == a[:, ::2]).all()

        def masked(p, q, tl):
            m = tl.lt(tl.arange(0, 8), 5)
            tl.store(q, tl.load(p, shape=(8,), dtype="f16", mask=m, other=-1.0))

        row = ctx.zeros((1, 8), dp=one_pe())
        ctx.launch("k", masked, t, row)
        assert (row.numpy()[0] == np.where(np.arange(8) < 5, a[0], -1)).all()

    def test_free(self, ctx):
        def kernel(p, tl):
            v = tl.load(p, shape=(8,), dtype="f16")
            tl.free(v)
            tl.store(p, v)

        with pytest.raises(RuntimeError, match="free"):
            ctx.launch("k", kernel, ctx.zeros((1, 8), dp=one_pe()))


class TestSyntheticGrid:
    @pytest.mark.parametrize("axis, want", [(0, 8), (1, 16)])
    def test_num_programs(self, ctx, axis, want):
        seen = set()
        t = ctx.zeros((16, 8), dp=DPPolicy(cube="row_wise", pe="column_wise"))
        ctx.launch("k", lambda p, tl: seen.add(tl.num_programs(axis=axis)), t)
        assert seen == {want}

    def test_an_axis_that_is_not_there(self, ctx):
        with pytest.raises((ValueError, RuntimeError)):
            ctx.launch("k", lambda p, tl: tl.program_id(5), ctx.zeros((1, 8), dp=one_pe()))
