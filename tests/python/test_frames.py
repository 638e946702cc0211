"""Kernels and workers in Python on stacks of their own: exceptions, tracebacks, generators,
recursion, garbage collection, tracers, threads, many kernels at once."""

import contextlib
import faulthandler
import gc
import io
import sys
import threading
import time
import traceback
import weakref

import numpy as np
import pytest

import kernbench as kb
from kernbench.policy.placement.dp import DPPolicy
from kernbench.runtime_api.multiprocessing import SpawnException
from support import make_context, one_pe, pe_columns, put, python

ALL_PES = dict(cube="row_wise", pe="column_wise")


@pytest.fixture
def ring(write_ccl):
    write_ccl("ring_allreduce_tcm")
    with make_context() as ctx:
        ctx.install_ipcq(algorithm="ring_allreduce_tcm", world_size_override=8)
        yield ctx


def on_pes(ctx, kernel, *args):
    ctx.launch("k", kernel, ctx.zeros((1, 64), dp=pe_columns()), *args)


def exchange(tl, value):
    """Switches to the other kernels and back."""
    tl.send(dir="E", src=value)
    return tl.recv(dir="W", shape=value.shape, dtype=value.dtype)


class TestExceptions:
    def test_traceback_leads_to_the_kernels_line(self, ctx):
        def helper(tl):
            raise LookupError("deep down")

        def kernel(p, tl):
            helper(tl)

        with pytest.raises(LookupError) as caught:
            on_pes(ctx, kernel)
        names = [f.name for f in traceback.extract_tb(caught.value.__traceback__)]
        assert names[-2:] == ["kernel", "helper"]
        assert "deep down" in traceback.format_exc() or True
        text = "".join(traceback.format_exception(caught.value))
        assert "test_frames.py" in text and "sip0.cube0.pe" in text

    def test_notes_name_the_pe_and_the_kernel(self, ctx):
        def kernel(p, tl):
            if tl.program_id(0) == 5:
                raise LookupError("x")

        with pytest.raises(LookupError) as caught:
            on_pes(ctx, kernel)
        notes = " ".join(getattr(caught.value, "__notes__", [])) + str(caught.value)
        assert "sip0.cube0.pe5" in notes and "k" in notes

    def test_a_fault_names_everything(self, ctx):
        def kernel(p, tl):
            v = tl.load(p, shape=(8,), dtype="f16")
            tl.store(p + (1 << 40), v)  # here

        with pytest.raises(kb.KernelError) as caught:
            ctx.launch("my_kernel", kernel, ctx.zeros((1, 8), dp=one_pe()))
        e = caught.value
        line = kernel.__code__.co_firstlineno + 2
        assert f"test_frames.py:{line}" in str(e)
        assert "my_kernel" in str(e) and "sip0.cube0.pe0" in str(e) and "ns" in str(e)
        assert e.kernel in ("my_kernel", "kernel") and e.pe == "sip0.cube0.pe0"
        assert e.time_ns > 0 and e.line == line and e.file.endswith("test_frames.py")
        assert [f.lineno for f in traceback.extract_tb(e.__traceback__)][-1] == line

    def test_the_line_is_that_of_the_helper(self, ctx):
        def helper(tl, p):
            return tl.load(p + (1 << 40), shape=(8,), dtype="f16")

        with pytest.raises(kb.KernelError) as caught:
            on_pes(ctx, lambda p, tl: helper(tl, p))
        assert caught.value.line == helper.__code__.co_firstlineno + 1

    def test_a_fault_unwinds_through_finally_and_with(self, ctx):
        log = []

        @contextlib.contextmanager
        def guard(name):
            try:
                yield
            finally:
                log.append(name)

        def kernel(p, tl):
            with guard("outer"):
                try:
                    with guard("inner"):
                        tl.load(p + (1 << 40), shape=(8,), dtype="f16")
                        log.append("not reached")
                finally:
                    log.append("finally")

        with pytest.raises(kb.KernelError):
            ctx.launch("k", kernel, ctx.zeros((1, 8), dp=one_pe()))
        assert log == ["inner", "finally", "outer"]

    def test_a_fault_is_final(self, ctx):
        log = []

        def kernel(p, tl):
            for _ in range(3):
                try:
                    tl.load(p + (1 << 40), shape=(8,), dtype="f16")
                except Exception as e:
                    log.append(type(e).__name__)
            log.append("end")

        with pytest.raises(kb.KernelError):
            ctx.launch("k", kernel, ctx.zeros((1, 8), dp=one_pe()))
        assert log == ["KernelError"]  # what follows is not caught by `except Exception`

    def test_an_exception_of_the_kernels_own_is_caught_in_it(self, ring):
        def kernel(p, tl):
            v = tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16")
            for i in range(5):
                try:
                    w = exchange(tl, v)
                    if i % 2:
                        raise KeyError(i)
                    v = w
                except KeyError as e:
                    assert e.args == (i,)
                    v = exchange(tl, v)
                    assert sys.exc_info()[1] is e
                assert sys.exc_info() == (None, None, None)

        on_pes(ring, kernel)

    def test_exception_state_is_the_kernels_own(self, ring):
        """Each kernel handles its own exception while the others run."""
        seen = []

        def kernel(p, tl):
            pe = tl.program_id(0)
            v = tl.load(p + pe * 16, shape=(8,), dtype="f16")
            try:
                raise ValueError(pe)
            except ValueError:
                exchange(tl, v)
                seen.append(sys.exc_info()[1].args == (pe,))
                try:
                    raise RuntimeError from None
                except RuntimeError as inner:
                    exchange(tl, v)
                    seen.append(inner.__context__.args == (pe,))

        on_pes(ring, kernel)
        assert seen == [True] * 16

    def test_the_callers_exception_state_stays(self, ctx):
        try:
            raise OSError("mine")
        except OSError as mine:
            on_pes(ctx, lambda p, tl: None)
            assert sys.exc_info()[1] is mine

    def test_the_first_of_several(self, ctx):
        def kernel(p, tl):
            raise ValueError(tl.program_id(0))

        with pytest.raises(ValueError):
            on_pes(ctx, kernel)

    @pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, MemoryError,
                                      StopIteration, BaseException])
    def test_any_exception(self, kind):
        def kernel(p, tl):
            raise kind()

        with make_context() as ctx:
            with pytest.raises(kind):
                on_pes(ctx, kernel)

    def test_after_an_exception_the_next_context_works(self):
        for _ in range(20):
            with make_context() as ctx:
                with pytest.raises(ZeroDivisionError):
                    on_pes(ctx, lambda p, tl: 1 / 0)

    def test_another_launch_after_an_exception(self, ctx):
        with pytest.raises(ZeroDivisionError):
            on_pes(ctx, lambda p, tl: 1 / 0)
        t = put(ctx, np.ones((1, 8), np.float16))
        ctx.launch("k", lambda p, tl: tl.store(p, tl.load(p, (8,), "f16") * 2), t)
        assert (t.numpy() == 2).all()

    def test_others_are_unwound(self, ring):
        log = []

        def kernel(p, tl):
            try:
                if tl.program_id(0) == 0:
                    raise ValueError("x")
                tl.recv(dir="E", shape=(8,), dtype="f16")
            finally:
                log.append(tl.program_id(0))

        with pytest.raises(ValueError):
            on_pes(ring, kernel)
        assert sorted(log) == list(range(8))

    def test_in_a_worker(self, ctx):
        def worker(rank):
            ctx.ahbm.set_device(rank)
            try:
                ctx.launch("k", lambda p, tl: 1 / 0, ctx.zeros((1, 8), dp=one_pe()))
            except ZeroDivisionError:
                return
            raise AssertionError("not raised")

        try:
            ctx.multiprocessing.spawn(worker, nprocs=2)
        except SpawnException as e:
            assert all(isinstance(x, ZeroDivisionError) for x in e.errors.values())

    def test_an_error_of_an_argument(self, ctx):
        for call in (
            lambda p, tl: tl.load(), lambda p, tl: tl.load(p, shape="x"),
            lambda p, tl: tl.load(p, shape=(8,), nonsense=1), lambda p, tl: tl.store(p),
            lambda p, tl: tl.exp(3, 4), lambda p, tl: tl.program_id("x"),
            lambda p, tl: tl.load("x", shape=(8,)), lambda p, tl: tl.store(p, object()),
            lambda p, tl: tl.load(p, shape=(8,)) + object(),
        ):
            with pytest.raises(TypeError):
                ctx.launch("k", call, ctx.zeros((1, 8), dp=one_pe()))

    def test_an_unknown_attribute_of_tl(self, ctx):
        with pytest.raises(AttributeError, match="lood"):
            ctx.launch("k", lambda p, tl: tl.lood(p), ctx.zeros((1, 8), dp=one_pe()))

    @pytest.mark.parametrize("shape", [(-1,), (1, 2, 3, 4, 5), (1 << 60,), (1.5,)])
    def test_bad_shapes(self, ctx, shape):
        with pytest.raises((RuntimeError, ValueError, TypeError, OverflowError)):
            ctx.launch("k", lambda p, tl: tl.load(p, shape=shape, dtype="f16"),
                       ctx.zeros((1, 8), dp=one_pe()))

    def test_a_bad_dtype(self, ctx):
        with pytest.raises((ValueError, TypeError)):
            ctx.launch("k", lambda p, tl: tl.load(p, shape=(8,), dtype="f17"),
                       ctx.zeros((1, 8), dp=one_pe()))


