"""Tensors: members, contents, copies, barriers."""

import re

import numpy as np
import pytest

from kernbench.policy.placement.dp import DPPolicy
from kernbench.runtime_api import tensor as tensor_module
from kernbench.runtime_api.tensor import Tensor
from support import make_context, one_pe, pe_columns, put, random

POLICIES = {
    "one": dict(num_cubes=1, num_pes=1),
    "replicated": dict(),
    "columns over PEs": dict(pe="column_wise", num_cubes=1),
    "rows over PEs": dict(pe="row_wise", num_cubes=1),
    "columns over cubes": dict(cube="column_wise", num_pes=1),
    "rows over cubes": dict(cube="row_wise", num_pes=1),
    "rows then columns": dict(cube="row_wise", pe="column_wise"),
    "columns then rows": dict(cube="column_wise", pe="row_wise"),
    "columns twice": dict(cube="column_wise", pe="column_wise"),
    "rows twice": dict(cube="row_wise", pe="row_wise"),
    "three PEs": dict(pe="column_wise", num_cubes=1, num_pes=3),
    "two cubes, five PEs": dict(cube="row_wise", pe="column_wise", num_cubes=2, num_pes=5),
}


def double(p, n, tl):
    v = tl.load(p, shape=(n,), dtype="f16")
    tl.store(p, v + v)


class TestMembers:
    def test_shape_dtype_name(self, ctx):
        t = ctx.zeros((4, 8), dtype="f16", dp=one_pe(), name="weights")
        assert t.shape == (4, 8) and type(t.shape) is tuple
        assert t.dtype == "f16" and type(t.dtype) is str
        assert t.name == "weights"
        assert t.itemsize == 2 and t.nbytes == 64

    def test_defaults(self, ctx):
        t = ctx.zeros((4, 8), dp=one_pe())
        assert t.dtype == "f16"
        assert type(t.name) is str and t.name

    def test_names_need_not_be_unique(self, ctx):
        a = ctx.zeros((1, 8), dp=one_pe(), name="x")
        b = ctx.zeros((1, 8), dp=one_pe(), name="x")
        assert a.name == b.name == "x"
        assert a._handle.va_base != b._handle.va_base

    def test_a_list_as_shape(self, ctx):
        assert ctx.zeros([2, 3], dp=one_pe()).shape == (2, 3)

    @pytest.mark.parametrize(
        "dtype, size",
        [("f16", 2), ("bf16", 2), ("f32", 4), ("i8", 1), ("i32", 4), ("f8e4m3", 1), ("f8e5m2", 1)],
    )
    def test_dtypes(self, ctx, dtype, size):
        t = ctx.zeros((2, 8), dtype=dtype, dp=one_pe())
        assert t.dtype == dtype and t.itemsize == size and t.nbytes == 16 * size
        assert t.numpy().shape == (2, 8)

    @pytest.mark.parametrize(
        "alias, size", [("fp16", 2), ("float16", 2), ("fp32", 4), ("float32", 4), ("bfloat16", 2),
                        ("int8", 1), ("int32", 4)]
    )
    def test_aliases(self, ctx, alias, size):
        assert ctx.zeros((1, 8), dtype=alias, dp=one_pe()).itemsize == size

    def test_all_members_are_of_one_class(self, ctx):
        assert type(ctx.zeros((1, 8), dp=one_pe())) is Tensor
        assert type(ctx.empty((1, 8), dtype="f16", dp=one_pe(), name="e")) is Tensor
        assert type(ctx.from_numpy(np.zeros((1, 8), np.float16))) is Tensor

    def test_va(self, ctx):
        t = ctx.zeros((1, 8), dp=one_pe())
        assert type(t.va) is int and t.va == t._handle.va_base != 0

    def test_one_axis_counts_as_a_row(self, ctx):
        t = ctx.zeros((64,), dtype="f16", dp=pe_columns())
        assert t.shape == (64,)
        assert [s.offset_bytes for s in t._handle.shards] == [16 * i for i in range(8)]
        t.copy_(ctx.from_numpy(np.arange(64, dtype=np.float16)))
        assert t.numpy().shape == (64,) and (t.numpy() == np.arange(64)).all()

    def test_empty_takes_keywords(self, ctx):
        t = ctx.empty((2, 4), dtype="f32", dp=one_pe(), name="e")
        assert t.shape == (2, 4) and t.dtype == "f32" and t.name == "e"
        t.copy_(ctx.from_numpy(np.ones((2, 4), np.float32)))
        assert (t.numpy() == 1).all()


