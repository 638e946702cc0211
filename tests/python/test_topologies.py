"""Neighbour functions, algorithm modules, and the mock runtime: no engine is needed."""

import importlib

import numpy as np
import pytest

from kernbench.ccl.topologies import (
    _BUILTIN,
    mesh_2d,
    mesh_2d_no_wrap,
    none,
    resolve_topology,
    ring_1d,
    ring_1d_unidir,
    torus_2d,
    tree_binary,
)
from kernbench.ccl.testing import run_kernel_in_mock
from kernbench.common.ipcq_types import IpcqInvalidDirection
from kernbench.common.pe_commands import TensorHandle
from support import random

OPPOSITE = {"N": "S", "S": "N", "E": "W", "W": "E"}


class TestTopologies:
    @pytest.mark.parametrize("world", [2, 3, 8])
    def test_ring(self, world):
        for r in range(world):
            assert ring_1d(r, world) == {"E": (r + 1) % world, "W": (r - 1) % world}

    def test_one_way_ring(self):
        for r in range(4):
            assert ring_1d_unidir(r, 4)["E"] == (r + 1) % 4
            assert "W" not in ring_1d_unidir(r, 4)

    @pytest.mark.parametrize("f", [mesh_2d, torus_2d])
    def test_mesh_wraps(self, f):
        assert f(0, 9) == {"N": 6, "S": 3, "E": 1, "W": 2}
        assert f(4, 9) == {"N": 1, "S": 7, "E": 5, "W": 3}
        assert f(8, 9) == {"N": 5, "S": 2, "E": 6, "W": 7}

    def test_mesh_without_wrap(self):
        assert mesh_2d_no_wrap(0, 9) == {"S": 3, "E": 1}
        assert mesh_2d_no_wrap(4, 9) == {"N": 1, "S": 7, "E": 5, "W": 3}
        assert mesh_2d_no_wrap(8, 9) == {"N": 5, "W": 7}

    @pytest.mark.parametrize("f", [mesh_2d, torus_2d, mesh_2d_no_wrap])
    def test_not_square(self, f):
        with pytest.raises(ValueError):
            f(0, 6)

    def test_tree(self):
        assert tree_binary(0, 7) == {"child_left": 1, "child_right": 2}
        assert tree_binary(1, 7) == {"parent": 0, "child_left": 3, "child_right": 4}
        assert tree_binary(6, 7) == {"parent": 2}
        assert tree_binary(1, 4) == {"parent": 0, "child_left": 3}
        assert tree_binary(0, 1) == {}

    def test_none(self):
        assert none(0, 4) == {} and none(3, 4) == {}

    @pytest.mark.parametrize("f", [ring_1d, mesh_2d, torus_2d, mesh_2d_no_wrap])
    @pytest.mark.parametrize("world", [4, 16])
    def test_what_goes_out_comes_back(self, f, world):
        for r in range(world):
            for d, peer in f(r, world).items():
                assert f(peer, world)[OPPOSITE[d]] == r

    def test_by_name(self):
        for name in ("ring_1d", "ring_1d_unidir", "mesh_2d", "torus_2d", "mesh_2d_no_wrap",
                     "tree_binary", "none"):
            assert _BUILTIN[name](0, 4) == resolve_topology(name)(0, 4)
        assert resolve_topology("ring_1d")(1, 8) == {"E": 2, "W": 0}

    def test_an_unknown_name(self):
        with pytest.raises((ValueError, KeyError), match="star"):
            resolve_topology("star")

    def test_a_modules_neighbours(self):
        class Module:
            @staticmethod
            def neighbors(rank, world_size, base_map):
                return dict(base_map, N=(rank + 2) % world_size)

        f = resolve_topology("ring_1d", Module)
        assert f(0, 4) == {"E": 1, "W": 3, "N": 2}
        assert resolve_topology("ring_1d", algo_module=object())(0, 4) == {"E": 1, "W": 3}


MODULES = ("hello_send", "ring_allreduce", "mesh_allreduce", "tree_allreduce",
           "hierarchical_allreduce", "intercube_allreduce")


def module(name):
    return importlib.import_module(f"kernbench.ccl.algorithms.{name}")