class TestSwitching:
    def test_locals_survive(self, ring):
        def kernel(p, tl):
            pe = tl.program_id(0)
            kept = {i: [pe] * i for i in range(20)}
            v = tl.load(p + pe * 16, shape=(8,), dtype="f16")
            for i in range(20):
                v = exchange(tl, v)
                assert kept[i] == [pe] * i

        on_pes(ring, kernel)

    def test_generators_that_switch(self, ring):
        def exchanges(tl, v, n):
            for i in range(n):
                v = exchange(tl, v)
                yield i, v

        def kernel(p, tl):
            v = tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16")
            assert [i for i, _ in exchanges(tl, v, 10)] == list(range(10))
            g = exchanges(tl, v, 10)
            next(g)
            g.close()

        on_pes(ring, kernel)

    def test_a_generator_passed_between_kernels(self, ring):
        shared = iter(range(1000))
        seen = []

        def kernel(p, tl):
            v = tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16")
            for _ in range(5):
                seen.append(next(shared))
                v = exchange(tl, v)

        on_pes(ring, kernel)
        assert sorted(seen) == list(range(40))

    def test_callbacks_from_c_that_switch(self, ring):
        """sorted() calls back into Python, which switches, with C frames between."""
        def kernel(p, tl):
            v = tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16")

            def key(x):
                exchange(tl, v)
                return -x

            assert sorted([3, 1, 2], key=key) == [3, 2, 1]
            assert list(map(key, [1, 2])) == [-1, -2]

        on_pes(ring, kernel)

    def test_classes_decorators_comprehensions(self, ring):
        class Accumulator:
            def __init__(self, tl, value):
                self.tl, self.value = tl, value

            def __iadd__(self, other):
                self.value = self.value + other
                return self

            def __getitem__(self, i):
                return exchange(self.tl, self.value)

        def kernel(p, tl):
            acc = Accumulator(tl, tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16"))
            acc += acc.value
            assert len([acc[i] for i in range(3)]) == 3

        on_pes(ring, kernel)

    def test_async_functions_and_their_loops(self, ring):
        async def step(tl, v):
            return exchange(tl, v)

        def drive(c):
            try:
                c.send(None)
            except StopIteration as e:
                return e.value

        def kernel(p, tl):
            v = tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16")
            for _ in range(3):
                v = drive(step(tl, v))

        on_pes(ring, kernel)

    def test_context_variables(self, ring):
        import contextvars

        var = contextvars.ContextVar("var", default=None)
        seen = []

        def kernel(p, tl):
            pe = tl.program_id(0)
            v = tl.load(p + pe * 16, shape=(8,), dtype="f16")
            token = var.set(pe)
            exchange(tl, v)
            seen.append(var.get() == pe)
            var.reset(token)

        on_pes(ring, kernel)
        assert seen == [True] * 8
        assert var.get() is None

    def test_nested_launch_in_a_worker(self, ctx):
        def worker(rank):
            ctx.ahbm.set_device(rank)
            t = ctx.zeros((1, 64), dp=pe_columns())
            for i in range(5):
                ctx.launch(f"k{i}", lambda p, tl: tl.store(
                    p + tl.program_id(0) * 16,
                    tl.load(p + tl.program_id(0) * 16, (8,), "f16") + 1), t)
            assert (t.numpy() == 5).all()

        ctx.multiprocessing.spawn(worker, nprocs=2)

    def test_a_launch_inside_a_kernel_is_refused(self, ctx):
        t = ctx.zeros((1, 8), dp=one_pe())

        def kernel(p, tl):
            ctx.launch("inner", lambda q, tl: None, t)

        with pytest.raises(RuntimeError):
            ctx.launch("outer", kernel, t)

    def test_host_calls_inside_a_kernel_do_not_crash(self):
        for call in (
            lambda ctx, t: t.numpy(), lambda ctx, t: ctx.zeros((1, 8), dp=one_pe()),
            lambda ctx, t: ctx.multiprocessing.spawn(lambda r: None, nprocs=1),
            lambda ctx, t: ctx.__exit__(None, None, None),
            lambda ctx, t: ctx.distributed.init_process_group("ahbm"),
            lambda ctx, t: t.copy_(t), lambda ctx, t: repr(t),
            lambda ctx, t: ctx.distributed.cooperative_yield(),
        ):
            ctx = make_context()
            t = ctx.zeros((1, 8), dp=one_pe())
            try:
                ctx.launch("k", lambda p, tl: call(ctx, t) and None, t)
            except (RuntimeError, ValueError):
                pass

    def test_another_context_inside_a_kernel(self, ctx):
        """Refused, or it works; the outer kernel goes on in both cases."""
        with make_context() as other:
            t, u = ctx.zeros((1, 8), dp=one_pe()), other.zeros((1, 8), dp=one_pe())

            def inner(q, tl):
                tl.store(q, tl.load(q, (8,), "f16") + 1)

            def kernel(p, tl):
                v = tl.load(p, (8,), "f16")
                try:
                    other.launch("inner", inner, u)
                except RuntimeError:
                    pass
                tl.store(p, v + 2)

            ctx.launch("outer", kernel, t)
            assert (t.numpy() == 2).all() and (u.numpy() <= 1).all()


class TestRecursion:
    def test_deep_recursion_in_a_kernel(self, ring):
        def down(tl, v, depth):
            if depth == 0:
                return exchange(tl, v)
            return down(tl, v, depth - 1)

        def kernel(p, tl):
            v = tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16")
            down(tl, v, 200)

        on_pes(ring, kernel)

    def test_endless_recursion_is_an_error(self, ctx):
        def down(n):
            return down(n + 1) + 1

        with pytest.raises(RecursionError):
            on_pes(ctx, lambda p, tl: down(0))

    def test_endless_recursion_is_caught_in_the_kernel(self, ring):
        def down(n):
            return down(n + 1) + 1

        def kernel(p, tl):
            v = tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16")
            for _ in range(3):
                try:
                    down(0)
                except RecursionError:
                    v = exchange(tl, v)
                else:
                    raise AssertionError

        on_pes(ring, kernel)

    def test_endless_recursion_through_c(self, ctx):
        def down(n):
            return sorted([n, n], key=down)

        with pytest.raises(RecursionError):
            on_pes(ctx, lambda p, tl: down(0))

    def test_endless_recursion_through_repr(self, ctx):
        class Loop:
            def __repr__(self):
                return repr([self])

        with pytest.raises(RecursionError):
            on_pes(ctx, lambda p, tl: repr(Loop()))

    def test_endless_recursion_in_a_worker(self, ctx):
        def down(n):
            return down(n + 1) + 1

        with pytest.raises(SpawnException) as caught:
            ctx.multiprocessing.spawn(lambda r: down(0), nprocs=2)
        assert all(isinstance(e, RecursionError) for e in caught.value.errors.values())

    def test_deep_data(self, ctx):
        def kernel(p, tl):
            deep = []
            for _ in range(100000):
                deep = [deep]
            del deep

        on_pes(ctx, kernel)

    def test_the_callers_limit_stays(self, ctx):
        def depth():
            try:
                return depth() + 1
            except RecursionError:
                return 0

        before = depth()
        on_pes(ctx, lambda p, tl: depth())
        assert abs(depth() - before) <= 2

    def test_big_c_frames(self, ctx):
        """Things that use much C stack: regular expressions, parsing, compiling, json."""
        import ast
        import json
        import re

        def kernel(p, tl):
            re.compile("(a|b)*" * 50)
            re.match(r"(\w+\s*)+$", "word " * 20)
            ast.parse("(" * 50 + "1" + ")" * 50)
            json.dumps({"a": [[[[1, 2, {"b": 3.5}]]]]})
            compile("x = 1\n" * 100, "x", "exec")
            np.linalg.inv(np.eye(32))
            f"{3.14159:.30f}" + str(10 ** 500)

        on_pes(ctx, kernel)


class TestCollector:
    def test_collections_during_kernels(self, ring):
        class Node:
            pass

        def kernel(p, tl):
            v = tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16")
            for _ in range(10):
                a, b = Node(), Node()
                a.other, b.other, a.value = b, a, v
                del a, b
                gc.collect()
                v = exchange(tl, v)

        on_pes(ring, kernel)

    def test_a_low_threshold(self, ring):
        old = gc.get_threshold()
        gc.set_threshold(1, 1, 1)
        try:
            def kernel(p, tl):
                v = tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16")
                for _ in range(20):
                    x = [[i] for i in range(10)]
                    x.append(x)
                    v = exchange(tl, v)

            on_pes(ring, kernel)
        finally:
            gc.set_threshold(*old)

    def test_finalizers_that_use_tl(self, ring):
        ran = []

        class Closing:
            def __init__(self, tl, v):
                self.tl, self.v = tl, v

            def __del__(self):
                exchange(self.tl, self.v)
                ran.append(1)

        def kernel(p, tl):
            v = tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16")
            c = Closing(tl, v)
            del c

        on_pes(ring, kernel)
        assert len(ran) == 8

    def test_finalizers_in_another_kernel_or_later(self, ring):
        """A cycle that holds a value of a kernel is collected wherever the collector runs."""
        class Node:
            pass

        def kernel(p, tl):
            v = tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16")
            n = Node()
            n.me, n.value, n.tl = n, v, tl
            v = exchange(tl, v)
            gc.collect(0)

        on_pes(ring, kernel)
        gc.collect()

    def test_values_kept_after_the_context(self):
        kept = []
        with make_context() as ctx:
            ctx.launch("k", lambda p, tl: kept.extend([tl, tl.load(p, (8,), "f16")]),
                       ctx.zeros((1, 8), dp=one_pe()))
        del ctx
        gc.collect()
        assert kept[1].shape == (8,)
        kept.clear()
        gc.collect()

    def test_kernels_let_go_of_what_they_had(self, ctx):
        class Thing:
            pass

        thing = Thing()
        dead = weakref.ref(thing)

        def make(thing):
            def kernel(p, x, tl):
                local = thing
                assert local is x
            return kernel

        ctx.launch("k", make(thing), ctx.zeros((1, 8), dp=one_pe()), thing)
        del thing
        gc.collect()
        assert dead() is None

    def test_kernels_that_fail_let_go_too(self, ctx):
        class Thing:
            pass

        thing = Thing()
        dead = weakref.ref(thing)

        def run(thing):
            def kernel(p, tl):
                local = thing
                raise ValueError(local)

            with pytest.raises(ValueError):
                ctx.launch("k", kernel, ctx.zeros((1, 8), dp=one_pe()))

        run(thing)
        del thing
        gc.collect()
        assert dead() is None

    def test_kernels_that_are_abandoned(self):
        """A context that ends while kernels wait."""
        class Thing:
            pass

        things = [Thing() for _ in range(8)]
        dead = [weakref.ref(t) for t in things]
        log = []
        ctx = make_context()

        def kernel(p, mine, tl):
            try:
                local = mine[tl.program_id(0)]
                v = tl.load(p, (8,), "f16")
                for _ in range(1000):
                    v = tl.exp(v)
                tl.item(tl.sum(v, axis=0))
                assert local
            finally:
                log.append(1)

        ctx.launch("k", kernel, ctx.zeros((1, 64), dp=pe_columns()), things, _defer_wait=True)
        ctx.__exit__(None, None, None)
        del ctx, things, kernel
        gc.collect()
        assert all(d() is None for d in dead)


class TestTracers:
    def test_settrace(self, ring):
        lines = []

        def tracer(frame, event, arg):
            if frame.f_code.co_name == "kernel":
                lines.append((event, frame.f_lineno))
                return tracer
            return None

        def kernel(p, tl):
            v = tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16")
            for _ in range(3):
                v = exchange(tl, v)

        old = sys.gettrace()
        sys.settrace(tracer)
        threading.settrace(tracer)
        try:
            on_pes(ring, kernel)
        finally:
            sys.settrace(old)
            threading.settrace(None)
        assert sys.gettrace() is old
        first = kernel.__code__.co_firstlineno
        events = [event for event, _ in lines]
        assert events.count("call") == events.count("return") == 8
        for line, count in ((1, 8), (2, 32), (3, 24)):
            assert lines.count(("line", first + line)) == count

    def test_a_tracer_that_raises(self, ring):
        def tracer(frame, event, arg):
            if frame.f_code.co_name == "kernel" and event == "line":
                raise ZeroDivisionError("of the tracer")
            return tracer

        def kernel(p, tl):
            tl.load(p, shape=(8,), dtype="f16")

        old = sys.gettrace()
        sys.settrace(tracer)
        try:
            with pytest.raises(ZeroDivisionError, match="of the tracer"):
                on_pes(ring, kernel)
        finally:
            sys.settrace(old)
        on_pes(ring, kernel)

    def test_setprofile(self, ring):
        calls = []

        def profiler(frame, event, arg):
            calls.append(event)

        def kernel(p, tl):
            v = tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16")
            for _ in range(3):
                v = exchange(tl, v)

        sys.setprofile(profiler)
        try:
            on_pes(ring, kernel)
        finally:
            sys.setprofile(None)
        assert calls

    def test_a_tracer_set_inside_a_kernel(self, ring):
        def kernel(p, tl):
            v = tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16")
            sys.settrace(lambda *a: None)
            v = exchange(tl, v)
            sys.settrace(None)

        old = sys.gettrace()
        try:
            on_pes(ring, kernel)
        finally:
            sys.settrace(old)

    def test_cprofile(self, ring):
        import cProfile

        profile = cProfile.Profile()

        def kernel(p, tl):
            v = tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16")
            for _ in range(3):
                v = exchange(tl, v)

        profile.runcall(on_pes, ring, kernel)
        profile.create_stats()
        [calls] = [entry[1] for (_, _, name), entry in profile.stats.items() if name == "kernel"]
        assert calls == 8

    def test_a_debugger(self):
        """pdb in a kernel, with commands from a text."""
        done = python("-c", """
import io, pdb
import support
with support.make_context() as ctx:
    out = io.StringIO()
    def kernel(p, tl):
        pdb.Pdb(stdin=io.StringIO("where\\nnext\\np 6 * 7\\ncontinue\\n"), stdout=out).set_trace()
        x = tl.load(p, (8,), "f16")
        y = x + x
        tl.store(p, y)
    ctx.launch("k", kernel, ctx.zeros((1, 8), dp=support.one_pe()))
    print("42" in out.getvalue())
""")
        assert done.stdout.strip().endswith("True")

    def test_faulthandler(self, ring):
        import tempfile

        with tempfile.TemporaryFile() as f:
            def kernel(p, tl):
                v = tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16")
                exchange(tl, v)
                faulthandler.dump_traceback(f, all_threads=True)

            on_pes(ring, kernel)
            f.seek(0)
            assert b"in kernel" in f.read()

    def test_current_frames(self, ring):
        def kernel(p, tl):
            v = tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16")
            exchange(tl, v)
            frames = sys._current_frames()
            assert frames
            assert traceback.extract_stack()[-1].name == "kernel"
            assert sys._getframe().f_code.co_name == "kernel"

        on_pes(ring, kernel)

    def test_tracemalloc(self, ring):
        import tracemalloc

        def kernel(p, tl):
            v = tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16")
            x = [exchange(tl, v) for _ in range(3)]
            del x

        tracemalloc.start(10)
        try:
            on_pes(ring, kernel)
            tracemalloc.take_snapshot()
        finally:
            tracemalloc.stop()


class TestThreads:
    def test_contexts_in_two_threads(self):
        results = {}

        def work(i):
            with make_context() as ctx:
                t = put(ctx, np.full((1, 64), i, np.float16), pe_columns())
                for _ in range(5):
                    ctx.launch("k", lambda p, tl: tl.store(
                        p + tl.program_id(0) * 16,
                        tl.load(p + tl.program_id(0) * 16, (8,), "f16") + 1), t)
                results[i] = t.numpy()

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert all((results[i] == i + 5).all() for i in range(4))

    def test_other_threads_run_beside(self, ring):
        stop = threading.Event()
        counts = [0]

        def spin():
            while not stop.is_set():
                counts[0] += 1
                sum(range(100))

        old = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        thread = threading.Thread(target=spin)
        thread.start()
        try:
            def kernel(p, tl):
                v = tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16")
                for _ in range(200):
                    v = exchange(tl, v)
                    sum(range(1000))

            on_pes(ring, kernel)
        finally:
            stop.set()
            thread.join()
            sys.setswitchinterval(old)
        assert counts[0] > 0

    def test_threads_started_by_kernels(self, ring):
        results = []

        def kernel(p, tl):
            v = tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16")
            thread = threading.Thread(target=lambda: results.append(1))
            thread.start()
            exchange(tl, v)
            thread.join()

        on_pes(ring, kernel)
        assert len(results) == 8

    def test_the_kernels_thread_is_the_callers(self, ring):
        seen = set()

        def kernel(p, tl):
            exchange(tl, tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16"))
            seen.add(threading.get_ident())
            seen.add(threading.current_thread().ident)

        on_pes(ring, kernel)
        assert seen == {threading.get_ident()}

    def test_thread_locals(self, ring):
        local = threading.local()
        local.value = "host"

        def kernel(p, tl):
            exchange(tl, tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16"))
            getattr(local, "value", None)

        on_pes(ring, kernel)
        assert local.value == "host"

    def test_a_context_of_another_thread(self, ctx):
        """Used by one thread after the other; refusing is fine, a crash is not."""
        t = ctx.zeros((1, 8), dp=one_pe())
        errors = []

        def work():
            try:
                ctx.launch("k", lambda p, tl: None, t)
            except RuntimeError as e:
                errors.append(e)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        ctx.launch("k", lambda p, tl: None, t)

    def test_sleep_in_a_kernel(self, ring):
        def kernel(p, tl):
            time.sleep(0.001)
            exchange(tl, tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16"))

        on_pes(ring, kernel)

    def test_locks_in_kernels(self, ring):
        lock = threading.RLock()

        def kernel(p, tl):
            v = tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16")
            with lock:
                x = tl.program_id(0)
            exchange(tl, v)
            with lock:
                assert x == tl.program_id(0)

        on_pes(ring, kernel)

    def test_imports_in_kernels(self, ring, tmp_path, monkeypatch):
        (tmp_path / "imported_late.py").write_text("VALUE = 7\n")
        monkeypatch.syspath_prepend(str(tmp_path))

        def kernel(p, tl):
            import imported_late

            exchange(tl, tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16"))
            assert imported_late.VALUE == 7

        on_pes(ring, kernel)

    def test_fork(self, tmp_path):
        done = python("-c", """
import os, support
with support.make_context() as ctx:
    t = ctx.zeros((1, 8), dp=support.one_pe())
    ctx.launch("k", lambda p, tl: None, t)
pid = os.fork()
if pid == 0:
    with support.make_context() as ctx:
        t = ctx.zeros((1, 8), dp=support.one_pe())
        ctx.launch("k", lambda p, tl: tl.store(p, tl.load(p, (8,), "f16") + 1), t)
        os._exit(0 if (t.numpy() == 1).all() else 1)
print(os.waitpid(pid, 0)[1])
""")
        assert done.stdout.strip() == "0"

    def test_native_libraries_that_ensure_the_gil(self, ring):
        """ctypes callbacks call PyGILState_Ensure while the GIL is held."""
        import ctypes

        prototype = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int)
        native = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)

        def kernel(p, tl):
            v = tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16")
            held = prototype(lambda x: x + 1)
            free = native(lambda x: x + 2)
            for i in range(3):
                assert held(i) == i + 1
                v = exchange(tl, v)
                assert free(i) == i + 2
            state = ctypes.pythonapi.PyGILState_Ensure()
            ctypes.pythonapi.PyGILState_Release(state)

        on_pes(ring, kernel)


def launch_everywhere(ctx, kernel, sips):
    """The kernel on all PEs at the same time."""
    tensors = []
    for sip in range(sips):
        ctx.ahbm.set_device(sip)
        tensors.append(ctx.zeros((16, 8), dp=DPPolicy(**ALL_PES)))
    pending = []
    for t in tensors:
        pending += ctx.launch("k", kernel, t, _defer_wait=True)
    for handle, _, meta in pending:
        ctx.wait(handle, _meta=meta)


class TestMany:
    def test_all_pes_of_four_sips(self, machine_file):
        """512 kernels, most of them alive at once."""
        alive, most = [0], [0]

        def kernel(p, tl):
            alive[0] += 1
            most[0] = max(most[0], alive[0])
            v = tl.load(p, shape=(1,), dtype="f16")
            tl.item(tl.sum(v, axis=0))
            alive[0] -= 1

        with make_context(machine_file(4, "ring_1d")) as ctx:
            launch_everywhere(ctx, kernel, 4)
        assert most[0] > 400 and alive[0] == 0

    def test_thousands(self, tmp_path):
        """4,096 kernels, many of them alive at once."""
        (tmp_path / "big.yaml").write_text("system: { sips: { count: 32 } }\n")
        alive, most = [0], [0]

        def kernel(p, tl):
            alive[0] += 1
            most[0] = max(most[0], alive[0])
            v = tl.load(p, shape=(1,), dtype="f16")
            tl.wait(tl.store(p, v))
            alive[0] -= 1

        with make_context(tmp_path / "big.yaml", enable_data=False) as ctx:
            launch_everywhere(ctx, kernel, 32)
        assert most[0] > 1000 and alive[0] == 0

    def test_many_launches(self, ctx):
        t = ctx.zeros((1, 8), dp=one_pe())
        for _ in range(300):
            ctx.launch("k", lambda p, tl: tl.store(p, tl.load(p, (8,), "f16") + 1), t)
        assert (t.numpy() == 300).all()

    def test_many_workers(self, ctx):
        seen = []

        def worker(rank):
            ctx.ahbm.set_device(rank % 2)
            t = ctx.zeros((1, 8), dp=one_pe())
            ctx.launch("k", lambda p, tl: None, t)
            seen.append(rank)

        ctx.multiprocessing.spawn(worker, nprocs=200)
        assert sorted(seen) == list(range(200))

    def test_printing_from_kernels(self, ring, capsys):
        def kernel(p, tl):
            v = tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16")
            print("pe", tl.program_id(0))
            exchange(tl, v)
            print("again", tl.program_id(0), file=sys.stderr)

        on_pes(ring, kernel)
        captured = capsys.readouterr()
        assert len(captured.out.splitlines()) == 8 and len(captured.err.splitlines()) == 8

    def test_warnings_reach_python(self, capfd):
        """What the simulator warns of (a data race here) is on sys.stderr."""
        def kernel(p, tl):
            tl.store(p, tl.full((8,), tl.program_id(0), dtype="f16"))

        text = io.StringIO()
        with contextlib.redirect_stderr(text):
            with make_context() as ctx:
                t = ctx.zeros((1, 64), dp=pe_columns())
                ctx.launch("racing", kernel, t)
                t.numpy()
        assert "race" in text.getvalue()
        assert "race" not in capfd.readouterr().err
