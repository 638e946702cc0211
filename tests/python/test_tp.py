"""Tensor parallel layers."""

import importlib

import numpy as np
import pytest

import kernbench.tp as tp
from kernbench.runtime_api.multiprocessing import SpawnException
from kernbench.runtime_api.tensor import Tensor
from kernbench.tp import parallel_state, primitives
from support import make_context, one_pe, put, random


@pytest.fixture
def group(write_ccl):
    write_ccl("intercube_allreduce")
    with make_context() as ctx:
        ctx.distributed.init_process_group(backend="ahbm")
        tp.initialize_model_parallel(2)
        yield ctx


def on_ranks(ctx, body, n=2, set_device=True):
    results = {}

    def worker(rank):
        if set_device:
            ctx.ahbm.set_device(rank)
        results[rank] = body(rank)

    ctx.multiprocessing.spawn(worker, args=(), nprocs=n)
    return [results[r] for r in range(n)]


def close(got, want, tolerance=1e-2):
    want = np.asarray(want, np.float32)
    return np.allclose(got.astype(np.float32), want, atol=tolerance * max(1, np.abs(want).max()))


class TestState:
    def test_world_size(self, group):
        assert tp.get_tensor_model_parallel_world_size() == 2
        assert tp.get_tensor_model_parallel_rank() == 0

    def test_by_keyword(self, write_ccl):
        write_ccl("intercube_allreduce")
        with make_context() as ctx:
            ctx.distributed.init_process_group(backend="ahbm")
            tp.initialize_model_parallel(tensor_model_parallel_size=2)
            assert tp.get_tensor_model_parallel_world_size() == 2

    def test_the_rank_is_the_workers_without_set_device(self, group):
        got = on_ranks(group, lambda r: tp.get_tensor_model_parallel_rank(), set_device=False)
        assert got == [0, 1]

    def test_before_initialization(self, ctx):
        with pytest.raises(RuntimeError):
            tp.get_tensor_model_parallel_world_size()

    def test_without_any_context(self):
        with pytest.raises(RuntimeError):
            tp.get_tensor_model_parallel_world_size()
        with pytest.raises(RuntimeError):
            tp.initialize_model_parallel(2)

    def test_before_the_process_group(self, ctx):
        with pytest.raises(RuntimeError):
            tp.initialize_model_parallel(2)

    def test_a_size_that_does_not_divide(self, write_ccl):
        write_ccl("intercube_allreduce")
        with make_context() as ctx:
            ctx.distributed.init_process_group(backend="ahbm")
            for error in (NotImplementedError, ValueError):
                with pytest.raises(error):
                    tp.initialize_model_parallel(3)

    def test_a_size_that_divides(self, write_ccl, machine_file):
        write_ccl("intercube_allreduce")
        with make_context(machine_file(4, "ring_1d")) as ctx:
            ctx.distributed.init_process_group(backend="ahbm")
            tp.initialize_model_parallel(2)
            assert tp.get_tensor_model_parallel_world_size() == 2
            assert on_ranks(ctx, lambda r: tp.get_tensor_model_parallel_rank(), 4) == [0, 1, 0, 1]

    def test_each_context_anew(self, write_ccl):
        write_ccl("intercube_allreduce")
        for _ in range(3):
            with make_context() as ctx:
                with pytest.raises(RuntimeError):
                    tp.get_tensor_model_parallel_world_size()
                ctx.distributed.init_process_group(backend="ahbm")
                tp.initialize_model_parallel(2)

    def test_the_module_of_the_state(self, group):
        assert parallel_state.get_tensor_model_parallel_world_size() == 2
        assert parallel_state.get_tensor_model_parallel_rank() == 0
        parallel_state._reset_for_tests()
        with pytest.raises(RuntimeError):
            parallel_state.get_tensor_model_parallel_world_size()
        parallel_state.initialize_model_parallel(2)
        assert tp.get_tensor_model_parallel_world_size() == 2

    def test_reset_without_a_context(self):
        parallel_state._reset_for_tests()

    def test_the_context_entered_last(self, write_ccl):
        write_ccl("intercube_allreduce")
        with make_context() as outer:
            outer.distributed.init_process_group(backend="ahbm")
            tp.initialize_model_parallel(2)
            with make_context():
                with pytest.raises(RuntimeError):
                    tp.get_tensor_model_parallel_world_size()
            assert tp.get_tensor_model_parallel_world_size() == 2


