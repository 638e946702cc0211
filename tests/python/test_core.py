"""The extension alone, without numpy: kernels, workers, faults, stacks.

Also a program, for Pythons that have neither numpy nor pytest:

    python3 tests/python/test_core.py build/python/kernbench
"""

import array
import gc
import json
import sys
import threading

if __name__ == "__main__":
    import importlib.util
    import pathlib

    [_path] = pathlib.Path(sys.argv[1]).glob("_core*.so")
    _spec = importlib.util.spec_from_file_location("kernbench._core", _path)
    core = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(core)
else:
    from kernbench import _core as core


def halves(values):
    """The bytes of f32 numbers."""
    return array.array("f", values)


def make(**more):
    return core.Context(**more)


def tensor(ctx, n=64, **more):
    t = core.Tensor()
    options = dict(cube="replicate", pe="column_wise", num_cubes=1, fill=0.0)
    ctx.deploy(t, (1, n), "f32", **{**options, **more})
    return t


def contents(ctx, t, n=64):
    out = array.array("f", bytes(4 * n))
    ctx.read(t, out)
    return list(out)


def ring(ctx, world=8):
    pes = [(0, i // 8, i % 8) for i in range(world)]
    edges = [(pes[i], "E", pes[(i + 1) % world]) for i in range(world)]
    edges += [(pes[i], "W", pes[i - 1]) for i in range(world)]
    number = ctx.queues_create(edges=edges)
    ctx.queues_install(number)
    return number


def run(ctx, kernel, *args):
    t = tensor(ctx)
    ctx.wait(ctx.launch("k", kernel, (t, *args)))
    return contents(ctx, t)


def mine(p, tl):
    return tl.load(p + tl.program_id(0) * 32, shape=(8,), dtype="f32")


def exchange(tl, v):
    tl.send(dir="E", src=v)
    return tl.recv(dir="W", shape=v.shape, dtype=v.dtype)


def raises(kind, call, *args):
    try:
        call(*args)
    except kind as e:
        return e
    raise AssertionError(f"{kind.__name__} was not raised")


def test_kernel():
    def kernel(p, tl):
        at = p + tl.program_id(0) * 32
        tl.store(at, tl.load(at, shape=(8,), dtype="f32") + tl.program_id(0))

    assert run(make(), kernel) == [float(i // 8) for i in range(64)]


def test_messages():
    def kernel(p, tl):
        v = mine(p, tl) + tl.program_id(0)
        for _ in range(20):
            v = exchange(tl, v)
        tl.store(p + tl.program_id(0) * 32, v)

    ctx = make()
    ring(ctx)
    assert run(ctx, kernel) == [float((i // 8 - 20) % 8) for i in range(64)]


def test_exceptions_and_their_state():
    seen = []

    def kernel(p, tl):
        v = mine(p, tl)
        pe = tl.program_id(0)
        for i in range(10):
            try:
                if i % 2:
                    raise KeyError(pe, i)
                v = exchange(tl, v)
            except KeyError as e:
                v = exchange(tl, v)
                assert sys.exc_info()[1] is e and e.args == (pe, i)
        assert sys.exc_info() == (None, None, None)
        seen.append(pe)

    ctx = make()
    ring(ctx)
    run(ctx, kernel)
    assert sorted(seen) == list(range(8))


def test_an_exception_comes_out():
    def kernel(p, tl):
        if tl.program_id(0) == 3:
            raise ZeroDivisionError("on PE 3")

    e = raises(ZeroDivisionError, run, make(), kernel)
    assert "sip0.cube0.pe3" in " ".join(getattr(e, "__notes__", []))


def test_a_fault_unwinds():
    log = []

    def kernel(p, tl):
        try:
            tl.load(p + (1 << 40), shape=(8,), dtype="f32")
        finally:
            log.append(1)

    e = raises(core.KernelError, run, make(), kernel)
    assert log and "test_core.py" in str(e)


def test_a_deadlock():
    ctx = make()
    ring(ctx)
    raises(core.IpcqDeadlock, run, ctx, lambda p, tl: tl.recv(dir="W", shape=(8,), dtype="f32"))


def test_generators():
    def steps(tl, v):
        for i in range(5):
            v = exchange(tl, v)
            yield i

    def kernel(p, tl):
        assert list(steps(tl, mine(p, tl))) == list(range(5))

    ctx = make()
    ring(ctx)
    run(ctx, kernel)


def test_recursion():
    def down(tl, v, n):
        return exchange(tl, v) if n == 0 else down(tl, v, n - 1)

    def endless(n):
        return endless(n + 1) + 1

    def through_c(n):
        return sorted([n, n], key=through_c)

    class Loop:
        def __repr__(self):
            return repr([self])

    def through_repr(n):
        return repr(Loop())

    def through_parser(n):
        try:
            return compile("-" * 100000 + "1", "x", "eval")
        except (MemoryError, SyntaxError):  # what some versions raise
            raise RecursionError from None

    def through_json(n):
        deep = []
        for _ in range(100000):
            deep = [deep]
        return json.dumps(deep)

    def kernel(p, tl):
        v = down(tl, mine(p, tl), 100)
        for f in (endless, through_c, through_repr, through_parser, through_json):
            raises(RecursionError, f, 0)
            v = exchange(tl, v)

    ctx = make()
    ring(ctx)
    run(ctx, kernel)


def test_collector():
    class Node:
        pass

    def kernel(p, tl):
        v = mine(p, tl)
        for _ in range(10):
            n = Node()
            n.me, n.value = n, v
            del n
            gc.collect()
            v = exchange(tl, v)

    ctx = make()
    ring(ctx)
    run(ctx, kernel)


def test_tracers():
    def kernel(p, tl):
        v = mine(p, tl)
        for _ in range(5):
            v = exchange(tl, v)

    events = []

    def tracer(frame, event, arg):
        events.append(event)
        return tracer

    for install in (sys.settrace, sys.setprofile):
        ctx = make()
        ring(ctx)
        old = sys.gettrace()
        install(tracer)
        try:
            run(ctx, kernel)
        finally:
            install(None)
            sys.settrace(old)
    assert events


def test_threads():
    stop = threading.Event()

    def spin():
        while not stop.is_set():
            sum(range(100))

    def kernel(p, tl):
        v = mine(p, tl)
        for _ in range(100):
            v = exchange(tl, v)
            sum(range(200))

    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread = threading.Thread(target=spin)
    thread.start()
    try:
        ctx = make()
        ring(ctx)
        run(ctx, kernel)
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(old)


def test_contexts_in_threads():
    errors = []

    def work():
        try:
            ctx = make()
            ring(ctx)

            def kernel(p, tl):
                v = mine(p, tl)
                for _ in range(20):
                    v = exchange(tl, v)

            for _ in range(3):
                run(ctx, kernel)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_workers():
    ctx = make()
    seen = []

    def worker(rank):
        ctx.set_device(rank)
        t = tensor(ctx)
        for _ in range(3):
            ctx.wait(ctx.launch("k", lambda p, tl: tl.store(p, tl.load(
                p, shape=(1,), dtype="f32") + 1), (t,)))
        seen.append((rank, ctx.worker_rank()))

    assert ctx.spawn(worker, 2) == {}
    assert sorted(seen) == [(0, 0), (1, 1)]


def test_workers_that_fail():
    ctx = make()

    def worker(rank):
        if rank == 1:
            raise ValueError("x")

    errors = ctx.spawn(worker, 3)
    assert list(errors) == [1] and isinstance(errors[1], ValueError)


def test_many_at_once():
    alive, most = [0], [0]

    def kernel(p, tl):
        alive[0] += 1
        most[0] = max(most[0], alive[0])
        tl.wait(tl.store(p, tl.load(p, shape=(1,), dtype="f32")))
        alive[0] -= 1

    ctx = make(settings=["system.sips.count=8"], timing_only=True)
    pending = []
    for sip in range(8):
        ctx.set_device(sip)
        t = tensor(ctx, 1024, num_cubes=0, cube="column_wise")
        pending.append(ctx.launch("k", kernel, (t,)))
    for request in pending:
        ctx.wait(request)
    assert most[0] > 100 and alive[0] == 0


def test_abandoned():
    log = []

    def kernel(p, tl):
        try:
            v = mine(p, tl)
            for _ in range(1000):
                v = tl.exp(v)
            tl.recv(dir="W", shape=(8,), dtype="f32")
        finally:
            log.append(1)

    for _ in range(3):
        ctx = make()
        ring(ctx)
        t = tensor(ctx)
        ctx.launch("k", kernel, (t,))
        ctx.close()
        del ctx, t
        gc.collect()


def test_after_the_end():
    ctx = make()
    t = tensor(ctx)
    ctx.close()
    ctx.close()
    assert ctx.closed
    raises(core.KernbenchError, contents, ctx, t)


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            print(name, flush=True)
            test()
    print("passed on", sys.version.split()[0])
