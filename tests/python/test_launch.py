"""Launching kernels and waiting for them."""

import numpy as np
import pytest

from kernbench.policy.placement.dp import DPPolicy
from support import cube_rows, make_context, one_pe, pe_columns, put, random


def scale(p, n, factor, tl):
    mine = p + (tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)) * n * 2
    v = tl.load(mine, shape=(n,), dtype="f16")
    tl.store(mine, v * factor)


def _gemm_kernel(a_ptr, b_ptr, out_ptr, M, K, N, tl, DTYPE="f16"):
    a = tl.load(a_ptr, shape=(M, K), dtype=DTYPE)
    b = tl.load(b_ptr, shape=(K, N), dtype=DTYPE)
    tl.store(out_ptr, tl.dot(a, b))


class TestArguments:
    def test_tensors_come_as_ints(self, ctx):
        seen = []

        def kernel(a, b, tl):
            seen.append((type(a), a, int(a), b))

        x = ctx.zeros((1, 8), dp=one_pe(), name="x")
        y = ctx.zeros((1, 8), dp=one_pe(), name="y")
        ctx.launch("k", kernel, x, y)
        assert seen == [(int, x._handle.va_base, x.va, y.va)]

    def test_other_arguments_come_as_they_are(self, ctx):
        seen = []
        thing = object()

        def kernel(p, a, b, c, d, e, tl):
            seen.append((a, b, c, d, e))

        ctx.launch("k", kernel, ctx.zeros((1, 8), dp=one_pe()), 7, 2.5, "text", thing, (1, [2]))
        assert seen == [(7, 2.5, "text", thing, (1, [2]))]
        assert seen[0][3] is thing

    def test_big_and_negative_numbers(self, ctx):
        seen = []

        def kernel(p, *rest, tl):
            seen.append(rest)

        ctx.launch("k", kernel, ctx.zeros((1, 8), dp=one_pe()), 1 << 70, -5, None, True)
        assert seen == [(1 << 70, -5, None, True)]

    def test_defaults_behind_tl(self, ctx):
        a, b = random((4, 8), 1), random((8, 3), 2)
        x, w = put(ctx, a), put(ctx, b)
        out = ctx.zeros((4, 3), dp=one_pe())
        ctx.launch("gemm", _gemm_kernel, x, w, out, 4, 8, 3)
        want = a.astype(np.float32) @ b.astype(np.float32)
        assert np.allclose(out.numpy(), want, atol=1e-2)

    def test_keywords(self, ctx):
        seen = []

        def kernel(p, n, tl, DTYPE="f16", scale=1.0):
            seen.append((n, DTYPE, scale))

        x = ctx.zeros((1, 8), dp=one_pe())
        ctx.launch("k", kernel, x, 3, scale=2.0)
        ctx.launch("k", kernel, x, n=4, DTYPE="f32")
        assert seen == [(3, "f16", 2.0), (4, "f32", 1.0)]

    def test_tensors_by_keyword(self, ctx):
        """They are addresses too, and the kernel runs where they have shards."""
        ran = []

        def kernel(a, out, tl, n=8):
            ran.append(tl.program_id(0))
            assert type(out) is int
            tl.store(out + tl.program_id(0) * n * 2, tl.load(a, shape=(n,), dtype="f16") + 1)

        x = ctx.zeros((1, 8), dp=DPPolicy(num_cubes=1), name="x")
        y = ctx.zeros((1, 64), dp=pe_columns(), name="y")
        ctx.launch("k", kernel, x, out=y)
        assert sorted(ran) == list(range(8)) and (y.numpy() == 1).all()

    def test_tl_as_a_keyword_only_parameter(self, ctx):
        seen = []

        def kernel(p, *, tl):
            seen.append(tl.program_id(0))

        ctx.launch("k", kernel, ctx.zeros((1, 8), dp=one_pe()))
        assert seen == [0]

    def test_pointer_arithmetic(self, ctx):
        x = put(ctx, np.arange(8, dtype=np.float16).reshape(1, 8))
        y = ctx.zeros((1, 8), dp=one_pe())

        def kernel(src, dst, tl):
            tl.store(int(dst) + 4 * 2, tl.load(src + 2 * 2, shape=(4,), dtype="f16"))

        ctx.launch("k", kernel, x, y)
        assert (y.numpy() == [[0, 0, 0, 0, 2, 3, 4, 5]]).all()

    def test_a_host_tensor_is_refused_by_name(self, ctx):
        host = ctx.from_numpy(np.zeros((1, 8), np.float16))
        host.name = "weights_on_host" if hasattr(host, "__dict__") else host.name
        with pytest.raises(RuntimeError, match=host.name):
            ctx.launch("k", scale, host, 8, 2.0)

    def test_wrong_number_of_arguments(self, ctx):
        with pytest.raises(TypeError):
            ctx.launch("k", scale, ctx.zeros((1, 8), dp=one_pe()))

    def test_not_a_function(self, ctx):
        with pytest.raises(TypeError):
            ctx.launch("k", 42, ctx.zeros((1, 8), dp=one_pe()))

    @pytest.mark.parametrize("what", ["yield", "await f()"])
    def test_not_a_plain_function(self, ctx, what):
        """What such a function returns is not run by anybody."""
        names = {}
        exec(f"{'async ' * ('await' in what)}def f(p, tl=None):\n    {what}\n", names)
        t = ctx.zeros((1, 8), dp=one_pe())
        with pytest.raises(TypeError, match="plain function"):
            ctx.launch("f", names["f"], t)
        with pytest.raises(RuntimeError, match="plain function"):
            ctx.multiprocessing.spawn(names["f"], nprocs=1)

    def test_no_tensor(self, ctx):
        with pytest.raises((ValueError, RuntimeError, TypeError)):
            ctx.launch("k", lambda n, tl: None, 3)


