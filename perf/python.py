"""python.py: what the Python front costs. Run it as ./kb python perf/python.py [--only NAME ...].

Prints figures and judges nothing: times depend on the host. They are CPU times of this process, the
best of a few runs, so that other programs on the host disturb them little.

    operations    host time of one operation of a Python kernel, timing-only
    instructions  the same in instructions, as callgrind counts them (needs valgrind)
    ring          the all-reduce over the 256 PEs of the default machine: 65,280 messages
    import        import kernbench beyond import numpy
    arrays        100 MB into a tensor and out, beside a plain copy of numpy; and with the
                  simulation of the transfer, which takes as long as its packets have conflicts
    switches      kernels that do nothing but take turns
    leaks         what ten contexts one after the other leave behind
"""

import argparse
import gc
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import time
import tracemalloc

MACHINE = pathlib.Path(__file__).resolve().parents[1] / "machines" / "default.yaml"

# Operations: a line of a kernel that is repeated; v and w are values of 8 elements.
LINES = {
    "nothing": "pass",
    "program_id": "tl.program_id(0)",
    "load": "tl.load(p, shape=(8,), dtype='f16')",
    "store": "tl.store(p, v)",
    "add": "v + w",
    "exp": "tl.exp(v)",
    "fma": "tl.fma(v, w, w)",
    "dot": "tl.dot(a, b)",
    "sum": "tl.sum(v, axis=0)",
    "reshape": "tl.reshape(v, (2, 4))",
    "now": "tl.now()",
}

KERNEL = """
def kernel(p, n, tl):
    v = tl.load(p, shape=(8,), dtype='f16')
    w = tl.load(p, shape=(8,), dtype='f16')
    a = tl.load(p, shape=(2, 4), dtype='f16')
    b = tl.load(p, shape=(4, 2), dtype='f16')
    for _ in range(n):
        {line}
"""

EXCHANGE = """
def kernel(p, n, tl):
    v = tl.load(p, shape=(8,), dtype='f16')
    for _ in range(n):
        tl.send(dir='E', src=v)
        v = tl.recv(dir='W', shape=(8,), dtype='f16')
"""


def make_context(enable_data=False):
    from kernbench.runtime_api.context import RuntimeContext
    from kernbench.runtime_api.types import resolve_device
    from kernbench.sim_engine.engine import GraphEngine
    from kernbench.topology.builder import resolve_topology

    topology = resolve_topology(str(MACHINE)).topology_obj
    return RuntimeContext(
        engine=GraphEngine(topology, enable_data=enable_data),
        target_device=resolve_device("all"),
        correlation_id="perf",
        spec=topology.spec,
    )


def one_pe():
    from kernbench.policy.placement.dp import DPPolicy

    return DPPolicy(num_cubes=1, num_pes=1)


def all_pes(cubes=None):
    from kernbench.policy.placement.dp import DPPolicy

    return DPPolicy(cube="column_wise", pe="column_wise", num_cubes=cubes)


def compiled(text):
    names = {}
    exec(compile(text, "<kernel>", "exec"), names)
    return names["kernel"]


def best(runs, call):
    times = []
    for _ in range(runs):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def install_ring(ctx, world):
    from kernbench.ccl.install import install_ipcq, load_ccl_config, resolve_algorithm_config

    merged = resolve_algorithm_config(load_ccl_config(), "ring_allreduce_tcm")
    install_ipcq(ctx.engine, ctx.spec, dict(merged, world_size=world))


def run_line(name, n):
    """The launch of a kernel that does a line, or an exchange of messages by 8 PEs, n times."""
    ctx = make_context()
    if name == "message":
        install_ring(ctx, 8)
        tensor, kernel = ctx.zeros((1, 64), dp=all_pes(1)), compiled(EXCHANGE)
    else:
        tensor, kernel = ctx.zeros((1, 8), dp=one_pe()), compiled(KERNEL.format(line=LINES[name]))
    return lambda: ctx.launch(name, kernel, tensor, n)


def operations():
    n = 20000
    empty = None
    for name in [*LINES, "message"]:
        repeat = n if name != "message" else n // 8
        small, large = run_line(name, repeat), run_line(name, 3 * repeat)
        difference = best(3, large) - best(3, small)
        per = difference / (2 * repeat) * 1e6
        if name == "message":  # 8 PEs, a send and a recv each
            per /= 16
        elif empty is None:
            empty = per
        else:
            per -= empty
        print(f"  {name:<12} {per:8.3f} us")


def instructions():
    if not shutil.which("valgrind"):
        print("  valgrind is not installed")
        return

    def count(name, n):
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable,
             __file__, "--launch", name, str(n)],
            capture_output=True, text=True, env=os.environ,
        )
        found = re.search(r"Collected : (\d+)", done.stderr)
        if not found:
            sys.exit(done.stderr)
        return int(found.group(1))

    empty = (count("nothing", 3000) - count("nothing", 1000)) / 2000
    for name in ("load", "store", "add", "exp", "message"):
        per = (count(name, 1500) - count(name, 500)) / 1000
        per = per / 16 if name == "message" else per - empty
        print(f"  {name:<12} {per:8.0f} instructions")


