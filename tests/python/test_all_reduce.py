"""All-reduce by every shipped algorithm, on rings, tori and meshes of SIPs, in every memory."""

import importlib

import numpy as np
import pytest

from kernbench.ccl.install import install_ipcq, load_ccl_config, resolve_algorithm_config
from kernbench.ccl.sfr_config import configure_sfr_intercube_multisip
from kernbench.policy.placement.dp import DPPolicy
from support import cube_rows, make_context, pe_columns, put, random

SIPS = [(1, "ring_1d"), (2, "ring_1d"), (3, "ring_1d"), (4, "torus_2d"), (4, "mesh_2d"),
        (4, "mesh_2d_no_wrap"), (9, "torus_2d")]


class TestIntercube:
    @pytest.mark.parametrize("count, topology", SIPS)
    @pytest.mark.parametrize("n_elem", [8, 128])
    def test_through_the_process_group(self, write_ccl, machine_file, count, topology, n_elem):
        write_ccl("intercube_allreduce", {"intercube_allreduce": {"n_elem": n_elem}})
        with make_context(machine_file(count, topology)) as ctx:
            ctx.distributed.init_process_group(backend="ahbm")
            results = {}

            def worker(rank):
                ctx.ahbm.set_device(rank)
                t = ctx.zeros((16, n_elem), dtype="f16", dp=cube_rows(), name=f"t{rank}")
                t.copy_(ctx.from_numpy(np.full((16, n_elem), rank + 1, np.float16)))
                ctx.distributed.all_reduce(t, op="sum")
                results[rank] = t.numpy()

            ctx.multiprocessing.spawn(worker, args=(), nprocs=count)
            want = 16 * sum(range(1, count + 1))
            assert sorted(results) == list(range(count))
            for got in results.values():
                assert (got == want).all()

    @pytest.mark.parametrize("count, topology", [(2, "ring_1d"), (4, "torus_2d"),
                                                 (4, "mesh_2d_no_wrap")])
    def test_launched_by_the_program_itself(self, write_ccl, machine_file, count, topology):
        """Install the queues, then launch the kernel SIP by SIP."""
        from kernbench.ccl.algorithms import intercube_allreduce as module

        n_elem = 8
        write_ccl("intercube_allreduce")
        with make_context(machine_file(count, topology)) as ctx:
            merged = resolve_algorithm_config(load_ccl_config(), "intercube_allreduce")
            plan = configure_sfr_intercube_multisip(ctx.engine, ctx.spec, merged)
            assert plan["world_size"] == count * 16
            kind = module.TOPO_NAME_TO_KIND[topology]
            w = h = 0 if kind == 0 else int(round(count ** 0.5))
            args = module.kernel_args(count, n_elem)
            assert args == (n_elem, 4, 4, args[3])
            tensors, pending = [], []
            for sip in range(count):
                ctx.ahbm.set_device(sip)
                t = ctx.zeros((16, n_elem), dtype="f16", dp=cube_rows(), name=f"t{sip}")
                t.copy_(ctx.from_numpy(np.full((16, n_elem), sip + 1, np.float16)))
                tensors.append(t)
            for sip, t in enumerate(tensors):
                ctx.ahbm.set_device(sip)
                pending += ctx.launch("intercube", module.kernel, t, n_elem, 4, 4, count, sip,
                                      kind, w, h, _defer_wait=True)
            for handle, _, meta in pending:
                ctx.wait(handle, _meta=meta)
            for t in tensors:
                assert (t.numpy() == 16 * sum(range(1, count + 1))).all()

    @pytest.mark.parametrize("root", [0, 5, 15])
    def test_any_root(self, write_ccl, root):
        write_ccl("intercube_allreduce", {"intercube_allreduce": {"root_cube": root}})
        with make_context() as ctx:
            ctx.distributed.init_process_group(backend="ahbm")

            def worker(rank):
                ctx.ahbm.set_device(rank)
                t = put(ctx, np.full((16, 8), rank + 1, np.float16), cube_rows())
                ctx.distributed.all_reduce(t)
                assert (t.numpy() == 48).all()

            ctx.multiprocessing.spawn(worker, nprocs=2)


def one_driver(ctx, algorithm, world, n_elem, policy):
    ctx.distributed.init_process_group(backend="ahbm")
    assert ctx.distributed.get_world_size() == world
    a = np.repeat(np.arange(1, world + 1, dtype=np.float16), n_elem).reshape(1, -1)
    t = put(ctx, a, policy)
    ctx.distributed.all_reduce(t, op="sum")
    assert (t.numpy() == sum(range(1, world + 1))).all(), algorithm