class TestHostTensors:
    def test_from_numpy(self, ctx):
        a = random((4, 8))
        t = ctx.from_numpy(a)
        assert t._handle is None
        assert t.shape == (4, 8) and t.dtype == "f16"
        assert (t.numpy() == a).all() and (t.data == a).all()

    @pytest.mark.parametrize(
        "np_dtype, dtype",
        [(np.float16, "f16"), (np.float32, "f32"), (np.int8, "i8"), (np.int32, "i32")],
    )
    def test_supported_dtypes(self, ctx, np_dtype, dtype):
        a = np.arange(6).reshape(2, 3).astype(np_dtype)
        t = ctx.from_numpy(a)
        assert t.dtype == dtype
        assert t.numpy().dtype == np_dtype and (t.numpy() == a).all()

    @pytest.mark.parametrize("np_dtype", [np.complex64, np.complex128, "U4", object, "M8[s]"])
    def test_unsupported_dtypes(self, ctx, np_dtype):
        with pytest.raises(ValueError, match="unsupported numpy dtype"):
            ctx.from_numpy(np.zeros((2, 2)).astype(np_dtype))

    def test_any_layout(self, ctx):
        a = random((8, 6), 1)
        for view in (a.T, a[::2], a[:, ::-1], np.asfortranarray(a), a[2:5, 1:4]):
            assert (ctx.from_numpy(view).numpy() == view).all()
            assert (put(ctx, view).numpy() == view).all()

    def test_read_only_and_foreign_byte_order(self, ctx):
        a = random((2, 8))
        a.flags.writeable = False
        assert (put(ctx, a).numpy() == a).all()
        swapped = a.astype(">f2")
        assert (ctx.from_numpy(swapped).numpy() == a).all()

    def test_the_class_itself(self, ctx):
        t = Tensor(shape=(2, 4), dtype="f16", name="host")
        assert t.shape == (2, 4) and t.dtype == "f16" and t.name == "host"
        assert t._handle is None
        t._host_buffer = np.arange(8, dtype=np.float16).reshape(2, 4)
        assert (t.numpy() == np.arange(8).reshape(2, 4)).all()
        assert (t[1, 0:2] == [4, 5]).all()
        target = ctx.zeros((2, 4), dp=one_pe())
        target.copy_(t)
        assert (target.numpy() == t._host_buffer).all()

    def test_the_class_needs_no_context(self):
        t = Tensor(shape=(2, 4), dtype="f32", name="host")
        assert t.itemsize == 4 and t.nbytes == 32

    def test_slices_of_a_host_tensor(self, ctx):
        t = ctx.from_numpy(np.arange(8, dtype=np.float16).reshape(2, 4))
        t[0, 0:2] = 9
        assert (t.numpy()[0] == [9, 9, 2, 3]).all()