def ring():
    for data in (False, True):
        ctx = make_context(enable_data=data)
        install_ring(ctx, 256)

        def kernel(t_ptr, first, n_elem, world, tl):
            rank = first + tl.program_id(1) * 8 + tl.program_id(0)
            mine = t_ptr + (rank - first) * n_elem * 2
            acc = current = tl.load(mine, shape=(n_elem,), dtype="f16")
            for _ in range(world - 1):
                tl.send(dir="E", src=current)
                current = tl.recv(dir="W", shape=(n_elem,), dtype="f16")
                acc = acc + current
            tl.store(mine, acc)

        tensors = []
        for sip in range(2):
            ctx.ahbm.set_device(sip)
            tensors.append(ctx.zeros((1, 128 * 8), dp=all_pes()))

        def launch():
            pending = []
            for sip, tensor in enumerate(tensors):
                pending += ctx.launch("ring", kernel, tensor, sip * 128, 8, 256, _defer_wait=True)
            for handle, _, meta in pending:
                ctx.wait(handle, _meta=meta)

        took = best(3, launch)
        per = took / (256 * 255) * 1e6
        title = "with data" if data else "timing-only"
        print(f"  {title:<12} {took:8.3f} s, {per:.2f} us a message: send, recv and add")


def imports():
    def spend(text):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", text], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def least(text):
        return min(spend(text) for _ in range(15))

    numpy = least("import numpy")
    for text in ("import numpy, kernbench",
                 "import numpy, kernbench.runtime_api.context, kernbench.sim_engine.engine, "
                 "kernbench.topology.builder, kernbench.policy.placement.dp, kernbench.tp"):
        print(f"  {(least(text) - numpy) * 1e3:8.1f} ms   {text.split(',')[1].strip()}"
              f"{' and more' if text.count(',') > 1 else ''}")


def copies(array, policy):
    """The times of an array into a tensor and out of it; and both with the simulated transfer."""
    import numpy as np

    ctx = make_context(enable_data=True)
    core = ctx.engine.core
    tensor = ctx.zeros(array.shape, dp=policy)
    out = np.empty_like(array)

    def simulated_in():
        tensor.copy_(ctx.from_numpy(array))
        ctx.synchronize()

    return (
        best(5, lambda: core.write(tensor, array, timed=False)),
        best(5, lambda: core.read(tensor, out, timed=False)),
        best(1, simulated_in),
        best(1, tensor.numpy),
    )


def arrays():
    import numpy as np

    from kernbench.policy.placement.dp import DPPolicy

    a = np.ones((6400, 8192), np.float16)
    megabytes = a.nbytes / 1e6
    plain = best(5, a.copy)
    print(f"  {'numpy copy':<36} {plain * 1e3:8.1f} ms, {megabytes / plain / 1e3:.1f} GB/s")
    for title, policy in (("one shard", one_pe()),
                          ("rows, 128 shards", DPPolicy(cube="row_wise", pe="row_wise")),
                          ("columns, 128 shards", all_pes())):
        names = ("in", "out", "in, simulated", "out, simulated")
        for name, took in zip(names, copies(a, policy)):
            print(f"  {title + ': ' + name:<36} {took * 1e3:8.1f} ms, "
                  f"{megabytes / took / 1e3:.1f} GB/s, {took / plain:.1f} plain copies")
        gc.collect()


def switches():
    """Kernels on 128 PEs that each wait for what they load."""
    ctx = make_context()
    tensor = ctx.zeros((1, 1024), dp=all_pes())

    def kernel(p, n, tl):
        for _ in range(n):
            tl.wait(tl.store(p, tl.load(p, shape=(1,), dtype="f16")))

    n = 100
    small = best(3, lambda: ctx.launch("k", kernel, tensor, n))
    large = best(3, lambda: ctx.launch("k", kernel, tensor, 3 * n))
    print(f"  {(large - small) / (2 * n * 128) * 1e6:8.3f} us for load, store and a wait")


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def leaks():
    def work():
        with make_context(enable_data=True) as ctx:
            install_ring(ctx, 8)
            tensor = ctx.zeros((1, 64), dp=all_pes(1))
            ctx.launch("messages", compiled(EXCHANGE), tensor, 50)
            tensor.numpy()

    for _ in range(5):
        work()
    gc.collect()
    before = resident()
    for _ in range(10):
        work()
    gc.collect()
    after = resident()
    tracemalloc.start()
    work()
    gc.collect()
    first = tracemalloc.get_traced_memory()[0]
    for _ in range(10):
        work()
    gc.collect()
    last = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    print(f"  {(after - before) / 10 / 1024:8.1f} KiB resident and {(last - first) / 10:.0f} bytes "
          "of Python objects a context")


MEASURES = {
    "operations": operations, "instructions": instructions, "ring": ring, "import": imports,
    "arrays": arrays, "switches": switches, "leaks": leaks,
}


def main():
    parser = argparse.ArgumentParser(description="What the Python front costs.")
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=list(MEASURES))
    parser.add_argument("--launch", nargs=2, metavar=("LINE", "N"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.launch:
        run_line(arguments.launch[0], int(arguments.launch[1]))()
        return
    for name in arguments.only:
        print(name, flush=True)
        MEASURES[name]()


if __name__ == "__main__":
    main()