class TestRanksArePes:
    @pytest.mark.parametrize("buffer", ["tcm", "hbm", "sram"])
    def test_ring_over_8(self, write_ccl, buffer):
        name = f"ring_allreduce_{buffer}"
        write_ccl(name, {name: {"world_size": 8, "n_elem": 32}})
        with make_context() as ctx:
            one_driver(ctx, name, 8, 32, pe_columns())

    def test_ring_over_16(self, write_ccl):
        write_ccl("ring_allreduce_tcm", {"ring_allreduce_tcm": {"world_size": 16}})
        with make_context() as ctx:
            one_driver(ctx, "ring", 16, 8,
                       DPPolicy(cube="column_wise", pe="column_wise", num_cubes=2))

    def test_mesh_over_4(self, write_ccl):
        write_ccl("mesh_allreduce_4")
        with make_context() as ctx:
            one_driver(ctx, "mesh", 4, 16, pe_columns(4))

    def test_tree_over_7(self, write_ccl):
        write_ccl("tree_allreduce_7")
        with make_context() as ctx:
            one_driver(ctx, "tree", 7, 16, pe_columns(7))

    @pytest.mark.parametrize("world", [2, 3, 8])
    def test_tree_of_other_sizes(self, write_ccl, world):
        write_ccl("tree_allreduce_7", {"tree_allreduce_7": {"world_size": world}})
        with make_context() as ctx:
            one_driver(ctx, "tree", world, 16, pe_columns(world))

    def test_by_installing_and_launching(self, write_ccl):
        from kernbench.ccl.algorithms import ring_allreduce as module

        write_ccl("ring_allreduce_tcm")
        with make_context() as ctx:
            plan = ctx.install_ipcq(algorithm="ring_allreduce_tcm", world_size_override=8)
            assert plan["world_size"] == 8
            a = np.repeat(np.arange(1, 9, dtype=np.float16), 8).reshape(1, 64)
            t = put(ctx, a, pe_columns())
            ctx.launch("ring", module.kernel, t, *module.kernel_args(8, 8))
            assert (t.numpy() == 36).all()

    @pytest.mark.parametrize("world", [4, 8])
    def test_hello_send(self, write_ccl, world):
        from kernbench.ccl.algorithms import hello_send as module

        write_ccl("ring_allreduce_tcm")
        with make_context() as ctx:
            ctx.install_ipcq(algorithm="ring_allreduce_tcm", world_size_override=world)
            a = np.repeat(np.arange(world, dtype=np.float16), 8).reshape(1, -1)
            t = put(ctx, a, pe_columns(world))
            ctx.launch("hello", module.kernel, t, *module.kernel_args(world, 8))
            want = np.repeat((np.arange(world) - 1) % world, 8)
            assert (t.numpy()[0] == want).all()

    def test_hierarchical_on_2_x_2_x_4(self, write_ccl, tmp_path):
        (tmp_path / "small.yaml").write_text(
            "system: { sips: { count: 2, topology: ring_1d } }\n"
            "sip: { cube_mesh: { w: 2, h: 1 } }\n"
            "cube: { pe_layout: { pe_per_corner: 1, corners: [NW, NE, SW, SE] } }\n"
        )
        write_ccl("hierarchical_allreduce", {"hierarchical_allreduce": dict(
            module="kernbench.ccl.algorithms.hierarchical_allreduce",
            topology="hierarchical_3level", mapper="all_pes", n_elem=8)})
        with make_context(tmp_path / "small.yaml") as ctx:
            ctx.distributed.init_process_group(backend="ahbm")
            policy = DPPolicy(cube="row_wise", pe="column_wise")

            def worker(rank):
                ctx.ahbm.set_device(rank)
                a = np.zeros((2, 32), np.float16)
                for cube in range(2):
                    for pe in range(4):
                        a[cube, pe * 8:pe * 8 + 8] = rank * 8 + cube * 4 + pe + 1
                t = put(ctx, a, policy)
                ctx.distributed.all_reduce(t, op="sum")
                assert (t.numpy() == sum(range(1, 17))).all()

            ctx.multiprocessing.spawn(worker, nprocs=2)

    def test_ring_over_256(self, write_ccl):
        """Over the PEs of both SIPs: installed for all PEs, launched SIP by SIP."""
        from kernbench.ccl.algorithms import ring_allreduce as module

        write_ccl("ring_allreduce_tcm")
        with make_context(enable_data=False) as ctx:
            merged = resolve_algorithm_config(load_ccl_config(), "ring_allreduce_tcm")
            plan = install_ipcq(ctx.engine, ctx.spec, merged)
            assert plan["world_size"] == 256
            pending = []
            policy = DPPolicy(cube="column_wise", pe="column_wise")

            def kernel(p, n_elem, world, sip, tl):
                rank = tl.program_id(1) * 8 + tl.program_id(0)
                acc = tl.load(p + rank * n_elem * 2, shape=(n_elem,), dtype="f16")
                cur = acc
                for _ in range(world - 1):
                    tl.send(dir="E", src=cur)
                    cur = tl.recv(dir="W", shape=(n_elem,), dtype="f16")
                    acc = acc + cur
                tl.store(p + rank * n_elem * 2, acc)

            tensors = []
            for sip in range(2):
                ctx.ahbm.set_device(sip)
                tensors.append(ctx.zeros((1, 128 * 8), dtype="f16", dp=policy))
            for sip, t in enumerate(tensors):
                pending += ctx.launch("ring", kernel, t, 8, 256, sip, _defer_wait=True)
            for handle, _, meta in pending:
                assert ctx.wait(handle, _meta=meta).ok
        assert module.kernel.__name__


