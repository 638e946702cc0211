"""`import kernbench as kb`: the short surface for new programs."""

import inspect
import json
import pydoc

import numpy as np
import pytest

import kernbench as kb
from support import MACHINE, ROOT, one_pe, put, python, random

C_KERNELS = """
#include <kernbench/tl.h>

KB_KERNEL(scale, tl_ptr x, int n, float factor)
{
    tl_ptr mine = x + (tl_program_id(1) * tl_num_programs(0) + tl_program_id(0)) * n * 2;
    tl_store(mine, tl_mul(tl_load(mine, tl_shape(n), TL_F16), factor));
}

KB_KERNEL(ring, tl_ptr x, int n, int world)
{
    tl_ptr mine = x + (tl_program_id(1) * tl_num_programs(0) + tl_program_id(0)) * n * 2;
    tl_tensor acc = tl_load(mine, tl_shape(n), TL_F16), current = acc;
    for (int i = 0; i < world - 1; i++) {
        tl_send("E", current);
        current = tl_recv("W", tl_shape(n), TL_F16);
        acc = tl_add(acc, current);
    }
    tl_store(mine, acc);
}
"""


@kb.kernel
def add_one(p, n, tl):
    tl.store(p, tl.load(p, shape=(n,), dtype="f16") + 1)


def bench(torch):
    x = torch.zeros((1, 64), dtype="f16", dp=one_pe(), name="x")
    torch.launch("add_one", add_one, x, 64)
    assert (x.numpy() == 1).all()


class TestMachines:
    def test_default(self):
        with kb.Context(kb.Machine("default")) as ctx:
            assert ctx.spec["system"]["sips"]["count"] == 2

    def test_settings(self):
        m = kb.Machine("default", {"sip.ucie.bw_gbs": 1024, "system.sips.count": 4})
        with kb.Context(m) as ctx:
            assert ctx.spec["sip"]["ucie"]["bw_gbs"] == 1024
            assert ctx.spec["system"]["sips"]["count"] == 4

    def test_a_file(self):
        with kb.Context(kb.Machine(str(MACHINE))) as ctx:
            assert ctx.spec["name"] == "default"

    def test_an_unknown_setting(self):
        with pytest.raises(ValueError, match="bw_gbs"):
            kb.Context(kb.Machine("default", {"sip.ucie.bw_gb": 1024}))

    def test_settings_change_times(self):
        def time(bw):
            with kb.Context(kb.Machine("default", {"system.sip_to_switch.bw_gbs": bw})) as ctx:
                put(ctx, np.zeros((64, 1024), np.float16)).numpy()
                return ctx.engine._env.now

        assert time(32) > time(64)

    def test_the_default_context(self):
        with kb.Context() as ctx:
            assert (put(ctx, random((1, 8))).numpy() == random((1, 8))).all()

    def test_contexts_are_those_of_the_other_surface(self):
        from kernbench.runtime_api.context import RuntimeContext
        from kernbench.runtime_api.tensor import Tensor

        with kb.Context(kb.Machine("default")) as ctx:
            assert isinstance(ctx, RuntimeContext)
            assert type(ctx.zeros((1, 8), dp=one_pe())) is Tensor


