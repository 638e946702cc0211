"""Devices, workers and spawn."""

import numpy as np
import pytest

from kernbench.runtime_api.multiprocessing import SpawnException
from support import make_context, one_pe, put


def double(p, n, tl):
    v = tl.load(p, shape=(n,), dtype="f16")
    tl.store(p, v + v)


class TestDevices:
    def test_unset(self, ctx):
        assert ctx.ahbm.current_device() is None
        assert ctx.accelerator.current_device_index() is None
        assert ctx.zeros((1, 8), dp=one_pe())._handle.shards[0].sip == 0
        assert ctx.ahbm.current_device() is None

    def test_two_names_for_one_state(self, ctx):
        ctx.ahbm.set_device(1)
        assert ctx.ahbm.current_device() == 1
        assert ctx.accelerator.current_device_index() == 1
        ctx.accelerator.set_device_index(0)
        assert ctx.ahbm.current_device() == 0

    @pytest.mark.parametrize("device", [2, -1, 99])
    def test_one_that_is_not_there(self, ctx, device):
        with pytest.raises((ValueError, RuntimeError, IndexError)):
            ctx.ahbm.set_device(device)

    def test_numbers_are_the_machines(self):
        with make_context(device="sip:1") as ctx:
            ctx.ahbm.set_device(1)
            assert ctx.zeros((1, 8), dp=one_pe())._handle.shards[0].sip == 1

    def test_elsewhere_than_the_contexts_device(self):
        with make_context(device="sip:1") as ctx:
            with pytest.raises((ValueError, RuntimeError)):
                ctx.ahbm.set_device(0)
                ctx.zeros((1, 8), dp=one_pe())

    def test_each_worker_has_its_own(self, ctx):
        seen = {}

        def worker(rank):
            before = ctx.ahbm.current_device()
            ctx.ahbm.set_device(rank)
            t = ctx.zeros((1, 8), dp=one_pe())
            ctx.launch("k", double, t, 8)
            seen[rank] = (before, ctx.ahbm.current_device(), t._handle.shards[0].sip)

        ctx.multiprocessing.spawn(worker, nprocs=2)
        assert seen == {0: (None, 0, 0), 1: (None, 1, 1)}
        assert ctx.ahbm.current_device() is None


class TestSpawn:
    def test_ranks_and_arguments(self, ctx):
        seen = []
        ctx.multiprocessing.spawn(
            lambda rank, a, b: seen.append((rank, a, b)), args=("x", [1]), nprocs=3
        )
        assert sorted(seen) == [(0, "x", [1]), (1, "x", [1]), (2, "x", [1])]

    def test_one_worker_by_default(self, ctx):
        seen = []
        ctx.multiprocessing.spawn(seen.append)
        assert seen == [0]

    def test_keywords_that_are_ignored(self, ctx):
        seen = []
        ctx.multiprocessing.spawn(seen.append, args=(), nprocs=2, join=True, daemon=False,
                                  start_method="spawn")
        assert sorted(seen) == [0, 1]

    @pytest.mark.parametrize("nprocs", [1, 2, 7])
    def test_without_a_process_group(self, ctx, nprocs):
        results = {}

        def worker(rank):
            ctx.ahbm.set_device(rank % 2)
            t = ctx.zeros((1, 8), dp=one_pe(), name=f"x{rank}")
            t[0, :] = rank
            ctx.launch("k", double, t, 8)
            results[rank] = t.numpy()[0, 0]

        ctx.multiprocessing.spawn(worker, nprocs=nprocs)
        assert results == {r: 2 * r for r in range(nprocs)}

    def test_all_ranks_submit_before_time_passes(self, ctx):
        events = []

        def worker(rank):
            ctx.ahbm.set_device(rank)
            t = ctx.zeros((1, 8), dp=one_pe())
            events.append(("ready", rank, ctx.engine._env.now))
            ctx.launch("k", double, t, 8)
            events.append(("done", rank, ctx.engine._env.now))

        ctx.multiprocessing.spawn(worker, nprocs=2)
        assert [e[:2] for e in events] == [
            ("ready", 0), ("ready", 1), ("done", 0), ("done", 1)
        ]

    def test_workers_write_outside(self, ctx):
        out = [None] * 4

        def worker(rank):
            out[rank] = rank * rank

        ctx.multiprocessing.spawn(worker, nprocs=4)
        assert out == [0, 1, 4, 9]

    def test_two_spawns(self, ctx):
        seen = []
        for _ in range(2):
            ctx.multiprocessing.spawn(seen.append, nprocs=2)
        assert sorted(seen) == [0, 0, 1, 1]

    def test_ranks_outside(self, ctx):
        t = ctx.zeros((1, 8), dp=one_pe())
        ctx.launch("k", double, t, 8)
        assert (t.numpy() == 0).all()

    def test_nested(self, ctx):
        def worker(rank):
            ctx.multiprocessing.spawn(lambda r: None, nprocs=1)

        with pytest.raises(SpawnException) as caught:
            ctx.multiprocessing.spawn(worker, nprocs=1)
        assert isinstance(caught.value.errors[0], RuntimeError)

    def test_cooperative_yield(self, ctx):
        order = []

        def worker(rank):
            for i in range(3):
                order.append((i, rank))
                ctx.distributed.cooperative_yield()

        ctx.multiprocessing.spawn(worker, nprocs=2)
        assert order == [(i, r) for i in range(3) for r in range(2)]

    def test_a_tensor_made_outside_is_read_in_a_worker(self, ctx):
        t = put(ctx, np.full((1, 8), 3, np.float16))
        seen = []

        def worker(rank):
            ctx.ahbm.set_device(rank)
            seen.append(t.numpy()[0, 0])

        ctx.multiprocessing.spawn(worker, nprocs=2)
        assert seen == [3, 3]