class TestWhereItRuns:
    @pytest.mark.parametrize(
        "policy, pes",
        [
            (dict(num_cubes=1, num_pes=1), 1),
            (dict(pe="column_wise", num_cubes=1), 8),
            (dict(pe="column_wise", num_cubes=1, num_pes=3), 3),
            (dict(cube="row_wise", num_pes=1), 16),
            (dict(cube="row_wise", pe="column_wise"), 128),
        ],
    )
    def test_once_on_every_pe_that_owns_a_shard(self, ctx, policy, pes):
        seen = []

        def kernel(p, tl):
            seen.append((tl.program_id(1), tl.program_id(0)))
            seen_programs.add((tl.num_programs(1), tl.num_programs(0)))

        seen_programs = set()
        t = ctx.zeros((16, 64), dp=DPPolicy(**policy))
        ctx.launch("k", kernel, t)
        assert len(seen) == len(set(seen)) == pes
        assert sorted(seen) == sorted((s.cube, s.pe) for s in t._handle.shards)
        cubes = len({c for c, _ in seen})
        assert seen_programs == {(cubes, pes // cubes)}

    def test_several_tensors(self, ctx):
        ran = []
        a = ctx.zeros((1, 8), dp=one_pe())
        b = ctx.zeros((1, 64), dp=pe_columns())
        ctx.launch("k", lambda p, q, tl: ran.append(tl.program_id(0)), a, b)
        assert sorted(ran) == list(range(8))

    def test_every_pe_has_its_slice(self, ctx):
        a = random((16, 64), 4)
        t = put(ctx, a, DPPolicy(cube="row_wise", pe="column_wise"))
        ctx.launch("scale", scale, t, 8, 2.0)
        assert (t.numpy() == a * 2).all()

    def test_replicated_each_its_copy(self, ctx):
        t = ctx.zeros((1, 8), dp=DPPolicy(num_cubes=1))
        out = ctx.zeros((8, 8), dp=DPPolicy(pe="row_wise", num_cubes=1))

        def kernel(shared, rows, tl):
            pe = tl.program_id(0)
            tl.store(shared, tl.full((8,), pe, dtype="f16"))
            tl.store(rows + pe * 16, tl.load(shared, shape=(8,), dtype="f16"))

        ctx.launch("k", kernel, t, out)
        assert (out.numpy() == np.arange(8)[:, None]).all()

    def test_another_device(self, ctx):
        ctx.ahbm.set_device(1)
        t = put(ctx, np.ones((1, 8), np.float16))
        ctx.launch("k", scale, t, 8, 3.0)
        assert (t.numpy() == 3).all()


class TestWaiting:
    def test_launch_returns_a_handle_that_is_done(self, ctx):
        t = put(ctx, np.ones((1, 8), np.float16))
        handle = ctx.launch("k", scale, t, 8, 2.0)
        now = ctx.engine._env.now
        completion = ctx.wait(handle)
        assert completion.ok and ctx.engine._env.now == now

    def test_stores_are_visible_when_launch_returns(self, ctx):
        t = put(ctx, np.ones((1, 8), np.float16))
        ctx.launch("k", scale, t, 8, 2.0)
        assert (ctx.engine.memory_store.read("hbm", t.va, shape=(8,), dtype=np.float16) == 2).all()

    def test_deferred(self, ctx):
        t = put(ctx, np.ones((1, 8), np.float16))
        t.numpy()
        before = ctx.engine._env.now
        pending = ctx.launch("late", scale, t, 8, 2.0, _defer_wait=True)
        assert ctx.engine._env.now == before
        assert isinstance(pending, list) and len(pending) == 1
        handle, sip, meta = pending[0]
        assert sip == 0
        assert isinstance(meta, dict)
        assert meta["phase"] == "kernel" and meta["name"] == "late" and meta["sip"] == 0
        assert "target_pe" in meta
        assert ctx.wait(handle, _meta=meta).ok
        assert ctx.engine._env.now > before
        assert (t.numpy() == 2).all()

    def test_waiting_twice_is_free(self, ctx):
        t = ctx.zeros((1, 8), dp=one_pe())
        [(handle, _, meta)] = ctx.launch("k", scale, t, 8, 2.0, _defer_wait=True)
        ctx.wait(handle, _meta=meta)
        now = ctx.engine._env.now
        assert ctx.wait(handle).ok and ctx.wait(handle, _meta=meta).ok
        assert ctx.engine._env.now == now

    @pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2]])
    def test_several_sips_from_one_driver(self, machine_file, order):
        with make_context(machine_file(4, "torus_2d")) as ctx:
            tensors, pending = [], []
            for sip in range(4):
                ctx.ahbm.set_device(sip)
                t = ctx.zeros((1, 8), dp=one_pe(), name=f"x{sip}")
                t[0, :] = sip + 1
                tensors.append(t)
            for sip, t in enumerate(tensors):
                pending += ctx.launch(f"k{sip}", scale, t, 8, 2.0, _defer_wait=True)
            assert [sip for _, sip, _ in pending] == [0, 1, 2, 3]
            for i in order:
                handle, _, meta = pending[i]
                assert ctx.wait(handle, _meta=meta).ok
            for sip, t in enumerate(tensors):
                assert (t.numpy() == 2 * (sip + 1)).all()

    def test_deferred_launches_run_side_by_side(self, ctx):
        def slow(p, tl):
            v = tl.load(p, shape=(4096,), dtype="f16")
            for _ in range(20):
                v = tl.exp(v)
            tl.store(p, v)

        tensors = []
        for sip in range(2):
            ctx.ahbm.set_device(sip)
            tensors.append(ctx.zeros((1, 4096), dp=one_pe()))
        start = ctx.engine._env.now
        ctx.launch("alone", slow, tensors[0])
        alone = ctx.engine._env.now - start
        start = ctx.engine._env.now
        for handle, _, meta in [
            entry for t in tensors for entry in ctx.launch("k", slow, t, _defer_wait=True)
        ]:
            ctx.wait(handle, _meta=meta)
        assert ctx.engine._env.now - start < 1.5 * alone

    def test_the_name_selects_nothing(self, ctx):
        t = put(ctx, np.ones((1, 8), np.float16))
        for name in ("intercube_allreduce", "same", "same", "gemm_single_pe", "ä b/c", ""):
            ctx.launch(name, scale, t, 8, 1.0)
        assert (t.numpy() == 1).all()

    def test_a_kernel_sees_stores_of_the_one_before(self, ctx):
        t = put(ctx, np.ones((1, 8), np.float16))
        for _ in range(5):
            ctx.launch("k", scale, t, 8, 2.0, _defer_wait=True)
        assert (t.numpy() == 32).all()


