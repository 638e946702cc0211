"""Machines, engines, contexts, devices, run_bench."""

import gc
import os
import weakref

import numpy as np
import pytest
import yaml

from kernbench.ccl.diagnostics import IpcqDeadlock
from kernbench.policy.placement.dp import DPPolicy
from kernbench.runtime_api.bench_runner import run_bench
from kernbench.runtime_api.context import RuntimeContext
from kernbench.runtime_api.types import DeviceSelector, resolve_device
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology.builder import resolve_topology
from support import (
    MACHINE,
    cube_rows,
    make_context,
    make_engine,
    one_pe,
    pe_columns,
    put,
    python,
    random,
)


def walk(node):
    yield node
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in children:
        yield from walk(child)


def copy_kernel(src, dst, n, tl):
    tl.store(dst, tl.load(src, shape=(n,), dtype="f16"))


class TestTopology:
    def test_an_absolute_path(self):
        t = resolve_topology(str(MACHINE))
        assert t.topology_obj is not None
        assert t.topology_obj.spec["system"]["sips"]["count"] == 2

    def test_a_path_relative_to_the_working_folder(self, machine_file, tmp_path, monkeypatch):
        path = machine_file(4, "torus_2d")
        monkeypatch.chdir(tmp_path)
        t = resolve_topology(os.path.basename(path))
        assert t.topology_obj.spec["system"]["sips"]["count"] == 4

    def test_spec_is_plain(self):
        spec = resolve_topology(str(MACHINE)).topology_obj.spec
        for node in walk(spec):
            assert type(node) in (dict, list, str, int, float, bool, type(None)), type(node)
        assert all(type(k) is str for n in walk(spec) if isinstance(n, dict) for k in n)
        yaml.safe_dump(spec)

    def test_spec_has_what_programs_read(self):
        spec = resolve_topology(str(MACHINE)).topology_obj.spec
        assert spec["system"]["sips"]["count"] == 2
        assert spec["system"]["sips"]["topology"] == "ring_1d"
        assert spec["sip"]["cube_mesh"]["w"] == 4
        assert spec["sip"]["cube_mesh"]["h"] == 4
        assert spec["cube"]["pe_layout"]["pe_per_corner"] == 2
        assert spec["cube"]["pe_layout"]["corners"] == ["NW", "NE", "SW", "SE"]

    def test_defaults_are_filled_in(self, tmp_path):
        (tmp_path / "few.yaml").write_text("sip: { cube_mesh: { w: 2, h: 3 } }\n")
        spec = resolve_topology(str(tmp_path / "few.yaml")).topology_obj.spec
        assert (spec["sip"]["cube_mesh"]["w"], spec["sip"]["cube_mesh"]["h"]) == (2, 3)
        assert spec["system"]["sips"]["count"] == 2
        assert spec["system"]["sips"]["topology"] == "ring_1d"
        assert spec["cube"]["pe_layout"]["pe_per_corner"] == 2
        assert spec["system"]["ns_per_mm"] == 0.01

    def test_the_keys_that_users_know(self, tmp_path):
        (tmp_path / "known.yaml").write_text(
            """
system:
  ns_per_mm: 0.01
  sips:
    count: 2
    topology: ring_1d
  components:
    switch: { kind: switch, impl: builtin.switch, attrs: { overhead_ns: 5.0 } }
sip:
  cube_mesh: { w: 4, h: 4 }
  ucie: { overhead_ns: 8.0 }
cube:
  pe_layout: { pe_per_corner: 2, corners: [NW, NE, SW, SE] }
  xbar: { overhead_ns: 2.0 }
  hbm_ctrl: { efficiency: 0.8 }
  xbar_to_hbm_bw_gbs: 256.0
"""
        )
        t = resolve_topology(str(tmp_path / "known.yaml"))
        assert t.topology_obj.spec["cube"]["hbm_ctrl"]["efficiency"] == 0.8
        with make_context(tmp_path / "known.yaml") as ctx:
            assert ctx.zeros((1, 8), dp=one_pe()).numpy().sum() == 0

    @pytest.mark.parametrize(
        "count, topology", [(2, "ring_1d"), (4, "torus_2d"), (4, "mesh_2d_no_wrap"), (1, "ring_1d")]
    )
    def test_dumped_files(self, tmp_path, machine_file, count, topology):
        spec = resolve_topology(machine_file(count, topology)).topology_obj.spec
        assert spec["system"]["sips"]["count"] == count
        assert spec["system"]["sips"]["topology"] == topology
        again = tmp_path / "again.yaml"
        again.write_text(yaml.dump(spec, default_flow_style=False))
        assert resolve_topology(str(again)).topology_obj.spec == spec
        make_engine(again)

    def test_a_missing_file_is_named(self, tmp_path):
        with pytest.raises(Exception, match="nowhere.yaml"):
            resolve_topology(str(tmp_path / "nowhere.yaml"))

    def test_a_wrong_file_is_refused_with_its_place(self, tmp_path):
        (tmp_path / "wrong.yaml").write_text("system:\n  sips: { cuont: 3 }\n")
        with pytest.raises(ValueError, match=r"wrong\.yaml:2") as caught:
            resolve_topology(str(tmp_path / "wrong.yaml"))
        assert "count" in str(caught.value)

    def test_changing_spec_is_a_copy_of_its_own(self):
        t = resolve_topology(str(MACHINE))
        t.topology_obj.spec["system"]["sips"]["count"] = 99
        other = resolve_topology(str(MACHINE))
        assert other.topology_obj.spec["system"]["sips"]["count"] == 2