class TestLayers:
    def test_column_members(self, group):
        def body(rank):
            layer = tp.ColumnParallelLinear(32, 64, bias=False, dtype="f16", torch=group)
            assert type(layer.weight) is Tensor
            assert layer.weight.shape == (32, 32) and layer.weight.dtype == "f16"
            assert layer.bias is None
            assert (layer.in_features, layer.out_features) == (32, 64)
            assert layer.k_local == 32 and layer.dtype == "f16"
            assert (layer.weight.numpy() == 0).all()
            return [(s.sip, s.cube, s.pe) for s in layer.weight._handle.shards]

        assert on_ranks(group, body) == [[(0, 0, 0)], [(1, 0, 0)]]

    def test_row_members(self, group):
        def body(rank):
            layer = tp.RowParallelLinear(64, 32, torch=group)
            assert layer.weight.shape == (32, 32) and layer.bias is None
            assert layer.n_local == 32
            assert (layer.in_features, layer.out_features) == (64, 32)
            return [(s.sip, s.cube, s.pe) for s in layer.weight._handle.shards]

        assert on_ranks(group, body) == [[(0, 0, 0)], [(1, 0, 0)]]

    def test_torch_is_required(self, group):
        with pytest.raises(TypeError):
            tp.ColumnParallelLinear(32, 64)
        with pytest.raises(TypeError):
            tp.RowParallelLinear(32, 64, bias=False, dtype="f16")

    def test_sizes_that_do_not_divide(self, group):
        with pytest.raises(ValueError, match="33"):
            tp.ColumnParallelLinear(32, 33, torch=group)
        with pytest.raises(ValueError, match="33"):
            tp.RowParallelLinear(33, 32, torch=group)

    def test_layers_need_initialization(self, ctx):
        with pytest.raises(RuntimeError):
            tp.ColumnParallelLinear(32, 64, torch=ctx)

    @pytest.mark.parametrize("m, k, n", [(4, 32, 64), (1, 64, 32), (16, 128, 128)])
    def test_column(self, group, m, k, n):
        x, w = random((m, k), 1, scale=0.5), random((k, n), 2, scale=0.5)

        def body(rank):
            layer = tp.ColumnParallelLinear(k, n, torch=group)
            local = w[:, rank * n // 2:(rank + 1) * n // 2]
            layer.weight.copy_(group.from_numpy(np.ascontiguousarray(local)))
            y = layer.forward(put(group, x))
            assert type(y) is Tensor and y.shape == (m, n // 2) and y.dtype == "f16"
            assert [(s.sip, s.cube, s.pe) for s in y._handle.shards] == [(rank, 0, 0)]
            return y.numpy()

        got = np.concatenate(on_ranks(group, body), axis=1)
        assert close(got, x.astype(np.float32) @ w.astype(np.float32))

    @pytest.mark.parametrize("m, k, n", [(4, 64, 32), (1, 128, 16)])
    def test_row(self, group, m, k, n):
        x, w = random((m, k), 1, scale=0.5), random((k, n), 2, scale=0.5)

        def body(rank):
            layer = tp.RowParallelLinear(k, n, torch=group)
            part = slice(rank * k // 2, (rank + 1) * k // 2)
            layer.weight.copy_(group.from_numpy(np.ascontiguousarray(w[part])))
            y = layer.forward(put(group, np.ascontiguousarray(x[:, part])))
            assert y.shape == (m, n)
            return y.numpy()

        first, second = on_ranks(group, body)
        assert first.tobytes() == second.tobytes()
        assert close(first, x.astype(np.float32) @ w.astype(np.float32))

    def test_zero_weights_give_zero(self, group):
        def body(rank):
            a = tp.ColumnParallelLinear(32, 64, torch=group)
            b = tp.RowParallelLinear(64, 32, torch=group)
            return b.forward(a.forward(put(group, random((4, 32))))).numpy()

        for got in on_ranks(group, body):
            assert (got == 0).all()

    def test_mlp(self, group):
        x = random((8, 64), 1, scale=0.3)
        w1, w2 = random((64, 128), 2, scale=0.1), random((128, 64), 3, scale=0.1)

        def body(rank):
            up = tp.ColumnParallelLinear(64, 128, torch=group)
            down = tp.RowParallelLinear(128, 64, torch=group)
            part = slice(rank * 64, rank * 64 + 64)
            up.weight.copy_(group.from_numpy(np.ascontiguousarray(w1[:, part])))
            down.weight.copy_(group.from_numpy(np.ascontiguousarray(w2[part])))
            return down.forward(up.forward(put(group, x))).numpy()

        first, second = on_ranks(group, body)
        assert first.tobytes() == second.tobytes()
        assert close(first, x.astype(np.float32) @ w1.astype(np.float32) @ w2.astype(np.float32))

    def test_with_a_ring(self, write_ccl, machine_file):
        write_ccl("ring_allreduce_tcm")
        x, w = random((2, 32), 1), random((32, 8), 2)
        with make_context(machine_file(4, "ring_1d")) as ctx:
            ctx.distributed.init_process_group(backend="ahbm")
            tp.initialize_model_parallel(4)

            def body(rank):
                layer = tp.RowParallelLinear(32, 8, torch=ctx)
                part = slice(rank * 8, rank * 8 + 8)
                layer.weight.copy_(ctx.from_numpy(np.ascontiguousarray(w[part])))
                return layer.forward(put(ctx, np.ascontiguousarray(x[:, part]))).numpy()

            got = on_ranks(ctx, body, 4)
        assert len({g.tobytes() for g in got}) == 1
        assert close(got[0], x.astype(np.float32) @ w.astype(np.float32))

    def test_f32(self, group):
        def body(rank):
            layer = tp.ColumnParallelLinear(16, 32, dtype="f32", torch=group)
            layer.weight.copy_(group.from_numpy(np.ones((16, 16), np.float32)))
            x = put(group, np.ones((2, 16), np.float32))
            y = layer.forward(x)
            assert y.dtype == "f32"
            return y.numpy()

        for got in on_ranks(group, body):
            assert (got == 16).all()

    def test_launch_names(self, group):
        def body(rank):
            a = tp.ColumnParallelLinear(32, 64, torch=group)
            b = tp.RowParallelLinear(64, 32, torch=group)
            b.forward(a.forward(put(group, random((4, 32)))))

        on_ranks(group, body)
        names = {t["name"] for _, t in group.engine._results.values()
                 if isinstance(t, dict) and "name" in t}
        assert {"col_parallel_gemm", "row_parallel_gemm"} <= names

    def test_calls_that_are_watched(self, group, monkeypatch):
        """Row adds up by the context's own all_reduce and launches by its launch."""
        calls = []
        all_reduce, launch = group.distributed.all_reduce, group.launch
        monkeypatch.setattr(group.distributed, "all_reduce", lambda tensor, op="sum": (
            calls.append("all_reduce"), all_reduce(tensor, op=op))[1])
        monkeypatch.setattr(group, "launch", lambda name, *args, **kwargs: (
            calls.append(name), launch(name, *args, **kwargs))[1])

        def body(rank):
            layer = tp.RowParallelLinear(64, 32, torch=group)
            layer.forward(put(group, random((4, 32))))

        on_ranks(group, body)
        assert sorted(calls) == ["all_reduce"] * 2 + ["row_parallel_gemm"] * 2

    def test_in_a_spawn_with_a_failure(self, group):
        def body(rank):
            tp.ColumnParallelLinear(32, 33, torch=group)

        with pytest.raises(SpawnException) as caught:
            on_ranks(group, body)
        assert sorted(caught.value.errors) == [0, 1]

    def test_the_kernel(self, ctx):
        from kernbench.tp.kernels import _gemm_kernel

        a, b = random((4, 16), 1), random((16, 8), 2)
        out = ctx.zeros((4, 8), dp=one_pe())
        ctx.launch("gemm", _gemm_kernel, put(ctx, a), put(ctx, b), out, 4, 16, 8)
        assert close(out.numpy(), a.astype(np.float32) @ b.astype(np.float32))


class TestPrimitives:
    def test_copy(self, group):
        def body(rank):
            x = put(group, np.full((2, 8), rank, np.float16))
            return primitives.copy_to_tp_region(x).numpy()[0, 0]

        assert on_ranks(group, body) == [0, 1]

    def test_reduce(self, group):
        def body(rank):
            x = put(group, np.full((2, 8), rank + 1, np.float16))
            return primitives.reduce_from_tp_region(x, group).numpy()[0, 0]

        assert on_ranks(group, body) == [3, 3]

    def test_scatter_and_gather(self, group):
        a = np.arange(16, dtype=np.float16).reshape(2, 8)

        def body(rank):
            part = primitives.scatter_to_tp_region(put(group, a), group)
            assert (part.numpy() == a[:, rank * 4:rank * 4 + 4]).all()
            return primitives.gather_from_tp_region(part, group).numpy()

        for got in on_ranks(group, body):
            assert (got == a).all()

    def test_modules(self):
        assert importlib.import_module("kernbench.tp.mappings")