class TestFailures:
    def test_message_and_errors(self, ctx):
        def worker(rank):
            if rank == 1:
                raise ValueError("x")

        with pytest.raises(SpawnException) as caught:
            ctx.multiprocessing.spawn(worker, nprocs=2)
        e = caught.value
        assert isinstance(e, RuntimeError)
        assert str(e) == "spawn failed on ranks [1]: rank 1 raised ValueError('x')"
        assert list(e.errors) == [1] and isinstance(e.errors[1], ValueError)
        assert e.__cause__ is e.errors[1]

    def test_several(self, ctx):
        def worker(rank):
            if rank != 1:
                raise KeyError(rank)

        with pytest.raises(SpawnException) as caught:
            ctx.multiprocessing.spawn(worker, nprocs=3)
        e = caught.value
        assert sorted(e.errors) == [0, 2]
        assert "[0, 2]" in str(e) and "KeyError(0)" in str(e) and "KeyError(2)" in str(e)
        assert e.__cause__ is e.errors[0]

    def test_an_assertion(self, ctx):
        def worker(rank):
            assert rank == 0, "only rank 0"

        with pytest.raises(SpawnException, match="only rank 0") as caught:
            ctx.multiprocessing.spawn(worker, nprocs=2)
        assert isinstance(caught.value.errors[1], AssertionError)

    def test_those_that_are_aborted_are_not_listed(self, ctx, write_ccl):
        write_ccl("intercube_allreduce")
        ctx.distributed.init_process_group(backend="ahbm")
        cleaned = []

        def worker(rank):
            ctx.ahbm.set_device(rank)
            try:
                if rank == 1:
                    raise ValueError("root cause")
                ctx.distributed.barrier()
            finally:
                cleaned.append(rank)

        with pytest.raises(SpawnException) as caught:
            ctx.multiprocessing.spawn(worker, nprocs=2)
        assert list(caught.value.errors) == [1]
        assert sorted(cleaned) == [0, 1]

    def test_cleanups_of_others_run(self, ctx):
        log = []

        def slow(p, tl):
            v = tl.load(p, shape=(4096,), dtype="f16")
            for _ in range(50):
                v = tl.exp(v)
            tl.store(p, v)

        class Guard:
            def __enter__(self):
                return self

            def __exit__(self, kind, value, trace):
                log.append(("exit", kind is not None))

        def worker(rank):
            ctx.ahbm.set_device(rank)
            t = ctx.zeros((1, 4096), dp=one_pe())
            with Guard():
                if rank == 1:
                    raise ValueError("x")
                ctx.launch("slow", slow, t)
                log.append("not reached")

        with pytest.raises(SpawnException):
            ctx.multiprocessing.spawn(worker, nprocs=2)
        assert log == [("exit", True), ("exit", True)]

    def test_the_context_stays_usable(self, ctx):
        def bad(rank):
            ctx.ahbm.set_device(rank)
            t = ctx.zeros((1, 8), dp=one_pe())
            ctx.launch("k", double, t, 8, _defer_wait=True)
            raise ValueError("x")

        for _ in range(3):
            with pytest.raises(SpawnException):
                ctx.multiprocessing.spawn(bad, nprocs=2)
            assert ctx._pending_worker_waits == []
            seen = []
            ctx.multiprocessing.spawn(seen.append, nprocs=2)
            assert sorted(seen) == [0, 1]
            t = put(ctx, np.ones((1, 8), np.float16))
            ctx.launch("k", double, t, 8)
            assert (t.numpy() == 2).all()

    def test_a_fault_of_a_kernel_in_a_worker(self, ctx):
        def worker(rank):
            ctx.ahbm.set_device(rank)
            t = ctx.zeros((1, 8), dp=one_pe())
            if rank == 1:
                ctx.launch("bad", lambda p, tl: tl.load(0, shape=(8,), dtype="f16"), t)

        with pytest.raises(SpawnException) as caught:
            ctx.multiprocessing.spawn(worker, nprocs=2)
        assert list(caught.value.errors) == [1]
        assert "bad" in str(caught.value.errors[1])

    def test_an_exception_with_arguments_of_its_own(self, ctx):
        class Mine(Exception):
            def __init__(self, a, b):
                super().__init__(a, b)
                self.b = b

        def worker(rank):
            raise Mine(rank, "b")

        with pytest.raises(SpawnException) as caught:
            ctx.multiprocessing.spawn(worker, nprocs=1)
        assert caught.value.errors[0].b == "b"
        frames = []
        tb = caught.value.errors[0].__traceback__
        while tb:
            frames.append(tb.tb_frame.f_code.co_name)
            tb = tb.tb_next
        assert frames[-1] == "worker"

    def test_workers_that_catch_go_on(self, ctx):
        seen = []

        def worker(rank):
            try:
                raise ValueError
            except ValueError:
                seen.append(rank)

        ctx.multiprocessing.spawn(worker, nprocs=2)
        assert sorted(seen) == [0, 1]