class TestDevices:
    def test_selectors(self):
        assert resolve_device("all") == resolve_device("all")
        for text in ("all", "sip:0", "sip:1"):
            assert DeviceSelector(text) is not None
            assert resolve_device(text) is not None

    def test_a_context_of_one_sip(self):
        with make_context(device="sip:1") as ctx:
            t = ctx.zeros((1, 8), dp=one_pe())
            assert {s.sip for s in t._handle.shards} == {1}

    def test_a_selector_object(self):
        topo = resolve_topology(str(MACHINE)).topology_obj
        with RuntimeContext(
            engine=GraphEngine(topo), target_device=DeviceSelector("sip:1"), correlation_id="x",
            spec=topo.spec,
        ) as ctx:
            assert ctx.zeros((1, 8), dp=one_pe())._handle.shards[0].sip == 1

    def test_nonsense_is_refused(self):
        with pytest.raises(ValueError):
            resolve_device("cube:7")


class TestContexts:
    def test_enter_gives_itself(self):
        context = make_context()
        with context as inside:
            assert inside is context

    def test_attributes(self, ctx):
        for name in ("engine", "spec", "distributed", "ahbm", "accelerator", "multiprocessing"):
            assert getattr(ctx, name) is not None, name
        assert isinstance(ctx.engine, GraphEngine)

    def test_works_without_with(self, bare_ctx):
        t = bare_ctx.zeros((1, 16), dtype="f16", dp=one_pe(), name="x")
        u = bare_ctx.zeros((1, 16), dtype="f16", dp=one_pe(), name="y")
        t.copy_(bare_ctx.from_numpy(np.ones((1, 16), np.float16)))
        bare_ctx.launch("copy", copy_kernel, t, u, 16)
        assert (u.numpy() == 1).all()

    def test_spec_none_is_that_of_the_engine(self):
        engine = make_engine()
        ctx = RuntimeContext(engine=engine, target_device=resolve_device("all"),
                             correlation_id="x", spec=None)
        assert ctx.spec["system"]["sips"]["count"] == 2
        ctx = RuntimeContext(engine=make_engine(), target_device=resolve_device("all"),
                             correlation_id="x")
        assert ctx.spec["system"]["sips"]["count"] == 2

    def test_engine_takes_its_arguments_by_position_and_by_name(self):
        topo = resolve_topology(str(MACHINE)).topology_obj
        GraphEngine(topo)
        GraphEngine(topo, True)
        GraphEngine(topo, enable_data=True)
        GraphEngine(topo, enable_data=False)

    def test_several_at_once(self):
        first, second = make_context(), make_context()
        with first, second:
            a = put(first, np.full((1, 8), 1, np.float16))
            b = put(second, np.full((1, 8), 2, np.float16))
            assert (a.numpy() == 1).all() and (b.numpy() == 2).all()
            before = second.engine._env.now
            first.launch("k", copy_kernel, a, a, 8)
            assert second.engine._env.now == before

    def test_one_after_the_other(self):
        times = set()
        for _ in range(3):
            with make_context() as ctx:
                a = put(ctx, random((1, 64)))
                ctx.launch("k", copy_kernel, a, a, 64)
                times.add(ctx.engine._env.now)
        assert len(times) == 1

    def test_a_tensor_of_another_context_is_refused(self, ctx):
        with make_context() as other:
            t = other.zeros((1, 8), dp=one_pe())
            with pytest.raises((ValueError, RuntimeError)):
                ctx.launch("k", copy_kernel, t, t, 8)

    def test_after_leaving(self):
        """What was read stays; what was not is read or refused."""
        with make_context() as ctx:
            t = put(ctx, np.ones((1, 8), np.float16))
            a = t.numpy()
        assert (a == 1).all()
        try:
            assert (t.numpy() == 1).all()
        except RuntimeError:
            pass

    def test_two_contexts_on_one_engine(self):
        engine = make_engine()
        contexts = [RuntimeContext(engine=engine, target_device=resolve_device("all"),
                                   correlation_id=str(i), spec=None) for i in range(2)]
        tensors = [put(ctx, np.full((1, 8), i, np.float16)) for i, ctx in enumerate(contexts)]
        assert tensors[0].va != tensors[1].va
        for i, ctx in enumerate(contexts):
            ctx.launch("k", copy_kernel, tensors[i], tensors[i], 8)
            assert (tensors[i].numpy() == i).all()

    def test_one_context_after_the_other_on_one_engine(self, write_ccl):
        write_ccl("intercube_allreduce")
        engine = make_engine()
        for _ in range(2):
            with RuntimeContext(engine=engine, target_device=resolve_device("all"),
                                correlation_id="x", spec=None) as ctx:
                ctx.distributed.init_process_group(backend="ahbm")
                assert ctx.distributed.get_world_size() == 2

    def test_leaving_by_an_exception(self):
        with pytest.raises(KeyError):
            with make_context() as ctx:
                ctx.zeros((1, 8), dp=one_pe())
                raise KeyError("x")

    def test_one_that_is_never_closed_is_collected(self):
        ctx = make_context()
        t = ctx.zeros((1, 8), dp=one_pe())
        dead = weakref.ref(ctx)
        del ctx, t
        gc.collect()
        assert dead() is None

    def test_one_that_is_never_used_is_collected(self):
        ctx = make_context()
        dead = weakref.ref(ctx)
        del ctx
        gc.collect()
        assert dead() is None