class TestContents:
    @pytest.mark.parametrize("name", POLICIES)
    @pytest.mark.parametrize("shape", [(32, 64), (7, 13), (1, 5)])
    def test_copied_in_and_read_back(self, ctx, name, shape):
        a = random(shape, 5)
        t = put(ctx, a, DPPolicy(**POLICIES[name]))
        assert t.numpy().tobytes() == a.tobytes()
        assert t.data.tobytes() == a.tobytes()

    def test_zeros_are_zeros_for_host_and_kernels(self, ctx):
        x = ctx.zeros((1, 64), dp=one_pe(), name="x")
        y = put(ctx, np.ones((1, 64), np.float16))
        assert (x.numpy() == 0).all()
        ctx.launch("k", lambda s, d, tl: tl.store(d, tl.load(s, (64,), "f16")), x, y)
        assert (y.numpy() == 0).all()

    def test_indexing(self, ctx):
        a = random((16, 64), 2)
        t = put(ctx, a, DPPolicy(cube="row_wise", pe="column_wise"))
        for key in [
            (0, slice(0, 4)), (3, 5), 7, slice(2, 9), (slice(None), 3), (slice(1, 15, 3), -1),
            (slice(None), slice(10, 50)), Ellipsis, (-1, slice(None, None, -2)), (Ellipsis, 0),
        ]:
            got = t[key]
            assert np.shape(got) == a[key].shape, key
            assert (np.asarray(got) == a[key]).all(), key
        assert t[0, 0:4].shape == (4,)
        assert isinstance(t[0, 0:4], np.ndarray)

    def test_indexing_out_of_range(self, ctx):
        t = ctx.zeros((2, 4), dp=one_pe())
        with pytest.raises(IndexError):
            t[2, 0]
        with pytest.raises(IndexError):
            t[0, 0, 0]

    def test_assigning(self, ctx):
        a = random((16, 64), 2)
        t = put(ctx, a, DPPolicy(cube="row_wise", pe="column_wise"))
        for key, value in [
            ((0, slice(0, 4)), 3.0), ((1, 5), 7), (slice(2, 4), 1.5), (5, np.arange(64)),
            ((slice(None), slice(10, 50)), 0.25), ((slice(6, 9), slice(3, 7)), np.ones((3, 4))),
            ((slice(9, 12), slice(0, 5)), np.arange(5)),
        ]:
            t[key] = value
            a[key] = value
            assert t.numpy().tobytes() == a.tobytes(), key
        t[...] = 2
        assert (t.numpy() == 2).all()

    def test_a_range_over_several_shards(self, ctx):
        t = ctx.zeros((1, 64), dp=pe_columns())
        t[0, 4:60] = 5.0
        want = np.zeros((1, 64))
        want[0, 4:60] = 5
        assert (t.numpy() == want).all()

    def test_assigning_is_seen_by_kernels(self, ctx):
        t = ctx.zeros((1, 8), dp=one_pe())
        t[0, :] = 4
        ctx.launch("k", double, t, 8)
        assert (t.numpy() == 8).all()

    def test_all_copies_of_a_replicated_tensor_are_assigned(self, ctx):
        t = ctx.zeros((1, 8), dp=DPPolicy(num_cubes=2))
        t[0, 2:4] = 3
        out = ctx.zeros((16, 8), dp=DPPolicy(cube="row_wise", pe="row_wise", num_cubes=2))

        def kernel(src, dst, tl):
            row = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
            tl.store(dst + row * 16, tl.load(src, shape=(8,), dtype="f16"))

        ctx.launch("k", kernel, t, out)
        assert (out.numpy() == [0, 0, 3, 3, 0, 0, 0, 0]).all()

    def test_repr(self, ctx):
        t = put(ctx, np.ones((1, 8), np.float16), name="ones")
        text = repr(t)
        assert re.match(r"tensor\(name='?ones'?, shape=\(1, 8\), dtype='?f16'?, "
                        r"mean=1, norm=2\.828", text), text

    def test_repr_of_a_host_tensor(self, ctx):
        assert "shape=(2, 2)" in repr(ctx.from_numpy(np.ones((2, 2), np.float16)))

    def test_bf16_leaves_as_uint16(self, ctx):
        t = ctx.zeros((1, 4), dtype="bf16", dp=one_pe())
        t[0, :] = 1.5
        assert t.numpy().dtype == np.uint16
        assert (t.numpy() == 0x3FC0).all()

    def test_numpy_gives_an_array_of_ones_own(self, ctx):
        t = put(ctx, np.ones((1, 8), np.float16))
        a = t.numpy()
        a[...] = 9
        assert (t.numpy() == 1).all()

    def test_an_array_outlives_its_tensor_and_context(self):
        with make_context() as ctx:
            t = put(ctx, np.ones((1, 8), np.float16))
            a = t.numpy()
            del t
        assert (a == 1).all()