class TestKernelsArePlainFunctions:
    def test_closures_write_outside(self, ctx):
        seen = {}

        def kernel(p, tl):
            seen[tl.program_id(0)] = tl.now()

        ctx.launch("k", kernel, ctx.zeros((1, 64), dp=pe_columns()))
        assert sorted(seen) == list(range(8))

    def test_helpers_and_control_flow(self, ctx):
        def add_thrice(tl, v, w):
            for _ in range(3):
                v = v + w
            return v

        def kernel(p, n, tl):
            pe = tl.program_id(0)
            v = tl.load(p + pe * n * 2, shape=(n,), dtype="f16")
            if pe % 2 == 0:
                v = add_thrice(tl, v, v)
            assert v.shape == (n,)
            tl.store(p + pe * n * 2, v)

        t = put(ctx, np.ones((1, 64), np.float16), pe_columns())
        ctx.launch("k", kernel, t, 8)
        assert (t.numpy().reshape(8, 8)[::2] == 4).all()
        assert (t.numpy().reshape(8, 8)[1::2] == 1).all()

    def test_an_assertion_in_a_kernel(self, ctx):
        def kernel(p, tl):
            assert tl.program_id(0) != 3, "not on PE 3"

        with pytest.raises(AssertionError, match="not on PE 3"):
            ctx.launch("k", kernel, ctx.zeros((1, 64), dp=pe_columns()))

    def test_bound_methods_partials_and_lambdas(self, ctx):
        import functools

        class Kernels:
            def scale(self, p, tl):
                tl.store(p, tl.load(p, shape=(8,), dtype="f16") * 2)

        t = put(ctx, np.ones((1, 8), np.float16))
        ctx.launch("k", Kernels().scale, t)
        ctx.launch("k", functools.partial(scale, n=8, factor=2.0), t)
        ctx.launch("k", lambda p, tl: tl.store(p, tl.load(p, (8,), "f16") * 2), t)
        assert (t.numpy() == 8).all()

    def test_generators_in_kernels(self, ctx):
        def tiles(p, n):
            for i in range(n):
                yield p + i * 16

        def kernel(p, tl):
            for at in tiles(p, 4):
                tl.store(at, tl.load(at, shape=(8,), dtype="f16") + 1)

        t = put(ctx, np.ones((1, 32), np.float16))
        ctx.launch("k", kernel, t)
        assert (t.numpy() == 2).all()

    def test_the_return_value_is_ignored(self, ctx):
        ctx.launch("k", lambda p, tl: 42, ctx.zeros((1, 8), dp=one_pe()))

    def test_a_kernel_that_does_nothing(self, ctx):
        before = ctx.engine._env.now
        ctx.launch("k", lambda p, tl: None, ctx.zeros((1, 8), dp=one_pe()))
        assert ctx.engine._env.now > before

    def test_timing_only(self):
        with make_context(enable_data=False) as ctx:
            t = ctx.zeros((16, 8), dp=cube_rows())
            before = ctx.engine._env.now
            ctx.launch("k", scale, t, 8, 2.0)
            timing = ctx.engine._env.now - before
        with make_context() as ctx:
            t = ctx.zeros((16, 8), dp=cube_rows())
            before = ctx.engine._env.now
            ctx.launch("k", scale, t, 8, 2.0)
            assert ctx.engine._env.now - before == timing
