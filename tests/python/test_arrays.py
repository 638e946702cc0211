"""Arrays on their way in and out: types, layouts, sizes."""

import numpy as np
import pytest

from kernbench.common import dtypes
from kernbench.policy.placement.dp import DPPolicy
from support import make_context, one_pe, pe_columns, put, random


class TestWideAndNarrowTypes:
    def test_bf16_is_widened(self, ctx):
        t = ctx.zeros((1, 8), dtype="bf16", dp=one_pe())
        t.copy_(ctx.from_numpy(np.arange(8, dtype=np.float32).reshape(1, 8)))
        raw = t.numpy()
        assert raw.dtype == np.uint16
        wide = dtypes.widen_bf16(raw)
        assert wide.dtype == np.float32 and (wide == np.arange(8)).all()

    @pytest.mark.parametrize("dtype", ["bf16", "f16", "f32", "i8", "i32"])
    def test_ranges_take_numbers_of_any_kind(self, ctx, dtype):
        """Arrays of floats are values, also for types that numpy does not have."""
        t = ctx.zeros((1, 8), dtype=dtype, dp=one_pe())
        t[0, 0:4] = np.array([1, 2, 3, 4], np.float32)
        u = ctx.zeros((1, 8), dtype="f32", dp=one_pe())

        def widen(p, q, tl):
            tl.store(q, tl.cast(tl.load(p, (8,), dtype), "f32"))

        ctx.launch("widen", widen, t, u)
        assert (u.numpy()[0] == [1, 2, 3, 4, 0, 0, 0, 0]).all()

    @pytest.mark.parametrize("dtype", ["bf16", "f8e4m3", "f8e5m2"])
    def test_steps_take_numbers_of_any_kind(self, ctx, dtype):
        t = ctx.zeros((1, 8), dtype=dtype, dp=one_pe())
        t[0, ::2] = np.array([1, 2, 3, 4], np.float32)
        u = ctx.zeros((1, 8), dtype="f32", dp=one_pe())
        ctx.launch("widen", lambda p, q, tl: tl.store(
            q, tl.cast(tl.load(p, (8,), dtype), "f32")), t, u)
        assert (u.numpy()[0] == [1, 0, 2, 0, 3, 0, 4, 0]).all()

    def test_repr_shows_values(self, ctx):
        for dtype in ("bf16", "f8e4m3", "f32", "i8"):
            t = ctx.zeros((1, 4), dtype=dtype, dp=one_pe(), name="t")
            t[...] = 2
            assert "mean=2, norm=4" in repr(t), dtype

    def test_copies_between_types(self, ctx):
        a = np.array([[1.5, -2.25, 100.0, 0.0]], np.float32)
        source = put(ctx, a)
        for dtype in ("f16", "bf16", "f32", "f8e5m2"):
            t = ctx.zeros((1, 4), dtype=dtype, dp=one_pe())
            t.copy_(source)
            back = ctx.zeros((1, 4), dtype="f32", dp=one_pe())
            back.copy_(t)
            want = a if dtype != "f8e5m2" else np.array([[1.5, -2.0, 96.0, 0.0]], np.float32)
            assert np.allclose(back.numpy(), want, rtol=0.13), dtype

    def test_integers_that_need_all_bits(self, ctx):
        a = np.array([[2**31 - 1, -(2**31), 123456789, -1]], np.int32)
        assert (put(ctx, a).numpy() == a).all()

    def test_special_numbers(self, ctx):
        a = np.array([[np.inf, -np.inf, np.nan, -0.0, 6e-8, 65504]], np.float16)
        assert put(ctx, a).numpy().tobytes() == a.tobytes()


class TestSizes:
    def test_a_large_array(self, ctx):
        a = random((2048, 4096), 1)  # 16 MB
        t = put(ctx, a, DPPolicy(cube="row_wise", pe="row_wise"))
        assert t.numpy().tobytes() == a.tobytes()

    @pytest.mark.parametrize("policy", [
        DPPolicy(cube="column_wise", pe="column_wise"),
        DPPolicy(cube="row_wise", pe="column_wise", num_cubes=3),
        DPPolicy(cube="replicate", pe="column_wise", num_cubes=2, num_pes=5),
    ])
    def test_a_large_array_by_columns(self, ctx, policy):
        """It is moved in bands of rows."""
        a = random((1201, 1030), 2)
        t = put(ctx, a, policy)
        assert t.numpy().tobytes() == a.tobytes()
        assert (t[7:1100, 3:900] == a[7:1100, 3:900]).all()
        t[400:1190, 129:1001] = a[:790, :872]
        a[400:1190, 129:1001] = a[:790, :872].copy()
        assert t.numpy().tobytes() == a.tobytes()
        row = (999, slice(None))
        assert (t[row] == a[row]).all()

    def test_of_one_element(self, ctx):
        t = put(ctx, np.array([[3]], np.float16))
        assert t.numpy().shape == (1, 1) and t[0, 0] == 3

    def test_odd_sizes(self, ctx):
        for shape in ((1, 1), (3, 1), (1, 3), (17, 5), (5, 129)):
            a = random(shape, 1)
            for policy in (one_pe(), pe_columns(), DPPolicy(cube="row_wise", pe="column_wise")):
                t = put(ctx, a, policy)
                assert (t.numpy() == a).all()
                assert sum(s.nbytes for s in t._handle.shards) == a.nbytes

    @pytest.mark.parametrize("shape", [(-1, 8), ("x",), (1 << 62, 8)])
    def test_shapes_that_cannot_be(self, ctx, shape):
        with pytest.raises((ValueError, TypeError, RuntimeError, OverflowError)):
            ctx.zeros(shape, dtype="f16", dp=one_pe())

    def test_without_elements(self, ctx):
        with pytest.raises(ValueError, match="no elements"):
            ctx.zeros((0, 8), dtype="f16", dp=one_pe())

    def test_more_than_the_memory(self, ctx):
        with pytest.raises(RuntimeError, match="HBM|hbm"):
            ctx.zeros((1 << 20, 1 << 13), dtype="f16", dp=one_pe())

    def test_memory_of_tensors_that_are_gone(self, ctx):
        """Each takes half of a slice."""
        for _ in range(6):
            t = ctx.zeros((1536, 1 << 20), dtype="f16", dp=one_pe())
            assert t._handle.va_base
            del t

    def test_timing_only_has_no_contents(self):
        with make_context(enable_data=False) as ctx:
            t = ctx.zeros((1 << 15, 1 << 15), dtype="f16", dp=DPPolicy(cube="row_wise"))
            ctx.launch("k", lambda p, tl: tl.store(p, tl.load(p, (8,), "f16")), t)
            assert t[0, 0:4].shape == (4,)