class TestModulesOfUsers:
    def module(self, tmp_path, monkeypatch, name, text):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()

    RING = """
def kernel_args(world_size, n_elem):
    return (n_elem, world_size)


def kernel(t_ptr, n_elem, world_size, tl):
    rank = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    mine = t_ptr + rank * n_elem * 2
    acc = tl.load(mine, shape=(n_elem,), dtype="f16")
    current = acc
    for _ in range(world_size - 1):
        tl.send(dir="E", src=current)
        current = tl.recv(dir="W", shape=(n_elem,), dtype="f16")
        acc = acc + current
    tl.store(mine, acc)
"""

    def test_any_importable_module(self, write_ccl, tmp_path, monkeypatch):
        self.module(tmp_path, monkeypatch, "my_ring_module", self.RING)
        write_ccl("mine", {"mine": dict(module="my_ring_module", topology="ring_1d",
                                        buffer_kind="tcm", n_elem=8, world_size=8)})
        with make_context() as ctx:
            one_driver(ctx, "mine", 8, 8, pe_columns())
            names = [t["name"] for _, t in ctx.engine._results.values() if isinstance(t, dict)
                     and "name" in t]
            assert "mine" in names

    def test_over_sips(self, write_ccl, tmp_path, monkeypatch, machine_file):
        text = self.RING.replace("rank = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)",
                                 "rank = 0")
        self.module(tmp_path, monkeypatch, "my_sip_ring", text)
        write_ccl("mine", {"mine": dict(module="my_sip_ring", topology="ring_1d",
                                        buffer_kind="tcm", n_elem=8)})
        from support import one_pe

        with make_context(machine_file(3, "ring_1d")) as ctx:
            ctx.distributed.init_process_group(backend="ahbm")

            def worker(rank):
                ctx.ahbm.set_device(rank)
                t = put(ctx, np.full((1, 8), rank + 1, np.float16), one_pe())
                ctx.distributed.all_reduce(t)
                assert (t.numpy() == 6).all()

            ctx.multiprocessing.spawn(worker, nprocs=3)

    def test_neighbours_of_its_own(self, write_ccl, tmp_path, monkeypatch):
        self.module(tmp_path, monkeypatch, "my_reversed_ring", self.RING + """

def neighbors(rank, world_size, base_map):
    assert set(base_map) == {"E", "W"}
    return {"E": (rank - 1) % world_size, "W": (rank + 1) % world_size}
""")
        write_ccl("mine", {"mine": dict(module="my_reversed_ring", topology="ring_1d",
                                        buffer_kind="tcm", n_elem=8, world_size=4)})
        with make_context() as ctx:
            one_driver(ctx, "mine", 4, 8, pe_columns(4))

    def test_the_engines_name_of_connections(self, write_ccl, tmp_path, monkeypatch):
        """A copy of hierarchical_allreduce, with the topology that the engine's one has."""
        self.module(tmp_path, monkeypatch, "my_levels",
                    "from kernbench.ccl.algorithms.hierarchical_allreduce import *\n"
                    "from kernbench.ccl.algorithms.hierarchical_allreduce import kernel_args, "
                    "kernel, neighbors\n")
        write_ccl("mine", {"mine": dict(module="my_levels", topology="hierarchical_3level",
                                        n_elem=8, world_size=8)})
        with make_context() as ctx:
            one_driver(ctx, "mine", 8, 8, pe_columns())

    def test_appended_arguments(self, write_ccl, tmp_path, monkeypatch, machine_file):
        self.module(tmp_path, monkeypatch, "my_topo_kernel", """
TOPO_NAME_TO_KIND = {"ring_1d": 0, "torus_2d": 1, "mesh_2d": 1, "mesh_2d_no_wrap": 2}
seen = []


def kernel_args(world_size, n_elem):
    return (n_elem, world_size)


def kernel(t_ptr, n_elem, world_size, sip_rank, kind, w, h, tl):
    seen.append((n_elem, world_size, sip_rank, kind, w, h))
    tl.store(t_ptr, tl.load(t_ptr, shape=(n_elem,), dtype="f16"))
""")
        write_ccl("mine", {"mine": dict(module="my_topo_kernel", topology="ring_1d",
                                        buffer_kind="tcm", n_elem=8)})
        import my_topo_kernel
        from support import one_pe

        for topology, count, want in (("ring_1d", 2, (0, 0, 0)), ("torus_2d", 4, (1, 2, 2)),
                                      ("mesh_2d_no_wrap", 4, (2, 2, 2))):
            my_topo_kernel.seen.clear()
            with make_context(machine_file(count, topology)) as ctx:
                ctx.distributed.init_process_group(backend="ahbm")

                def worker(rank):
                    ctx.ahbm.set_device(rank)
                    ctx.distributed.all_reduce(put(ctx, np.ones((1, 8), np.float16), one_pe()))

                ctx.multiprocessing.spawn(worker, nprocs=count)
            assert sorted(my_topo_kernel.seen) == [
                (8, count, sip) + want for sip in range(count)
            ], topology

    def test_n_elem_is_that_of_the_first_shard(self, write_ccl, tmp_path, monkeypatch):
        self.module(tmp_path, monkeypatch, "my_counting", self.RING + """
counts = []
plain = kernel_args


def kernel_args(world_size, n_elem):
    counts.append(n_elem)
    return plain(world_size, n_elem)
""")
        write_ccl("mine", {"mine": dict(module="my_counting", topology="ring_1d",
                                        buffer_kind="tcm", n_elem=8, world_size=8)})
        import my_counting

        with make_context() as ctx:
            one_driver(ctx, "mine", 8, 24, pe_columns())
        assert set(my_counting.counts) == {24}

    def test_one_that_is_not_there(self, ctx, write_ccl):
        write_ccl("mine", {"mine": dict(module="no_such_module_anywhere", topology="ring_1d")})
        with pytest.raises(Exception, match="no_such_module_anywhere"):
            ctx.distributed.init_process_group(backend="ahbm")

    def test_an_exception_in_its_kernel(self, write_ccl, tmp_path, monkeypatch):
        self.module(tmp_path, monkeypatch, "my_failing", """
def kernel_args(world_size, n_elem):
    return (n_elem,)


def kernel(t_ptr, n_elem, tl):
    if tl.program_id(0) == 2:
        raise ZeroDivisionError("on PE 2")
    tl.recv(dir="W", shape=(n_elem,), dtype="f16")
""")
        write_ccl("mine", {"mine": dict(module="my_failing", topology="ring_1d",
                                        buffer_kind="tcm", n_elem=8, world_size=4)})
        with make_context() as ctx:
            with pytest.raises(ZeroDivisionError, match="on PE 2"):
                one_driver(ctx, "mine", 4, 8, pe_columns(4))


class TestValues:
    def test_random_values(self, write_ccl):
        write_ccl("ring_allreduce_tcm", {"ring_allreduce_tcm": {"world_size": 8}})
        with make_context() as ctx:
            ctx.distributed.init_process_group(backend="ahbm")
            a = random((1, 64), 9)
            t = put(ctx, a, pe_columns())
            ctx.distributed.all_reduce(t)
            got = t.numpy().reshape(8, 8).astype(np.float32)
            want = a.reshape(8, 8).astype(np.float32).sum(0)
            assert np.allclose(got, want, atol=2e-2)