class TestAlgorithmModules:
    @pytest.mark.parametrize("name", MODULES)
    def test_what_they_have(self, name):
        m = module(name)
        assert callable(m.kernel) and type(m.kernel.__name__) is str
        assert type(m.kernel).__name__ == "function"
        assert m.__doc__
        assert callable(m.kernel_args)

    def test_kernel_args(self):
        assert module("hello_send").kernel_args(4, 8) == (8,)
        assert module("ring_allreduce").kernel_args(4, 8) == (8, 4)
        assert module("mesh_allreduce").kernel_args(16, 8) == (8, 4)
        assert module("tree_allreduce").kernel_args(7, 8) == (8, 7)
        assert module("intercube_allreduce").kernel_args(2, 8) == (8, 4, 4, 2)
        n_elem, pes, cubes, sips = module("hierarchical_allreduce").kernel_args(256, 8)
        assert n_elem == 8 and pes * cubes * sips == 256

    def test_not_square(self):
        with pytest.raises(ValueError):
            module("mesh_allreduce").kernel_args(6, 8)

    def test_topology_kinds(self):
        assert module("intercube_allreduce").TOPO_NAME_TO_KIND == {
            "ring_1d": 0, "torus_2d": 1, "mesh_2d": 1, "mesh_2d_no_wrap": 2
        }
        for name in ("ring_allreduce", "mesh_allreduce", "tree_allreduce", "hello_send"):
            assert not hasattr(module(name), "TOPO_NAME_TO_KIND")

    def test_hierarchical_has_neighbours(self):
        assert callable(module("hierarchical_allreduce").neighbors)

    def test_the_other_name_of_intercube(self):
        m = module("intercube_allreduce")
        assert callable(m.allreduce_intercube_multidevice)
        assert m.allreduce_intercube_multidevice.__name__