class TestEngine:
    def test_time_is_a_float_in_ns_and_grows(self, ctx):
        env = ctx.engine._env
        assert type(env.now) is float
        a = ctx.zeros((1, 1024), dp=one_pe())
        before = env.now
        ctx.launch("k", copy_kernel, a, a, 1024)
        latency = ctx.engine._env.now - before
        assert latency > 500  # what io_cpu and m_cpu take
        assert latency < 1e5

    def test_results_are_pairs(self, ctx):
        a = ctx.zeros((1, 64), dp=one_pe())
        ctx.launch("k", copy_kernel, a, a, 64)
        results = ctx.engine._results
        assert isinstance(results, dict) and results
        launches = 0
        for value in results.values():
            assert isinstance(value, tuple) and len(value) == 2
            trace = value[1]
            if isinstance(trace, dict):
                assert type(trace["total_ns"]) is float and trace["total_ns"] > 0
                assert "pe_exec_ns" in trace
                if trace["pe_exec_ns"] is not None:
                    assert 0 < trace["pe_exec_ns"] < trace["total_ns"]
                    launches += 1
        assert launches >= 1

    def test_components(self, ctx):
        queues = [n for n in ctx.engine._components if n.endswith(".pe_ipcq")]
        assert len(queues) == 256
        assert "sip0.cube5.pe0.pe_ipcq" in queues and "sip1.cube15.pe7.pe_ipcq" in queues

    def test_get_completion(self, ctx):
        a = ctx.zeros((1, 64), dp=one_pe())
        [(handle, sip, meta)] = ctx.launch("k", copy_kernel, a, a, 64, _defer_wait=True)
        ctx.wait(handle, _meta=meta)
        completion, trace = ctx.engine.get_completion(handle)
        assert completion.ok
        assert trace["total_ns"] > 0

    def test_run_is_deterministic(self):
        def once():
            with make_context() as ctx:
                x = put(ctx, random((16, 64), 3), DPPolicy(cube="row_wise", pe="column_wise"))
                ctx.launch("k", lambda p, tl: tl.store(p, tl.exp(tl.load(p, (1, 8), "f16"))), x)
                return ctx.engine._env.now, x.numpy().tobytes()

        assert once() == once()


    def test_surroundings_change_nothing(self, tmp_path):
        """Hash seeds, optimization, the collector, a tracer."""
        program = """
import gc, hashlib, sys
import numpy as np
from support import *
exec(sys.argv[1])
write_ccl("ccl.yaml", "intercube_allreduce")
with make_context() as ctx:
    ctx.distributed.init_process_group(backend="ahbm")
    digest = hashlib.sha256()
    def worker(rank):
        ctx.ahbm.set_device(rank)
        t = put(ctx, random((16, 64), rank), cube_rows())
        ctx.distributed.all_reduce(t)
        names = {str(i): i for i in range(50)}
        def kernel(p, tl):
            at = p + tl.program_id(1) * 128
            v = tl.load(at, (64,), "f16")
            for i in {str(tl.program_id(1) + i) for i in range(5)}:
                v = tl.softmax(v * 0.5)
            tl.store(at, v)
        ctx.launch("k", kernel, t)
        digest.update(t.numpy().tobytes())
    ctx.multiprocessing.spawn(worker, nprocs=2)
    print(ctx.engine._env.now, digest.hexdigest())
"""
        outputs = set()
        for seed, option, statement in (("0", "-B", ""), ("1", "-O", "gc.disable()"),
                                        ("2", "-OO", "gc.set_threshold(1)"),
                                        ("3", "-B", "sys.settrace(lambda *a: None)")):
            outputs.add(python(option, "-c", program, statement, cwd=tmp_path,
                               PYTHONHASHSEED=seed).stdout)
        assert len(outputs) == 1


