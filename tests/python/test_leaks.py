"""Nothing is left behind: contexts one after the other, references, Ctrl-C."""

import signal
import subprocess
import sys
import time

import pytest

from support import environment, python

BODY = """
import gc, os, sys, tracemalloc
import numpy as np
import support
from kernbench.policy.placement.dp import DPPolicy
from support import *

os.chdir(sys.argv[1])
write_ccl("ccl.yaml", "intercube_allreduce")

def work(i):
    with make_context() as ctx:
        ctx.distributed.init_process_group(backend="ahbm")
        def worker(rank):
            ctx.ahbm.set_device(rank)
            t = put(ctx, np.full((16, 64), rank + 1, np.float16), cube_rows())
            ctx.distributed.all_reduce(t)
            assert (t.numpy() == 48).all()
        ctx.multiprocessing.spawn(worker, nprocs=2)
        ctx.ahbm.set_device(0)
        ctx.install_ipcq(algorithm="ring_allreduce_tcm", world_size_override=8)
        def kernel(p, tl):
            mine = p + tl.program_id(0) * 16
            v = tl.load(mine, (8,), "f16")
            for _ in range(20):
                tl.send(dir="E", src=v)
                v = tl.recv(dir="W", shape=(8,), dtype="f16") + 1
            tl.store(mine, v)
        t = ctx.zeros((1, 64), dp=pe_columns())
        ctx.launch("k", kernel, t)
        assert (t.numpy() == 20).all()
        try:
            ctx.launch("bad", lambda p, tl: 1 / 0, t)
        except ZeroDivisionError:
            pass
        try:
            ctx.launch("fault", lambda p, tl: tl.load(p + (1 << 40), (8,), "f16"), t)
        except RuntimeError:
            pass
        try:
            ctx.multiprocessing.spawn(lambda r: [][r], nprocs=2)
        except RuntimeError:
            pass

def rss():
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1])
"""


class TestLeaks:
    def test_memory_of_python(self, tmp_path):
        done = python("-c", BODY + """
for i in range(3):
    work(i)
gc.collect()
tracemalloc.start()
work(0)
gc.collect()
first, _ = tracemalloc.get_traced_memory()
for i in range(10):
    work(i)
gc.collect()
last, _ = tracemalloc.get_traced_memory()
print(last - first)
""", tmp_path)
        assert int(done.stdout.split()[-1]) < 20000, done.stdout

    def test_resident_memory(self, tmp_path):
        done = python("-c", BODY + """
def collected(count):  # else the collector's timing decides how many contexts live at once
    for i in range(count):
        work(i)
        gc.collect()
    return rss()

first = collected(10)
print(collected(10) - first)
""", tmp_path)
        assert int(done.stdout.split()[-1]) < 2000, done.stdout  # KiB

    def test_objects_and_references(self, tmp_path):
        done = python("-c", BODY + """
for i in range(3):
    work(i)
gc.collect()
objects, refs = len(gc.get_objects()), [sys.getrefcount(x) for x in (None, True, "", 0, work)]
for i in range(5):
    work(i)
gc.collect()
print(len(gc.get_objects()) - objects,
      *[b - a for a, b in zip(refs, (sys.getrefcount(x) for x in (None, True, "", 0, work)))])
""", tmp_path)
        objects, *refs = map(int, done.stdout.split())
        assert objects < 50
        assert all(abs(r) < 200 for r in refs), refs

    def test_operations(self):
        """A million references would show: operations of one long kernel."""
        done = python("-c", """
import gc, sys, tracemalloc
from support import *
with make_context(enable_data=False) as ctx:
    def kernel(p, n, tl):
        v = tl.load(p, (8,), "f16")
        for _ in range(n):
            v = tl.exp(tl.load(p, shape=(8,), dtype="f16")) * 2.0 + v
            tl.store(p, v)
            tl.now(), v.shape, v.dtype, v.addr, v.space
    t = ctx.zeros((1, 8), dp=one_pe())
    ctx.launch("k", kernel, t, 1000)
    tracemalloc.start()
    ctx.launch("k", kernel, t, 10)
    gc.collect()
    first, _ = tracemalloc.get_traced_memory()
    ctx.launch("k", kernel, t, 5000)
    gc.collect()
    print(tracemalloc.get_traced_memory()[0] - first)
""")
        assert int(done.stdout.split()[-1]) < 20000, done.stdout