class TestMock:
    def inputs(self, world, n):
        return [np.full(n, r + 1, np.float16) for r in range(world)]

    def run(self, name, world, topology, n=8, **more):
        m = module(name)
        return run_kernel_in_mock(
            kernel_fn=m.kernel, world_size=world, topology=topology, inputs=self.inputs(world, n),
            kernel_args=m.kernel_args(world, n), algo_module=m, **more,
        )

    @pytest.mark.parametrize("name, world, topology", [
        ("ring_allreduce", 2, "ring_1d"), ("ring_allreduce", 8, "ring_1d"),
        ("mesh_allreduce", 4, "mesh_2d"), ("mesh_allreduce", 16, "torus_2d"),
        ("tree_allreduce", 7, "tree_binary"), ("tree_allreduce", 4, "tree_binary"),
    ])
    def test_all_reduce(self, name, world, topology):
        got = self.run(name, world, topology)
        assert isinstance(got, list) and len(got) == world
        for a in got:
            assert a.shape == (8,) and a.dtype == np.float16
            assert (a == world * (world + 1) // 2).all()

    def test_hello_send(self):
        got = self.run("hello_send", 4, "ring_1d")
        assert [a[0] for a in got] == [4, 1, 2, 3]

    def test_pes_of_several_cubes(self):
        got = self.run("ring_allreduce", 8, "ring_1d", pes_per_cube=4)
        assert all((a == 36).all() for a in got)

    def test_ids(self):
        def kernel(p, tl):
            seen.append((tl.rank, tl.world_size, tl.program_id(0), tl.program_id(1),
                         tl.num_programs(0)))

        seen = []
        run_kernel_in_mock(kernel_fn=kernel, world_size=4, topology="none",
                           inputs=self.inputs(4, 8))
        assert sorted(seen) == [(r, 4, r, 0, 4) for r in range(4)]
        seen = []
        run_kernel_in_mock(kernel_fn=kernel, world_size=4, topology="none",
                           inputs=self.inputs(4, 8), pes_per_cube=2)
        assert sorted(s[:4] for s in seen) == [(r, 4, r % 2, r // 2) for r in range(4)]

    def test_the_first_argument_is_0(self):
        seen = []

        def kernel(p, a, b, tl):
            seen.append((p, a, b))

        run_kernel_in_mock(kernel_fn=kernel, world_size=1, topology="none",
                           inputs=self.inputs(1, 8), kernel_args=(3, "x"))
        assert seen == [(0, 3, "x")]

    def test_inputs_at_their_slices(self):
        def kernel(p, n, tl):
            mine = p + tl.rank * n * 2
            tl.store(mine, tl.load(mine, shape=(n,), dtype="f16") * 2)

        got = run_kernel_in_mock(kernel_fn=kernel, world_size=3, topology="none",
                                 inputs=self.inputs(3, 8), kernel_args=(8,))
        assert [a[0] for a in got] == [2, 4, 6]

    def test_what_is_not_stored_is_the_input(self):
        a = random((2, 4), 1)
        [got] = run_kernel_in_mock(kernel_fn=lambda p, tl: None, world_size=1, topology="none",
                                   inputs=[a])
        assert got.shape == (2, 4) and got.dtype == a.dtype and (got == a).all()

    def test_load_of_nothing_gives_zeros(self):
        def kernel(p, tl):
            v = tl.load(1 << 20, shape=(8,), dtype="f16")
            tl.store(p + tl.rank * 16, v + 5)

        got = run_kernel_in_mock(kernel_fn=kernel, world_size=2, topology="none",
                                 inputs=self.inputs(2, 8))
        assert all((a == 5).all() for a in got)

    @pytest.mark.parametrize("dtype, name", [(np.float32, "f32"), (np.int32, "i32")])
    def test_other_dtypes(self, dtype, name):
        def kernel(p, tl):
            mine = p + tl.rank * 32
            tl.send(dir="E", src=tl.load(mine, shape=(8,), dtype=name))
            tl.store(mine, tl.recv(dir="W", shape=(8,), dtype=name))

        ins = [np.full(8, r, dtype) for r in range(4)]
        got = run_kernel_in_mock(kernel_fn=kernel, world_size=4, topology="ring_1d", inputs=ins)
        assert [a.dtype for a in got] == [dtype] * 4 and [a[0] for a in got] == [3, 0, 1, 2]

    def test_unknown_direction(self):
        def kernel(p, tl):
            tl.send(dir="N", src=tl.load(p, shape=(8,), dtype="f16"))

        with pytest.raises(IpcqInvalidDirection):
            run_kernel_in_mock(kernel_fn=kernel, world_size=2, topology="ring_1d",
                               inputs=self.inputs(2, 8))

    def test_deadlock(self):
        def kernel(p, tl):
            tl.recv(dir="W", shape=(8,), dtype="f16")

        with pytest.raises(RuntimeError, match="deadlock"):
            run_kernel_in_mock(kernel_fn=kernel, world_size=2, topology="ring_1d",
                               inputs=self.inputs(2, 8))

    def test_number_of_inputs(self):
        with pytest.raises(ValueError):
            run_kernel_in_mock(kernel_fn=lambda p, tl: None, world_size=3, topology="ring_1d",
                               inputs=self.inputs(2, 8))

    def test_an_exception_in_a_kernel(self):
        def kernel(p, tl):
            if tl.rank == 1:
                raise ZeroDivisionError("rank 1")
            tl.recv(dir="W", shape=(8,), dtype="f16")

        with pytest.raises(ZeroDivisionError, match="rank 1"):
            run_kernel_in_mock(kernel_fn=kernel, world_size=2, topology="ring_1d",
                               inputs=self.inputs(2, 8))

    def test_recv_without_a_direction_and_async(self):
        def kernel(p, tl):
            mine = p + tl.rank * 16
            f = tl.recv_async(dir="W", shape=(8,), dtype="f16")
            tl.send(dir="E", src=tl.load(mine, shape=(8,), dtype="f16"))
            tl.send(dir="W", src=tl.load(mine, shape=(8,), dtype="f16"))
            tl.store(mine, tl.wait(f) + tl.recv(shape=(8,), dtype="f16"))

        got = run_kernel_in_mock(kernel_fn=kernel, world_size=4, topology="ring_1d",
                                 inputs=self.inputs(4, 8))
        assert [a[0] for a in got] == [4 + 2, 1 + 3, 2 + 4, 3 + 1]

    def test_send_from_memory_and_a_made_handle(self):
        def kernel(p, tl):
            mine = p + tl.rank * 16
            tl.send(dir="E", src_addr=mine, nbytes=16, shape=(8,), dtype="f16", space="hbm")
            h = TensorHandle(id="h", addr=mine, shape=(8,), dtype="f16", nbytes=16, space="hbm")
            tl.send(dir="E", src=h)
            a = tl.recv(dir="W", shape=(8,), dtype="f16")
            b = tl.recv(dir="W", shape=(8,), dtype="f16")
            tl.store(mine, a + b)

        got = run_kernel_in_mock(kernel_fn=kernel, world_size=4, topology="ring_1d",
                                 inputs=self.inputs(4, 8))
        assert [a[0] for a in got] == [8, 2, 4, 6]

    def test_data_of_values(self):
        seen = []

        def kernel(p, tl):
            v = tl.load(p, shape=(8,), dtype="f16")
            seen.append(np.array((v + 1).data))
            seen.append(np.array(v.data))

        run_kernel_in_mock(kernel_fn=kernel, world_size=1, topology="none",
                           inputs=[np.arange(8, dtype=np.float16)])
        assert (seen[0] == np.arange(1, 9)).all() and (seen[1] == np.arange(8)).all()

    def test_math(self):
        def kernel(p, tl):
            v = tl.load(p, shape=(8,), dtype="f16")
            tl.store(p, tl.maximum(tl.exp(v * 0), v) + tl.cdiv(7, 2))

        [got] = run_kernel_in_mock(kernel_fn=kernel, world_size=1, topology="none",
                                   inputs=[np.arange(8, dtype=np.float16)])
        assert (got == np.maximum(1, np.arange(8)) + 4).all()

    def test_a_modules_neighbours(self):
        class Reversed:
            @staticmethod
            def neighbors(rank, world_size, base_map):
                return {"E": (rank - 1) % world_size, "W": (rank + 1) % world_size}

        m = module("hello_send")
        got = run_kernel_in_mock(kernel_fn=m.kernel, world_size=4, topology="ring_1d",
                                 inputs=self.inputs(4, 8), kernel_args=(8,), algo_module=Reversed)
        assert [a[0] for a in got] == [2, 3, 4, 1]

    def test_directions_without_an_opposite(self):
        """Whichever direction of the peer points back."""
        def kernel(p, tl):
            mine = p + tl.rank * 16
            if tl.rank == 0:
                v = tl.recv(dir="child_left", shape=(8,), dtype="f16")
                tl.send(dir="child_right", src=v)
            elif tl.rank == 1:
                tl.send(dir="parent", src=tl.load(mine, shape=(8,), dtype="f16"))
            else:
                tl.store(mine, tl.recv(dir="parent", shape=(8,), dtype="f16"))

        got = run_kernel_in_mock(kernel_fn=kernel, world_size=3, topology="tree_binary",
                                 inputs=self.inputs(3, 8))
        assert [a[0] for a in got] == [1, 2, 2]

    def test_intercube(self):
        m = module("intercube_allreduce")
        n = 8

        class Mesh:
            @staticmethod
            def neighbors(rank, world_size, base_map):
                row, col = divmod(rank, 4)
                out = {"N": rank - 4 if row else None, "S": rank + 4 if row < 3 else None,
                       "W": rank - 1 if col else None, "E": rank + 1 if col < 3 else None}
                return {d: r for d, r in out.items() if r is not None}

        got = run_kernel_in_mock(
            kernel_fn=m.kernel, world_size=16, topology="none", inputs=self.inputs(16, n),
            kernel_args=m.kernel_args(1, n) + (0, 0, 0, 0), algo_module=Mesh, pes_per_cube=1)
        assert all((a == 136).all() for a in got)

    @pytest.mark.parametrize("world, pes", [(16, 4), (8, 8), (32, 8), (256, 8)])
    def test_hierarchical(self, world, pes):
        m = module("hierarchical_allreduce")
        got = run_kernel_in_mock(
            kernel_fn=m.kernel, world_size=world, topology="none",
            inputs=[np.full(8, 1, np.float16) for _ in range(world)],
            kernel_args=m.kernel_args(world, 8), algo_module=m, pes_per_cube=pes)
        assert all((a == world).all() for a in got)

    def test_many_messages_of_many_ranks(self):
        def kernel(p, tl):
            v = tl.load(p + tl.rank * 16, shape=(8,), dtype="f16")
            for _ in range(20):
                tl.send(dir="E", src=v)
            for _ in range(20):
                v = tl.recv(dir="W", shape=(8,), dtype="f16")
            tl.store(p + tl.rank * 16, v)

        got = run_kernel_in_mock(kernel_fn=kernel, world_size=64, topology="ring_1d",
                                 inputs=self.inputs(64, 8))
        assert [a[0] for a in got] == [64] + list(range(1, 64))

    def test_operators_use_the_running_ranks_tl(self):
        """Values of ranks that take turns do not mix."""
        def kernel(p, tl):
            mine = p + tl.rank * 16
            v = tl.load(mine, shape=(8,), dtype="f16")
            for _ in range(5):
                tl.send(dir="E", src=v)
                w = tl.recv(dir="W", shape=(8,), dtype="f16")
                v = v + w - w
            tl.store(mine, v)

        got = run_kernel_in_mock(kernel_fn=kernel, world_size=8, topology="ring_1d",
                                 inputs=self.inputs(8, 8))
        assert [a[0] for a in got] == list(range(1, 9))
