"""The process group and its collectives."""

import numpy as np
import pytest

from kernbench.policy.placement.dp import DPPolicy
from kernbench.runtime_api.multiprocessing import SpawnException
from support import cube_rows, make_context, one_pe, put, random


def on_ranks(ctx, body, nprocs=None):
    """body(rank) in a worker of each rank, on its device; the results in the order of ranks."""
    results = {}

    def worker(rank):
        ctx.ahbm.set_device(rank)
        results[rank] = body(rank)

    n = nprocs or ctx.distributed.get_world_size()
    ctx.multiprocessing.spawn(worker, nprocs=n)
    return [results[r] for r in range(n)]


@pytest.fixture
def group(write_ccl):
    write_ccl("intercube_allreduce")
    with make_context() as ctx:
        ctx.distributed.init_process_group(backend="ahbm")
        yield ctx


class TestBefore:
    @pytest.mark.parametrize(
        "call",
        [
            lambda d, t: d.get_world_size(), lambda d, t: d.get_rank(),
            lambda d, t: d.get_backend(), lambda d, t: d.barrier(),
            lambda d, t: d.all_reduce(t, op="sum"),
        ],
        ids=["get_world_size", "get_rank", "get_backend", "barrier", "all_reduce"],
    )
    def test_calls_fail(self, ctx, call):
        with pytest.raises(RuntimeError):
            call(ctx.distributed, ctx.zeros((1, 8), dp=one_pe()))

    def test_is_initialized(self, ctx, write_ccl):
        write_ccl("intercube_allreduce")
        assert ctx.distributed.is_initialized() is False
        ctx.distributed.init_process_group(backend="ahbm")
        assert ctx.distributed.is_initialized() is True