class TestInterrupts:
    def interrupt(self, body, tmp_path, after=0.5):
        process = subprocess.Popen(
            [sys.executable, "-c", "from support import *\nimport sys\n" + body],
            cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout.readline().strip() == "ready"
            time.sleep(after)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        return process.returncode, out, err

    def test_a_long_launch(self, tmp_path):
        code, out, err = self.interrupt("""
ctx = make_context()
with ctx:
    t = ctx.zeros((1, 8), dp=one_pe())
    def kernel(p, tl):
        v = tl.load(p, (8,), "f16")
        while True:
            v = tl.exp(v)
    print("ready", flush=True)
    try:
        ctx.launch("endless", kernel, t)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
try:
    ctx.zeros((1, 8), dp=one_pe())
except RuntimeError:
    print("closed")
with make_context() as again:
    t = put(again, np.ones((1, 8), np.float16))
    again.launch("k", lambda p, tl: tl.store(p, tl.load(p, (8,), "f16") + 1), t)
    print((t.numpy() == 2).all())
""", tmp_path)
        assert code == 0 and out.split() == ["interrupted", "closed", "True"], (code, out, err)

    def test_the_context_is_closed_at_once(self, tmp_path):
        code, out, err = self.interrupt("""
ctx = make_context()
t = ctx.zeros((1, 8), dp=one_pe())
def kernel(p, tl):
    v = tl.load(p, (8,), "f16")
    while True:
        v = tl.exp(v)
print("ready", flush=True)
try:
    ctx.launch("endless", kernel, t)
except KeyboardInterrupt:
    print("interrupted", flush=True)
try:
    t.numpy()
except RuntimeError:
    print("closed")
""", tmp_path)
        assert code == 0 and out.split() == ["interrupted", "closed"], (code, out, err)

    def test_pure_python_in_a_kernel(self, tmp_path):
        code, out, err = self.interrupt("""
with make_context() as ctx:
    t = ctx.zeros((1, 8), dp=one_pe())
    def kernel(p, tl):
        try:
            while True:
                pass
        finally:
            print("finally", flush=True)
    print("ready", flush=True)
    try:
        ctx.launch("endless", kernel, t)
    except KeyboardInterrupt:
        print("interrupted")
""", tmp_path)
        assert code == 0 and out.split() == ["finally", "interrupted"], (code, out, err)

    def test_in_workers(self, tmp_path):
        code, out, err = self.interrupt("""
with make_context() as ctx:
    def worker(rank):
        ctx.ahbm.set_device(rank)
        t = ctx.zeros((1, 8), dp=one_pe())
        if rank == 0:
            print("ready", flush=True)
        while True:
            ctx.launch("k", lambda p, tl: None, t)
    try:
        ctx.multiprocessing.spawn(worker, nprocs=2)
    except KeyboardInterrupt:
        print("interrupted")
""", tmp_path)
        assert code == 0 and out.split() == ["interrupted"], (code, out, err)

    def test_kernels_of_c(self, tmp_path):
        """A long run without a line of Python in it."""
        (tmp_path / "slow.c").write_text("""
#include <kernbench/tl.h>
KB_KERNEL(slow, tl_ptr x, int n)
{
    for (int64_t i = 0; i < 2000000000LL; i++)
        TL_SCOPE { tl_exp(tl_load(x, tl_shape(8), TL_F16)); }
}
""")
        code, out, err = self.interrupt("""
import kernbench as kb
c = kb.compile_c("slow.c")
with make_context(enable_data=False) as ctx:
    t = ctx.zeros((1, 8), dp=one_pe())
    print("ready", flush=True)
    try:
        ctx.launch("slow", c.slow, t, 8)
    except KeyboardInterrupt:
        print("interrupted")
""", tmp_path)
        assert code == 0 and out.split() == ["interrupted"], (code, out, err)

    def test_the_command_line(self, tmp_path):
        (tmp_path / "slow.py").write_text("""
def run(torch):
    from support import one_pe
    t = torch.zeros((1, 8), dp=one_pe())
    def kernel(p, tl):
        v = tl.load(p, (8,), "f16")
        while True:
            v = tl.exp(v)
    print("ready", flush=True)
    torch.launch("endless", kernel, t)
""")
        code, out, err = self.interrupt("""
from kernbench.cli.main import main
try:
    print("code", main(["run", "--bench", "./slow.py"]))
except KeyboardInterrupt:
    print("interrupted")
""", tmp_path)
        assert code == 0 and ("interrupted" in out or "code" in out), (code, out, err)


class TestEndings:
    """How a process ends with contexts and kernels still there."""

    @pytest.mark.parametrize("body", [
        "ctx = make_context(); t = ctx.zeros((1, 8), dp=one_pe())",
        "ctx = make_context().__enter__(); t = put(ctx, random((1, 8)))",
        "ctx = make_context(); t = ctx.zeros((1, 8), dp=one_pe()); "
        "ctx.launch('k', lambda p, tl: None, t, _defer_wait=True)",
        "import sys; ctx = make_context(); sys.modules['held'] = ctx",
        "import atexit; ctx = make_context(); "
        "atexit.register(lambda: ctx.zeros((1, 8), dp=one_pe()))",
        "kept = []; ctx = make_context(); "
        "ctx.launch('k', lambda p, tl: kept.append((tl, tl.load(p, (8,), 'f16'))), "
        "ctx.zeros((1, 8), dp=one_pe()))",
    ])
    def test_at_exit(self, body):
        done = python("-c", "from support import *\n" + body + "\nprint('end')")
        assert done.stdout.strip() == "end" and done.stderr == ""

    def test_exit_in_a_kernel(self):
        done = python("-c", """
import sys
from support import *
ctx = make_context()
ctx.launch("k", lambda p, tl: sys.exit(7), ctx.zeros((1, 8), dp=one_pe()))
""", check=False)
        assert done.returncode == 7, done.stderr