class TestCopy:
    def test_it_returns_its_target(self, ctx):
        t = ctx.zeros((1, 8), dp=one_pe())
        assert t.copy_(ctx.from_numpy(np.ones((1, 8), np.float16))) is t

    def test_from_a_deployed_tensor_of_another_layout(self, ctx):
        a = random((16, 64), 8)
        source = put(ctx, a, DPPolicy(cube="row_wise", pe="column_wise"))
        for policy in POLICIES.values():
            target = ctx.zeros((16, 64), dp=DPPolicy(**policy))
            target.copy_(source)
            assert target.numpy().tobytes() == a.tobytes()

    def test_from_anything_with_numpy(self, ctx):
        class Other:
            def numpy(self):
                return np.full((1, 8), 6, np.float16)

        t = ctx.zeros((1, 8), dp=one_pe())
        t.copy_(Other())
        assert (t.numpy() == 6).all()

    def test_another_dtype_is_converted(self, ctx):
        t = ctx.zeros((1, 8), dtype="f16", dp=one_pe())
        t.copy_(ctx.from_numpy(np.arange(8, dtype=np.float32).reshape(1, 8)))
        assert t.numpy().dtype == np.float16 and (t.numpy() == np.arange(8)).all()

    def test_shapes_must_match(self, ctx):
        t = ctx.zeros((1, 8), dp=one_pe())
        with pytest.raises(ValueError, match="copy_ shape mismatch"):
            t.copy_(ctx.from_numpy(np.zeros((2, 8), np.float16)))
        with pytest.raises(ValueError, match="copy_ shape mismatch"):
            t.copy_(ctx.zeros((8, 1), dp=one_pe()))

    def test_the_target_must_be_deployed(self, ctx):
        host = Tensor(shape=(1, 8), dtype="f16", name="host")
        with pytest.raises(RuntimeError):
            host.copy_(ctx.from_numpy(np.zeros((1, 8), np.float16)))

    def test_it_takes_simulated_time(self, ctx):
        t = ctx.zeros((1, 1 << 16), dp=one_pe())
        t.numpy()
        before = ctx.engine._env.now
        t.copy_(ctx.from_numpy(np.zeros((1, 1 << 16), np.float16)))
        t.numpy()
        assert ctx.engine._env.now - before > (1 << 17) / 64  # 64 GB/s to the SIP

    def test_the_source_may_change_afterwards(self, ctx):
        a = np.ones((1, 8), np.float16)
        t = ctx.zeros((1, 8), dp=one_pe())
        t.copy_(ctx.from_numpy(a))
        a[...] = 5
        assert (t.numpy() == 1).all()


class TestShards:
    def test_host_tensors_have_none(self, ctx):
        assert ctx.from_numpy(np.zeros((1, 8), np.float16))._handle is None

    def test_order_and_attributes(self, ctx):
        t = ctx.zeros((16, 64), dp=DPPolicy(cube="row_wise", pe="column_wise"))
        shards = t._handle.shards
        assert isinstance(shards, list)
        assert [(s.sip, s.cube, s.pe) for s in shards] == [
            (0, c, p) for c in range(16) for p in range(8)
        ]
        for s in shards:
            assert s.nbytes == 16 and s.pa > 0
            assert s.offset_bytes == s.cube * 128 + s.pe * 16
        assert len({s.pa for s in shards}) == 128
        assert type(t._handle.va_base) is int and t._handle.va_base != 0

    def test_replicas_begin_at_the_same_offset(self, ctx):
        t = ctx.zeros((4, 4), dp=DPPolicy())
        assert {(s.offset_bytes, s.nbytes) for s in t._handle.shards} == {(0, 32)}
        assert len(t._handle.shards) == 128

    def test_device(self, ctx):
        ctx.ahbm.set_device(1)
        t = ctx.zeros((1, 8), dp=one_pe())
        assert t._handle.shards[0].sip == 1
        ctx.ahbm.set_device(0)
        t[0, 0:4] = 3  # where it lives
        assert (t.numpy() == [[3, 3, 3, 3, 0, 0, 0, 0]]).all()
        assert t._handle.shards[0].sip == 1

    def test_allocators(self, bare_ctx):
        bare_ctx.zeros((1, 8), dp=one_pe())
        assert len(bare_ctx._allocators)
        for key in bare_ctx._allocators:
            assert isinstance(key, tuple) and len(key) == 3
            assert all(isinstance(k, int) for k in key)
            assert bare_ctx._allocators[key] is not None

    def test_to_is_metadata(self, ctx):
        t = put(ctx, np.ones((1, 8), np.float16))
        before = ctx.engine._env.now
        assert isinstance(t.to(), Tensor)
        t.to(sip=1, cube=2, target_pe=3)
        t.to(dp_policy=DPPolicy(pe="column_wise"))
        assert ctx.engine._env.now == before