class TestGroup:
    def test_what_it_says(self, group):
        d = group.distributed
        assert d.get_world_size() == 2
        assert d.get_rank() == 0
        assert d.get_backend() == "ahbm"

    def test_backend_by_position_and_by_default(self, write_ccl):
        write_ccl("intercube_allreduce")
        for arguments in (("ahbm",), ()):
            with make_context() as ctx:
                ctx.distributed.init_process_group(*arguments)
                assert ctx.distributed.get_backend() == "ahbm"

    def test_an_unknown_backend(self, ctx, write_ccl):
        write_ccl("intercube_allreduce")
        with pytest.raises((ValueError, RuntimeError), match="nccl"):
            ctx.distributed.init_process_group(backend="nccl")

    def test_rank_is_the_workers(self, group):
        assert on_ranks(group, lambda r: group.distributed.get_rank()) == [0, 1]
        assert group.distributed.get_rank() == 0

    def test_it_takes_simulated_time(self, ctx, write_ccl):
        write_ccl("intercube_allreduce")
        before = ctx.engine._env.now
        ctx.distributed.init_process_group(backend="ahbm")
        assert ctx.engine._env.now > before

    def test_once_a_context(self, group):
        with pytest.raises(RuntimeError):
            group.distributed.init_process_group(backend="ahbm")

    def test_after_tensors_exist(self, ctx, write_ccl):
        write_ccl("intercube_allreduce")
        t = put(ctx, np.ones((16, 8), np.float16), cube_rows())
        ctx.distributed.init_process_group(backend="ahbm")
        assert (t.numpy() == 1).all()

    def test_ccl_yaml_is_read_at_that_moment(self, tmp_path, monkeypatch, write_ccl):
        write_ccl("mesh_allreduce_4")
        with make_context() as ctx:
            write_ccl("tree_allreduce_7")
            ctx.distributed.init_process_group(backend="ahbm")
            assert ctx.distributed.get_world_size() == 7

    def test_without_a_file(self, ctx, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        ctx.distributed.init_process_group(backend="ahbm")
        assert ctx.distributed.get_world_size() == 2

    @pytest.mark.parametrize(
        "algorithm, defaults, world",
        [
            ("intercube_allreduce", {}, 2),
            ("ring_allreduce_tcm", {}, 2),
            ("mesh_allreduce_4", {}, 4),
            ("tree_allreduce_7", {}, 7),
            ("ring_allreduce_tcm", {"world_size": 8}, 8),
            ("mesh_allreduce_4", {"world_size": 8}, 4),
        ],
    )
    def test_world_size(self, ctx, write_ccl, algorithm, defaults, world):
        write_ccl(algorithm, **defaults)
        ctx.distributed.init_process_group(backend="ahbm")
        assert ctx.distributed.get_world_size() == world
        assert ctx.distributed.get_rank() == 0

    def test_world_size_is_the_sip_count(self, write_ccl, machine_file):
        write_ccl("intercube_allreduce")
        with make_context(machine_file(4, "torus_2d")) as ctx:
            ctx.distributed.init_process_group(backend="ahbm")
            assert ctx.distributed.get_world_size() == 4

    def test_a_missing_algorithm(self, ctx, write_ccl):
        write_ccl("no_such_entry")
        with pytest.raises((ValueError, KeyError), match="no_such_entry"):
            ctx.distributed.init_process_group(backend="ahbm")

    def test_a_second_context(self, write_ccl):
        write_ccl("intercube_allreduce")
        for _ in range(2):
            with make_context() as ctx:
                assert not ctx.distributed.is_initialized()
                ctx.distributed.init_process_group(backend="ahbm")


class TestMeanings:
    """Three meanings through one call."""

    def test_rows_of_cubes(self, group):
        def body(rank):
            t = group.zeros((16, 8), dtype="f16", dp=cube_rows(), name=f"t{rank}")
            t.copy_(group.from_numpy(np.full((16, 8), rank + 1, np.float16)))
            group.distributed.all_reduce(t, op="sum")
            return t.numpy()

        for got in on_ranks(group, body):
            assert (got == 16 * 3).all()

    def test_rows_of_cubes_that_differ(self, group):
        rows = np.arange(16, dtype=np.float16)[:, None] * np.ones((1, 8), np.float16)

        def body(rank):
            t = put(group, rows * (rank + 1), cube_rows())
            group.distributed.all_reduce(t, op="sum")
            return t.numpy()

        for got in on_ranks(group, body):
            assert (got == 120 * 3).all()

    def test_one_shard_per_rank_with_the_same_file(self, group):
        arrays = [random((4, 32), r) for r in range(2)]

        def body(rank):
            t = put(group, arrays[rank])
            group.distributed.all_reduce(t)
            return t.numpy()

        first, second = on_ranks(group, body)
        assert first.tobytes() == second.tobytes()
        assert np.allclose(first, arrays[0] + arrays[1], atol=2e-3)

    def test_one_shard_per_rank_with_a_ring(self, write_ccl, machine_file):
        write_ccl("ring_allreduce_tcm")
        arrays = [random((1, 8), r) for r in range(4)]
        with make_context(machine_file(4, "ring_1d")) as ctx:
            ctx.distributed.init_process_group(backend="ahbm")

            def body(rank):
                t = put(ctx, arrays[rank])
                ctx.distributed.all_reduce(t, op="sum")
                return t.numpy()

            got = on_ranks(ctx, body)
        assert len({g.tobytes() for g in got}) == 1
        assert np.allclose(got[0], np.sum(arrays, axis=0), atol=1e-2)

    @pytest.mark.parametrize("world, policy", [
        (8, dict(pe="column_wise", num_cubes=1)),
        (5, dict(pe="column_wise", num_cubes=1, num_pes=5)),
        (16, dict(cube="column_wise", pe="column_wise", num_cubes=2)),
    ])
    def test_one_driver_whose_ranks_are_pes(self, write_ccl, world, policy):
        write_ccl("ring_allreduce_tcm", {"ring_allreduce_tcm": {"world_size": world}})
        with make_context() as ctx:
            d = ctx.distributed
            d.init_process_group(backend="ahbm")
            assert (d.get_rank(), d.get_world_size()) == (0, world)
            a = np.repeat(np.arange(1, world + 1, dtype=np.float16), 8).reshape(1, -1)
            t = put(ctx, a, DPPolicy(**policy))
            d.all_reduce(t, op="sum")
            assert (t.numpy() == sum(range(1, world + 1))).all()

    def test_the_result_is_visible_when_it_returns(self, group):
        def body(rank):
            t = put(group, np.full((1, 8), rank + 1, np.float16))
            group.distributed.all_reduce(t, op="sum")
            assert group._pending_worker_waits == []
            return t.numpy()[0, 0], t[0, 3], t.data[0, 7]

        assert on_ranks(group, body) == [(3, 3, 3)] * 2

    def test_it_replaces_the_tensor_in_its_own_layout(self, group):
        arrays = [random((16, 64), r) for r in range(2)]
        policy = DPPolicy(cube="row_wise", pe="column_wise")

        def body(rank):
            t = put(group, arrays[rank], policy)
            shards = [(s.cube, s.pe, s.offset_bytes) for s in t._handle.shards]
            group.distributed.all_reduce(t)
            assert [(s.cube, s.pe, s.offset_bytes) for s in t._handle.shards] == shards
            return t.numpy()

        for got in on_ranks(group, body):
            assert np.allclose(got, arrays[0] + arrays[1], atol=4e-3)

    def test_many_in_a_row(self, group):
        def body(rank):
            t = put(group, np.full((1, 64), rank, np.float16))
            for _ in range(5):
                group.distributed.all_reduce(t)
            return t.numpy()[0, 0]

        assert on_ranks(group, body) == [16, 16]

    def test_outside_workers_one_rank(self, write_ccl, machine_file):
        write_ccl("intercube_allreduce")
        with make_context(machine_file(1, "ring_1d")) as ctx:
            ctx.distributed.init_process_group(backend="ahbm")
            t = put(ctx, np.full((16, 8), 1, np.float16), cube_rows())
            ctx.distributed.all_reduce(t)
            assert (t.numpy() == 16).all()


class TestMistakes:
    @pytest.mark.parametrize("op", ["median", "bitand", ""])
    def test_unknown_operations(self, group, op):
        with pytest.raises((NotImplementedError, SpawnException)) as caught:
            on_ranks(group, lambda r: group.distributed.all_reduce(
                put(group, np.ones((1, 8), np.float16)), op=op))
        errors = getattr(caught.value, "errors", {0: caught.value})
        assert all(isinstance(e, NotImplementedError) for e in errors.values())

    def test_an_unknown_operation_outside_workers(self, group):
        with pytest.raises(NotImplementedError):
            group.distributed.all_reduce(group.zeros((1, 8), dp=one_pe()), op="nonsense")

    def test_a_host_tensor(self, group):
        t = group.from_numpy(np.ones((1, 8), np.float16))
        t.name = "never_deployed"
        with pytest.raises(RuntimeError, match="never_deployed"):
            group.distributed.all_reduce(t, op="sum")

    def test_a_rank_that_does_not_join(self, group):
        def body(rank):
            if rank == 0:
                group.distributed.all_reduce(put(group, np.ones((1, 8), np.float16)))

        with pytest.raises((SpawnException, RuntimeError)) as caught:
            on_ranks(group, body)
        assert "1" in str(caught.value)


class TestOtherOps:
    @pytest.mark.parametrize(
        "op, f", [("sum", np.add), ("max", np.maximum), ("min", np.minimum), ("prod", np.multiply),
                  ("avg", lambda a, b: (a + b) / 2)]
    )
    def test_all_reduce(self, group, op, f):
        arrays = [random((1, 64), r) for r in range(2)]

        def body(rank):
            t = put(group, arrays[rank])
            group.distributed.all_reduce(t, op=op)
            return t.numpy()

        for got in on_ranks(group, body):
            assert np.allclose(got, f(*arrays), atol=4e-3)

    def test_reduce_op_names(self, group):
        d = group.distributed
        if not hasattr(d, "ReduceOp"):
            pytest.skip("operations are given as text")
        got = on_ranks(group, lambda r: (
            lambda t: (d.all_reduce(t, op=d.ReduceOp.MAX), t.numpy())[1])(
                put(group, np.full((1, 8), r, np.float16))))
        assert all((g == 1).all() for g in got)

    def test_broadcast(self, group):
        def body(rank):
            t = put(group, np.full((1, 8), rank + 1, np.float16))
            group.distributed.broadcast(t, src=1)
            return t.numpy()

        assert all((g == 2).all() for g in on_ranks(group, body))

    def test_reduce(self, group):
        def body(rank):
            t = put(group, np.full((1, 8), rank + 1, np.float16))
            group.distributed.reduce(t, dst=1)
            return t.numpy()

        assert (on_ranks(group, body)[1] == 3).all()

    def test_all_gather_into_tensor(self, group):
        def body(rank):
            t = put(group, np.full((1, 8), rank + 1, np.float16))
            out = group.zeros((2, 8), dp=one_pe())
            group.distributed.all_gather_into_tensor(out, t)
            return out.numpy()

        for got in on_ranks(group, body):
            assert (got == [[1] * 8, [2] * 8]).all()

    def test_all_gather_of_a_list(self, group):
        def body(rank):
            t = put(group, np.full((1, 8), rank + 1, np.float16))
            outs = [group.zeros((1, 8), dp=one_pe()) for _ in range(2)]
            group.distributed.all_gather(outs, t)
            return [o.numpy()[0, 0] for o in outs]

        assert on_ranks(group, body) == [[1, 2], [1, 2]]

    def test_reduce_scatter_tensor(self, group):
        def body(rank):
            t = put(group, np.arange(16, dtype=np.float16).reshape(2, 8) + rank)
            out = group.zeros((1, 8), dp=one_pe())
            group.distributed.reduce_scatter_tensor(out, t, op="sum")
            return out.numpy()[0]

        first, second = on_ranks(group, body)
        assert (first == 2 * np.arange(8) + 1).all()
        assert (second == 2 * np.arange(8, 16) + 1).all()

    def test_all_to_all_single(self, group):
        def body(rank):
            t = put(group, np.array([[10 * rank] * 8, [10 * rank + 1] * 8], np.float16))
            out = group.zeros((2, 8), dp=one_pe())
            group.distributed.all_to_all_single(out, t)
            return out.numpy()[:, 0].tolist()

        assert on_ranks(group, body) == [[0, 10], [1, 11]]

    def test_send_and_recv(self, group):
        def body(rank):
            t = put(group, np.full((1, 8), 5 + rank, np.float16))
            if rank == 0:
                group.distributed.send(t, dst=1)
            else:
                group.distributed.recv(t, src=0)
            return t.numpy()[0, 0]

        assert on_ranks(group, body) == [5, 5]

    def test_asynchronous(self, group):
        def body(rank):
            t = put(group, np.full((1, 8), rank + 1, np.float16))
            work = group.distributed.all_reduce(t, op="sum", async_op=True)
            work.wait()
            return t.numpy()[0, 0]

        assert on_ranks(group, body) == [3, 3]

    def test_barrier(self, group):
        times = on_ranks(group, lambda r: (group.distributed.barrier(), group.engine._env.now)[1])
        assert len(set(times)) == 1

    def test_destroy(self, group):
        group.distributed.destroy_process_group()
        assert group.distributed.is_initialized() is False
        with pytest.raises(RuntimeError):
            group.distributed.get_rank()
        group.distributed.init_process_group(backend="ahbm")
        assert group.distributed.is_initialized()