class TestMemoryStore:
    def test_what_it_writes_the_host_and_kernels_see(self, ctx):
        t = ctx.zeros((1, 8), dp=one_pe())
        u = ctx.zeros((1, 8), dp=one_pe())
        ctx.engine.memory_store.write("hbm", t._handle.va_base, np.arange(8, dtype=np.float16))
        assert (t.numpy() == np.arange(8)).all()
        ctx.launch("k", copy_kernel, t, u, 8)
        assert (u.numpy() == np.arange(8)).all()

    def test_it_reads_what_kernels_stored(self, ctx):
        t = put(ctx, random((1, 8)))
        u = ctx.zeros((1, 8), dp=one_pe())
        ctx.launch("k", copy_kernel, t, u, 8)
        store = ctx.engine.memory_store
        got = store.read("hbm", u._handle.va_base, shape=(8,), dtype=np.float16)
        assert isinstance(got, np.ndarray) and got.shape == (8,) and got.dtype == np.float16
        assert (got == random((1, 8))[0]).all()

    def test_dtype_by_the_simulators_name(self, ctx):
        t = put(ctx, random((1, 8)))
        got = ctx.engine.memory_store.read("hbm", t._handle.va_base, shape=(1, 8), dtype="f16")
        assert got.dtype == np.float16 and (got == random((1, 8))).all()

    def test_virtual_addresses_of_shards(self, ctx):
        n = 16
        a = np.arange(8 * n, dtype=np.float16).reshape(1, 8 * n)
        t = put(ctx, a, pe_columns())
        for r in range(8):
            got = ctx.engine.memory_store.read(
                "hbm", t._handle.va_base + r * n * 2, shape=(n,), dtype=np.float16
            )
            assert (got == a[0, r * n:(r + 1) * n]).all()
            ctx.engine.memory_store.write(
                "hbm", t._handle.va_base + r * n * 2, np.full(n, r, np.float16)
            )
        assert (t.numpy() == np.repeat(np.arange(8), n)).all()

    def test_physical_addresses(self, ctx):
        a = np.arange(64, dtype=np.float16).reshape(1, 64)
        t = put(ctx, a, pe_columns())
        for shard in t._handle.shards:
            got = ctx.engine.memory_store.read("hbm", shard.pa, shape=(8,), dtype=np.float16)
            assert (got == a[0, shard.offset_bytes // 2:][:8]).all()
        ctx.engine.memory_store.write("hbm", t._handle.shards[3].pa, np.zeros(8, np.float16))
        assert (t.numpy()[0, 24:32] == 0).all()

    def test_all_copies_of_a_replicated_tensor_are_written(self, ctx):
        t = ctx.zeros((1, 8), dp=DPPolicy(cube="replicate", pe="replicate", num_cubes=2))
        ctx.engine.memory_store.write("hbm", t._handle.va_base, np.full(8, 3, np.float16))
        for shard in t._handle.shards:
            got = ctx.engine.memory_store.read("hbm", shard.pa, shape=(8,), dtype=np.float16)
            assert (got == 3).all()
        first = t._handle.shards[0]
        ctx.engine.memory_store.write("hbm", first.pa, np.full(8, 4, np.float16))
        got = ctx.engine.memory_store.read("hbm", t._handle.va_base, shape=(8,), dtype=np.float16)
        assert (got == 4).all()

    def test_it_takes_no_simulated_time(self, ctx):
        t = ctx.zeros((1, 8), dp=one_pe())
        t.numpy()
        before = ctx.engine._env.now
        ctx.engine.memory_store.write("hbm", t._handle.va_base, np.ones(8, np.float16))
        ctx.engine.memory_store.read("hbm", t._handle.va_base, shape=(8,), dtype=np.float16)
        assert ctx.engine._env.now == before


def factory(topology, device):
    return GraphEngine(getattr(topology, "topology_obj", topology), enable_data=True)


class TestRunBench:
    def run(self, bench, **more):
        return run_bench(
            topology=resolve_topology(str(MACHINE)),
            bench_fn=bench,
            device=more.pop("device", resolve_device("all")),
            engine_factory=more.pop("engine_factory", factory),
        )

    def test_result(self):
        def bench(torch):
            x = torch.zeros((1, 64), dtype="f16", dp=one_pe(), name="x")
            torch.launch("first", copy_kernel, x, x, 64)
            torch.launch("second", copy_kernel, x, x, 64)

        r = self.run(bench)
        assert r.completion.ok is True
        kernels = [t for t in r.traces if t["phase"] == "kernel"]
        assert [t["name"] for t in kernels] == ["first", "second"]
        for t in kernels:
            assert type(t) is dict
            assert t["sip"] == 0
            assert "target_pe" in t
            assert type(t["total_ns"]) is float and t["total_ns"] > 0
            assert t["pe_exec_ns"] is None or 0 < t["pe_exec_ns"] < t["total_ns"]

    def test_the_bench_gets_a_context(self):
        seen = []

        def bench(torch):
            seen.append(torch)
            assert torch.spec is not None
            assert (torch.spec or {})["system"]["sips"]["count"] == 2
            for name in ("engine", "distributed", "ahbm", "accelerator", "multiprocessing"):
                assert getattr(torch, name) is not None

        self.run(bench)
        assert isinstance(seen[0], RuntimeContext)

    def test_the_factory_is_called_by_position(self):
        calls = []

        def make(*args, **kwargs):
            calls.append((args, kwargs))
            return factory(*args)

        topology = resolve_topology(str(MACHINE))
        device = resolve_device("all")
        run_bench(topology=topology, bench_fn=lambda torch: None, device=device,
                  engine_factory=make)
        [(args, kwargs)] = calls
        assert args == (topology, device) and not kwargs

    def test_the_context_uses_the_factorys_engine(self):
        engines = []

        def make(t, d):
            engines.append(factory(t, d))
            return engines[-1]

        def bench(torch):
            assert torch.engine is engines[0]

        self.run(bench, engine_factory=make)

    def test_one_sip(self):
        def bench(torch):
            assert torch.zeros((1, 8), dp=one_pe())._handle.shards[0].sip == 1

        self.run(bench, device=resolve_device("sip:1"))

    def test_an_exception_comes_out(self):
        class Mine(Exception):
            pass

        def bench(torch):
            raise Mine("of the bench")

        with pytest.raises(Mine, match="of the bench"):
            self.run(bench)

    def test_a_bench_that_is_no_plain_function(self):
        def run(torch):
            yield torch

        with pytest.raises(TypeError, match="plain function"):
            run_bench(topology=resolve_topology(str(MACHINE)), bench_fn=run)

    def test_an_assertion_comes_out(self):
        def bench(torch):
            assert torch.zeros((1, 8), dp=one_pe()).numpy().sum() == 1, "sum is wrong"

        with pytest.raises(AssertionError, match="sum is wrong"):
            self.run(bench)

    def test_a_deadlock_comes_out(self, write_ccl):
        write_ccl("ring_allreduce_tcm")

        def kernel(p, tl):
            tl.recv(dir="W", shape=(8,), dtype="f16")

        def bench(torch):
            torch.install_ipcq(algorithm="ring_allreduce_tcm", world_size_override=8)
            x = torch.zeros((1, 64), dtype="f16", dp=pe_columns(), name="x")
            torch.launch("waits", kernel, x)

        with pytest.raises(IpcqDeadlock):
            self.run(bench)

    def test_traces_have_the_launch_behind_a_collective(self, write_ccl):
        write_ccl("intercube_allreduce")

        def bench(torch):
            torch.distributed.init_process_group(backend="ahbm")

            def worker(rank):
                torch.ahbm.set_device(rank)
                t = torch.zeros((16, 8), dtype="f16", dp=cube_rows())
                torch.distributed.all_reduce(t, op="sum")

            torch.multiprocessing.spawn(worker, nprocs=2)

        r = self.run(bench)
        mine = [t for t in r.traces if t["name"] == "intercube_allreduce"]
        assert sorted(t["sip"] for t in mine) == [0, 1]
        assert all(t["phase"] == "kernel" and t["total_ns"] > 0 for t in mine)

    def test_a_bench_that_launches_nothing(self):
        r = self.run(lambda torch: None)
        assert r.completion.ok
        assert not r.traces