class TestRun:
    def test_a_function(self):
        r = kb.run(bench)
        assert type(r.sim_ns) is float and r.sim_ns > 500
        assert r.kernels and r.kernels[0]["name"] == "add_one"
        for name in ("breakdown", "units", "links"):
            assert getattr(r, name) is not None, name

    def test_on_a_machine(self):
        fast = kb.run(bench, machine=kb.Machine("default"))
        slow = kb.run(bench, machine=kb.Machine("default", {"cube.m_cpu.overhead_ns": 9000}))
        assert slow.sim_ns > fast.sim_ns + 8000

    def test_to_dict(self):
        d = kb.run(bench).to_dict()
        assert isinstance(d, dict) and d["sim_ns"] > 0
        json.dumps(d)

    def test_save(self, tmp_path):
        """In a store, which the commands read."""
        store = tmp_path / "runs.db"
        machine = kb.Machine("default", {"sip.ucie.bw_gbs": 300})
        first = kb.run(bench, machine)
        ids = [first.save(store), kb.run("gemm_single_pe", params={"m": 64}).save(str(store))]
        done = python("-m", "kernbench", "runs", "--store", store, "--json")
        rows = json.loads(done.stdout)
        assert [row["id"] for row in rows] == ids
        assert [row["bench"] for row in rows] == ["bench", "gemm_single_pe"]
        assert rows[0]["sim_ns"] == first.sim_ns and rows[0]["status"] == "ok"
        shown = python("-m", "kernbench", "runs", "show", ids[1], "--store", store).stdout
        assert "kernbench run --bench=gemm_single_pe" in shown and "--param=m=64" in shown
        yaml = python("-m", "kernbench", "runs", "export", ids[0], "--store", store, "--yaml")
        assert "300" in yaml.stdout

    def test_save_in_the_working_folder(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert kb.run(bench).save()
        assert (tmp_path / "kernbench.db").exists()
        (tmp_path / "other.db").write_text("no store")
        with pytest.raises(kb.KernbenchError, match="other.db"):
            kb.run(bench).save("other.db")

    def test_html(self):
        html = kb.run(bench)._repr_html_()
        assert isinstance(html, str) and "<" in html and "add_one" in html

    def test_repr(self):
        assert "ns" in repr(kb.run(bench))

    def test_an_exception(self):
        def broken(torch):
            raise ZeroDivisionError("in the bench")

        with pytest.raises(ZeroDivisionError):
            kb.run(broken)

    def test_a_bench_by_name(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        r = kb.run("gemm_single_pe")
        assert r.sim_ns > 0 and r.to_dict()["bench"] == "gemm_single_pe"

    def test_times_are_those_of_run_bench(self):
        from kernbench.runtime_api.bench_runner import run_bench
        from kernbench.runtime_api.types import resolve_device
        from kernbench.sim_engine.engine import GraphEngine
        from kernbench.topology.builder import resolve_topology

        r = run_bench(topology=resolve_topology(str(MACHINE)), bench_fn=bench,
                      device=resolve_device("all"),
                      engine_factory=lambda t, d: GraphEngine(t.topology_obj))
        k = kb.run(bench).kernels[0]
        assert k["total_ns"] == r.traces[0]["total_ns"]
        assert k["pe_exec_ns"] == r.traces[0]["pe_exec_ns"]


class TestKernels:
    def test_the_decorator(self):
        assert callable(add_one) and add_one.__name__ == "add_one"
        with kb.Context() as ctx:
            t = ctx.zeros((1, 8), dp=one_pe())
            ctx.launch("k", add_one, t, 8)
            assert (t.numpy() == 1).all()

    def test_tl_is_there(self):
        assert kb.tl is not None
        assert callable(kb.tl.load)

    def test_from_c(self, tmp_path):
        (tmp_path / "kernels.c").write_text(C_KERNELS)
        c = kb.compile_c(str(tmp_path / "kernels.c"))
        with kb.Context() as ctx:
            t = put(ctx, np.ones((1, 8), np.float16))
            ctx.launch("scale", c.scale, t, 8, 2.5)
            assert (t.numpy() == 2.5).all()

    def test_errors_of_the_compiler(self, tmp_path):
        (tmp_path / "wrong.c").write_text(
            "#include <kernbench/tl.h>\nKB_KERNEL(f, tl_ptr x) { y; }\n")
        with pytest.raises((ValueError, RuntimeError), match="wrong.c"):
            kb.compile_c(str(tmp_path / "wrong.c"))

    def test_a_missing_file(self, tmp_path):
        with pytest.raises((FileNotFoundError, ValueError), match="nowhere.c"):
            kb.compile_c(str(tmp_path / "nowhere.c"))


class TestSameTimes:
    """Simulated times are those of the same kernel in C, to the femtosecond."""

    def times(self, ctx, fn, make, *args):
        t = make(ctx)
        t.numpy()
        before = ctx.engine._env.now
        ctx.launch("k", fn, t, *args)
        return ctx.engine._env.now - before, t.numpy().tobytes(), [
            (t["total_ns"], t["pe_exec_ns"]) for _, t in ctx.engine._results.values()
            if isinstance(t, dict) and t.get("name") == "k"
        ]

    def both(self, tmp_path, c_name, python_kernel, make, *args, install=None):
        (tmp_path / "kernels.c").write_text(C_KERNELS)
        c = kb.compile_c(str(tmp_path / "kernels.c"))
        got = []
        for fn in (getattr(c, c_name), python_kernel):
            with kb.Context() as ctx:
                if install:
                    install(ctx)
                got.append(self.times(ctx, fn, make, *args))
        assert got[0] == got[1]
        assert got[0][0] > 500

    def test_scale(self, tmp_path):
        from kernbench.policy.placement.dp import DPPolicy

        def scale(x, n, factor, tl):
            mine = x + (tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)) * n * 2
            tl.store(mine, tl.load(mine, shape=(n,), dtype="f16") * factor)

        self.both(tmp_path, "scale", scale,
                  lambda ctx: put(ctx, random((16, 512), 1),
                                  DPPolicy(cube="row_wise", pe="column_wise")), 64, 2.0)

    def test_ring(self, tmp_path, write_ccl):
        from kernbench.policy.placement.dp import DPPolicy

        write_ccl("ring_allreduce_tcm")

        def ring(x, n, world, tl):
            mine = x + (tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)) * n * 2
            acc = tl.load(mine, shape=(n,), dtype="f16")
            current = acc
            for _ in range(world - 1):
                tl.send(dir="E", src=current)
                current = tl.recv(dir="W", shape=(n,), dtype="f16")
                acc = acc + current
            tl.store(mine, acc)

        self.both(tmp_path, "ring", ring,
                  lambda ctx: put(ctx, random((1, 32 * 16), 1, scale=0.1),
                                  DPPolicy(cube="column_wise", pe="column_wise", num_cubes=4)),
                  16, 32, install=lambda ctx: ctx.install_ipcq(
                      algorithm="ring_allreduce_tcm", world_size_override=32))

    @pytest.mark.parametrize("name, entry, own, more, topology, world, n", [
        ("hello_send", "hello_send", "n", 3, "ring_1d", 5, 200),
        ("ring", "ring_allreduce", "n, world", 3, "ring_1d", 8, 16),
        ("ring", "ring_allreduce", "n, world", 3, "ring_1d", 3, 3000),
        ("mesh", "mesh_allreduce", "n, side", 4, "mesh_2d", 4, 16),
        ("tree", "tree_allreduce", "n, world", 3, "tree_binary", 7, 16),
    ])
    @pytest.mark.parametrize("settings", [{}, {"sip.ucie.bw_gbs": 37, "cube.noc.router.overhead_ns": 1.3}])
    def test_shipped_algorithms(self, write_ccl, tmp_path, monkeypatch, settings, name, entry, own,
                                more, topology, world, n):
        """The Python modules against the kernels in C, as entries of ccl.yaml. Those of C take
        more arguments: so many are added, as a launch takes as long as its arguments are."""
        from kernbench.policy.placement.dp import DPPolicy

        copy = tmp_path / f"copied_{entry}.py"
        copy.write_text(f"from kernbench.ccl.algorithms import {entry} as is_\n"
                        "def kernel_args(world_size, n_elem):\n"
                        f"    return is_.kernel_args(world_size, n_elem) + (0,) * {more}\n"
                        f"def kernel(t_ptr, {own}, {', '.join('abcd'[:more])}, tl):\n"
                        f"    is_.kernel(t_ptr, {own}, tl)\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        got = []
        for module in (name, f"kernbench.ccl.algorithms.{entry}", f"copied_{entry}"):
            write_ccl("mine", {"mine": dict(module=module, topology=topology, world_size=world,
                                            buffer_kind="tcm", n_elem=n)})
            with kb.Context(kb.Machine("default", settings)) as ctx:
                ctx.distributed.init_process_group(backend="ahbm")
                t = put(ctx, random((1, world * n), 1, scale=0.1),
                        DPPolicy(pe="column_wise", num_cubes=1, num_pes=world))
                t.numpy()
                before = ctx.engine._env.now
                ctx.distributed.all_reduce(t, algorithm="mine")
                got.append((ctx.engine._env.now - before, t.numpy().tobytes()))
        assert got[0] == got[1] == got[2]

    def test_hierarchical(self, write_ccl, tmp_path, monkeypatch, machine_file):
        from support import make_context
        from kernbench.policy.placement.dp import DPPolicy

        (tmp_path / "copied_hierarchical.py").write_text(
            "from kernbench.ccl.algorithms import hierarchical_allreduce as is_\n"
            "TOPO_NAME_TO_KIND = {'ring_1d': 0}\n"
            "def kernel_args(world_size, n_elem):\n"
            "    return n_elem, 8, 16, world_size\n"
            "def kernel(t_ptr, n_elem, pes, cubes, sips, sip, kind, w, h, tl):\n"
            "    is_.kernel(t_ptr, n_elem, pes, cubes, sips, tl, sip_rank=sip)\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        got = []
        for module in ("hierarchical", "copied_hierarchical"):
            write_ccl("mine", {"mine": dict(module=module, topology="hierarchical_3level",
                                            mapper="all_pes", validator="multi_pe_sip_local",
                                            n_elem=16, reduce_shards=True)})
            with make_context(machine_file(3, "ring_1d")) as ctx:
                ctx.distributed.init_process_group(backend="ahbm")

                def worker(rank):
                    ctx.ahbm.set_device(rank)
                    t = put(ctx, random((1, 128 * 16), rank, scale=0.1),
                            DPPolicy(cube="column_wise", pe="column_wise"))
                    ctx.distributed.all_reduce(t)
                    return got.append((rank, ctx.engine._env.now, t.numpy().tobytes()))

                ctx.multiprocessing.spawn(worker, nprocs=3)
        assert got[:3] == got[3:]

    @pytest.mark.parametrize("count, topology", [(2, "ring_1d"), (4, "torus_2d"),
                                                 (4, "mesh_2d_no_wrap"), (3, "ring_1d")])
    def test_intercube(self, write_ccl, tmp_path, monkeypatch, machine_file, count, topology):
        from support import cube_rows, make_context

        (tmp_path / "copied_intercube.py").write_text(
            "from kernbench.ccl.algorithms import intercube_allreduce as is_\n"
            "TOPO_NAME_TO_KIND = is_.TOPO_NAME_TO_KIND\n"
            "def kernel_args(world_size, n_elem):  # as many as the kernel in C has\n"
            "    return (0, 0, 0) + is_.kernel_args(world_size, n_elem)\n"
            "def kernel(t_ptr, a, b, c, n, w, h, sips, sip, kind, topo_w, topo_h, tl):\n"
            "    is_.kernel(t_ptr, n, w, h, sips, sip, kind, topo_w, topo_h, tl)\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        got = []
        for module in ("intercube", "kernbench.ccl.algorithms.intercube_allreduce",
                       "copied_intercube"):
            write_ccl("mine", {"mine": dict(module=module, topology="none", buffer_kind="tcm",
                                            mapper="cube_leaders", n_elem=8, reduce_shards=True)})
            with make_context(machine_file(count, topology)) as ctx:
                ctx.distributed.init_process_group(backend="ahbm")
                tensors = []
                for sip in range(count):
                    ctx.ahbm.set_device(sip)
                    tensors.append(put(ctx, random((16, 8), sip, scale=0.1), cube_rows()))
                    tensors[-1].numpy()
                before = ctx.engine._env.now

                def worker(rank):
                    ctx.ahbm.set_device(rank)
                    ctx.distributed.all_reduce(tensors[rank])

                ctx.multiprocessing.spawn(worker, nprocs=count)
                got.append((ctx.engine._env.now - before, [t.numpy().tobytes() for t in tensors]))
        assert got[0] == got[1] == got[2]

    def test_with_and_without_data(self):
        def kernel(p, tl):
            v = tl.load(p, shape=(64, 64), dtype="f16")
            tl.store(p, tl.dot(v, tl.exp(v)))

        from support import make_context

        times = []
        for data in (True, False):
            with make_context(enable_data=data) as ctx:
                t = ctx.zeros((64, 64), dp=one_pe())
                ctx.launch("k", kernel, t)
                times.append(ctx.engine._env.now)
        assert times[0] == times[1]


class TestDocumentation:
    def test_help_is_worth_reading(self):
        text = pydoc.plain(pydoc.render_doc(kb))
        for word in ("Machine", "Context", "run", "kernel", "compile_c"):
            assert word in text
        assert kb.__doc__ and len(kb.__doc__) > 300

    def test_docstrings(self):
        from kernbench.runtime_api.context import RuntimeContext
        from kernbench.runtime_api.tensor import Tensor

        lacking = []
        for thing in (kb, RuntimeContext, Tensor, type(kb.tl) if not isinstance(kb.tl, type)
                      else kb.tl):
            for name, member in inspect.getmembers(thing):
                if not name.startswith("_") and callable(member) and not inspect.getdoc(member):
                    lacking.append(f"{getattr(thing, '__name__', thing)}.{name}")
        assert not lacking

    def test_typed(self):
        folder = ROOT / "python" / "kernbench"
        assert (folder / "py.typed").exists()
        assert (folder / "_core.pyi").exists()

    def test_stubs_parse(self):
        import ast

        stubs = list((ROOT / "python").rglob("*.pyi"))
        assert stubs
        for stub in stubs:
            ast.parse(stub.read_text())

    def test_stubs_name_what_is_there(self):
        """Every public name of _core is in its stub, and the other way round."""
        import ast

        import kernbench._core as core

        tree = ast.parse((ROOT / "python" / "kernbench" / "_core.pyi").read_text())
        stubbed = set()
        members = {}
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                stubbed.add(node.name)
            elif isinstance(node, ast.AnnAssign):
                stubbed.add(node.target.id)
            elif isinstance(node, ast.Assign):
                stubbed.update(t.id for t in node.targets)
            if isinstance(node, ast.ClassDef):
                members[node.name] = {
                    n.name if isinstance(n, ast.FunctionDef) else n.target.id
                    for n in node.body if isinstance(n, (ast.FunctionDef, ast.AnnAssign))
                }
        real = {n for n in dir(core) if not n.startswith("_")}
        assert real <= stubbed, real - stubbed
        assert {n for n in stubbed if not n.startswith("_")} <= real, stubbed - real
        for name, names in members.items():
            there = {n for n in dir(getattr(core, name)) if not n.startswith("_")}
            own = {n for n in vars(getattr(core, name)) if not n.startswith("_")}
            assert own <= names, (name, own - names)
            assert {n for n in names if not n.startswith("_")} <= there, (name, names - there)

    def test_stubs_have_the_signatures(self):
        """Names, kinds and defaults of parameters are those that inspect.signature() finds."""
        import ast

        import kernbench._core as core

        def of_stub(node, first):
            a = node.args
            kinds = inspect.Parameter
            only, both = kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD
            named = [(p.arg, only) for p in a.posonlyargs] + [(p.arg, both) for p in a.args]
            begin = len(named) - len(a.defaults)
            found = [(*one, i >= begin) for i, one in enumerate(named)][first:]
            found += [(a.vararg.arg, kinds.VAR_POSITIONAL, False)] if a.vararg else []
            found += [(p.arg, kinds.KEYWORD_ONLY, d is not None)
                      for p, d in zip(a.kwonlyargs, a.kw_defaults)]
            return found + ([(a.kwarg.arg, kinds.VAR_KEYWORD, False)] if a.kwarg else [])

        def of_object(thing):
            found = inspect.signature(thing).parameters.values()
            return [(p.name, p.kind, p.default is not p.empty) for p in found if p.name != "self"]

        tree = ast.parse((ROOT / "python" / "kernbench" / "_core.pyi").read_text())
        checked = 0
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                assert of_stub(node, 0) == of_object(getattr(core, node.name)), node.name
                checked += 1
            for f in node.body if isinstance(node, ast.ClassDef) else ():
                if not isinstance(f, ast.FunctionDef) or f.decorator_list:
                    continue
                owner = getattr(core, node.name)
                if f.name == "__init__" or not f.name.startswith("_"):
                    thing = owner if f.name == "__init__" else getattr(owner, f.name)
                    assert of_stub(f, 1) == of_object(thing), (node.name, f.name)
                    checked += 1
        assert checked > 100

    def test_greenlet_is_not_needed(self):
        done = python("-c", "import sys, kernbench, kernbench.tp, kernbench.ccl.testing; "
                            "print([m for m in sys.modules if m.split('.')[0] in "
                            "('greenlet', 'yaml', 'simpy', 'torch')])")
        assert done.stdout.strip() == "[]"