class TestBarriers:
    def test_the_table(self):
        names = tensor_module._HOST_READ_BARRIERS
        assert isinstance(names, frozenset)
        assert names >= {"numpy", "data", "__getitem__", "__repr__", "copy_"}
        for name in names:
            assert hasattr(Tensor, name), name

    @pytest.mark.parametrize(
        "read", [lambda t: t.numpy(), lambda t: t.data, lambda t: t[...]],
        ids=["numpy", "data", "[]"],
    )
    def test_reads_wait_for_the_callers_work(self, ctx, read):
        t = put(ctx, np.ones((1, 8), np.float16))
        ctx.launch("k", double, t, 8, _defer_wait=True)
        assert (read(t) == 2).all()

    def test_repr_and_copy_wait(self, ctx):
        t = put(ctx, np.ones((1, 8), np.float16))
        ctx.launch("k", double, t, 8, _defer_wait=True)
        assert "mean=2" in repr(t)
        ctx.launch("k", double, t, 8, _defer_wait=True)
        u = ctx.zeros((1, 8), dp=one_pe())
        u.copy_(t)
        assert (u.numpy() == 4).all()

    def test_pending_waits_is_one_list(self, ctx):
        waits = ctx._pending_worker_waits
        assert type(waits) is list and waits == []
        assert ctx._pending_worker_waits is waits
        ctx.zeros((1, 8), dp=one_pe())
        assert ctx._pending_worker_waits == [] and ctx._pending_worker_waits is waits

    def test_foreign_entries_are_left_alone(self, ctx):
        t = ctx.zeros((4, 8), dp=one_pe(), name="x")
        marker = object()
        ctx._pending_worker_waits.append(marker)
        assert t.shape == (4, 8) and t.dtype == "f16" and t.name == "x"
        assert t.itemsize == 2 and t.nbytes == 64
        assert ctx._pending_worker_waits == [marker]
        ctx._pending_worker_waits.clear()
        assert ctx._pending_worker_waits == []

    def test_empty_when_a_worker_goes_on(self, ctx):
        seen = []

        def worker(rank):
            ctx.ahbm.set_device(rank)
            t = ctx.zeros((1, 8), dp=one_pe())
            seen.append(list(ctx._pending_worker_waits))
            ctx.launch("k", double, t, 8)
            seen.append(list(ctx._pending_worker_waits))
            t.numpy()
            seen.append(list(ctx._pending_worker_waits))

        ctx.multiprocessing.spawn(worker, nprocs=2)
        assert seen == [[]] * 6

    def test_numpy_can_be_replaced(self, ctx, monkeypatch):
        calls = []
        plain = Tensor.numpy

        def spy(self):
            calls.append(self.name)
            return plain(self)

        monkeypatch.setattr(Tensor, "numpy", spy)

        def worker(rank):
            ctx.ahbm.set_device(rank)
            t = ctx.zeros((1, 8), dp=one_pe(), name=f"x{rank}")
            assert (t.numpy() == 0).all()

        ctx.multiprocessing.spawn(worker, nprocs=2)
        assert sorted(calls) == ["x0", "x1"]
        Tensor.numpy = plain
        assert (ctx.zeros((1, 8), dp=one_pe()).numpy() == 0).all()
        assert sorted(calls) == ["x0", "x1"]

    def test_other_attributes_can_be_replaced(self, monkeypatch, ctx):
        monkeypatch.setattr(Tensor, "nbytes", property(lambda self: -1))
        assert ctx.zeros((1, 8), dp=one_pe()).nbytes == -1
