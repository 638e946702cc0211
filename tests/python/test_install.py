"""ccl.yaml, installing queues, and what is then on the engine."""

import numpy as np
import pytest
import yaml

from kernbench.ccl.diagnostics import pointer_dump
from kernbench.ccl.install import (
    install_ipcq,
    linear_rank_to_pe,
    load_ccl_config,
    resolve_algorithm_config,
)
from kernbench.ccl.sfr_config import configure_sfr_intercube_multisip
from support import make_context, make_engine, pe_columns, put


def queue_pairs(engine, sip, cube, pe):
    return engine._components[f"sip{sip}.cube{cube}.pe{pe}.pe_ipcq"].queue_pairs


def at(peer):
    return (peer.sip, peer.cube, peer.pe)


class TestConfig:
    def test_load(self, write_ccl):
        want = write_ccl("ring_allreduce_tcm")
        cfg = load_ccl_config()
        assert isinstance(cfg, dict)
        assert cfg["defaults"]["algorithm"] == "ring_allreduce_tcm"
        for key, value in want["defaults"].items():
            assert cfg["defaults"][key] == value
        for name, entry in want["algorithms"].items():
            for key, value in entry.items():
                assert cfg["algorithms"][name][key] == value

    def test_load_from_a_path(self, write_ccl, tmp_path):
        write_ccl("ring_allreduce_tcm")
        (tmp_path / "other.yaml").write_text(yaml.dump(
            {"defaults": {"algorithm": "x"}, "algorithms": {"x": {"module": "m", "n_elem": 3}}}))
        cfg = load_ccl_config(str(tmp_path / "other.yaml"))
        assert cfg["defaults"]["algorithm"] == "x" and cfg["algorithms"]["x"]["n_elem"] == 3
        assert load_ccl_config(path=tmp_path / "other.yaml")["defaults"]["algorithm"] == "x"

    def test_it_is_read_now(self, write_ccl):
        write_ccl("ring_allreduce_tcm")
        load_ccl_config()
        write_ccl("tree_allreduce_7")
        assert load_ccl_config()["defaults"]["algorithm"] == "tree_allreduce_7"

    def test_a_missing_file(self, tmp_path):
        with pytest.raises((FileNotFoundError, ValueError), match="nowhere.yaml"):
            load_ccl_config(str(tmp_path / "nowhere.yaml"))

    def test_resolve(self, write_ccl):
        write_ccl("ring_allreduce_tcm", n_slots=7)
        cfg = load_ccl_config()
        merged = resolve_algorithm_config(cfg)
        assert merged["algorithm"] == "ring_allreduce_tcm"
        assert merged["module"] == "kernbench.ccl.algorithms.ring_allreduce"
        assert merged["n_slots"] == 7 and merged["slot_size"] == 4096
        assert merged["n_elem"] == 8 and merged["topology"] == "ring_1d"

    def test_resolve_by_name(self, write_ccl):
        write_ccl("ring_allreduce_tcm")
        cfg = load_ccl_config()
        merged = resolve_algorithm_config(cfg, "ring_allreduce_hbm")
        assert merged["algorithm"] == "ring_allreduce_hbm" and merged["buffer_kind"] == "hbm"
        assert resolve_algorithm_config(cfg, name="mesh_allreduce_4")["world_size"] == 4

    def test_resolve_changes_nothing(self, write_ccl):
        write_ccl("ring_allreduce_tcm")
        cfg = load_ccl_config()
        merged = resolve_algorithm_config(cfg)
        merged["n_slots"] = 99
        merged["world_size"] = 5
        again = resolve_algorithm_config(cfg)
        assert again["n_slots"] == 4 and "world_size" not in again

    def test_an_unknown_name(self, write_ccl):
        write_ccl("ring_allreduce_tcm")
        with pytest.raises((KeyError, ValueError), match="nothing_like_it"):
            resolve_algorithm_config(load_ccl_config(), "nothing_like_it")

    @pytest.mark.parametrize("rank, pe", [(0, (0, 0, 0)), (7, (0, 0, 7)), (8, (0, 1, 0)),
                                          (127, (0, 15, 7)), (128, (1, 0, 0)), (255, (1, 15, 7))])
    def test_linear_rank_to_pe(self, ctx, rank, pe):
        assert linear_rank_to_pe(rank, ctx.spec) == pe

    @pytest.mark.parametrize("key", ["mapper", "validator"])
    def test_an_unknown_mapper_or_validator(self, ctx, write_ccl, key):
        write_ccl("ring_allreduce_tcm", {"ring_allreduce_tcm": {key: "no_such_pkg.mod.fn"}})
        with pytest.raises(ValueError, match="no_such_pkg"):
            ctx.distributed.init_process_group(backend="ahbm")


class TestInstall:
    def merged(self, write_ccl, name="ring_allreduce_tcm", **more):
        write_ccl(name)
        return dict(resolve_algorithm_config(load_ccl_config(), name), **more)

    def test_plan(self, write_ccl):
        engine = make_engine()
        ctx_spec = make_context().spec
        plan = install_ipcq(engine, ctx_spec, self.merged(write_ccl, world_size=8))
        assert plan["world_size"] == 8
        assert plan["buffer_kind"] == "tcm"
        assert plan["rank_to_pe"] == [(0, 0, p) for p in range(8)]
        assert plan["neighbor_table"] == {
            r: {"E": (r + 1) % 8, "W": (r - 1) % 8} for r in range(8)
        }

    def test_world_size_is_every_pe(self, write_ccl):
        engine = make_engine()
        plan = install_ipcq(engine, make_context().spec, self.merged(write_ccl))
        assert plan["world_size"] == 256 and len(plan["rank_to_pe"]) == 256
        assert plan["rank_to_pe"][255] == (1, 15, 7)

    def test_ranks_elsewhere(self, write_ccl):
        engine = make_engine()
        pes = [(0, c, 0) for c in range(4)] + [(1, c, 0) for c in range(4)]
        plan = install_ipcq(engine, make_context().spec, self.merged(write_ccl, world_size=8),
                            rank_to_pe=pes)
        assert plan["rank_to_pe"] == pes
        pairs = queue_pairs(engine, 0, 3, 0)
        assert at(pairs["E"]["peer"]) == (1, 0, 0) and at(pairs["W"]["peer"]) == (0, 2, 0)

    def test_neighbours_of_a_module(self, write_ccl):
        class Module:
            @staticmethod
            def neighbors(rank, world_size, base_map):
                return {"E": base_map["E"]} if rank == 0 else (
                    {"W": base_map["W"]} if rank == 1 else {})

        engine = make_engine()
        plan = install_ipcq(engine, make_context().spec, self.merged(write_ccl, world_size=4),
                            algo_module=Module)
        assert plan["neighbor_table"][0] == {"E": 1} and plan["neighbor_table"][1] == {"W": 0}
        assert set(queue_pairs(engine, 0, 0, 0)) == {"E"}

    @pytest.mark.parametrize("kind", ["tcm", "hbm", "sram"])
    def test_queue_pairs(self, write_ccl, kind):
        engine = make_engine()
        plan = install_ipcq(
            engine, make_context().spec,
            self.merged(write_ccl, f"ring_allreduce_{kind}", world_size=8))
        assert plan["buffer_kind"] == kind
        pairs = queue_pairs(engine, 0, 0, 3)
        assert isinstance(pairs, dict) and set(pairs) == {"E", "W"}
        for direction, peer in (("E", 4), ("W", 2)):
            pair = pairs[direction]
            assert at(pair["peer"]) == (0, 0, peer)
            for pointer in ("my_head", "my_tail", "peer_head_cache", "peer_tail_cache"):
                assert pair[pointer] == 0
        assert queue_pairs(engine, 1, 0, 0) == {}

    def test_pointers_move(self, ctx, write_ccl):
        write_ccl("ring_allreduce_tcm")
        ctx.install_ipcq(algorithm="ring_allreduce_tcm", world_size_override=8)

        def kernel(p, tl):
            v = tl.load(p + tl.program_id(0) * 16, shape=(8,), dtype="f16")
            for _ in range(3):
                tl.send(dir="E", src=v)
            for _ in range(3):
                tl.recv(dir="W", shape=(8,), dtype="f16")

        ctx.launch("k", kernel, ctx.zeros((1, 64), dp=pe_columns()))
        pairs = queue_pairs(ctx.engine, 0, 0, 2)
        assert pairs["E"]["my_head"] == 3 and pairs["W"]["my_tail"] == 3
        assert pairs["E"]["peer_tail_cache"] == 3 and pairs["W"]["peer_head_cache"] == 3
        assert pairs["E"]["my_tail"] == 0 and pairs["W"]["my_head"] == 0

    @pytest.mark.parametrize("before", [True, False])
    def test_without_a_context(self, write_ccl, before):
        """A context that is made on the engine before or after launches on these queues."""
        from kernbench.runtime_api.context import RuntimeContext
        from kernbench.runtime_api.types import resolve_device

        engine = make_engine()

        def context():
            return RuntimeContext(engine=engine, target_device=resolve_device("all"),
                                  correlation_id="x", spec=None)

        ctx = context() if before else None
        merged = self.merged(write_ccl, world_size=8)
        install_ipcq(engine, make_context().spec, merged)
        assert "E:" in pointer_dump(engine)
        with (ctx or context()) as ctx:
            def kernel(p, tl):
                mine = p + tl.program_id(0) * 16
                tl.send(dir="E", src=tl.load(mine, shape=(8,), dtype="f16"))
                tl.store(mine, tl.recv(dir="W", shape=(8,), dtype="f16"))

            a = np.repeat(np.arange(8, dtype=np.float16), 8).reshape(1, 64)
            t = put(ctx, a, pe_columns())
            ctx.launch("k", kernel, t)
            assert (t.numpy().reshape(8, 8)[:, 0] == (np.arange(8) - 1) % 8).all()

    def test_from_the_context(self, ctx, write_ccl):
        write_ccl("ring_allreduce_tcm")
        before = ctx.engine._env.now
        plan = ctx.install_ipcq(algorithm="ring_allreduce_tcm", world_size_override=8)
        assert plan["world_size"] == 8
        assert ctx.engine._env.now > before
        assert not ctx.distributed.is_initialized()

    def test_the_default_algorithm(self, ctx, write_ccl):
        write_ccl("mesh_allreduce_4")
        plan = ctx.install_ipcq(algorithm="mesh_allreduce_4")
        assert plan["world_size"] == 4
        assert set(plan["neighbor_table"][0]) == {"N", "S", "E", "W"}

    def test_the_queues_installed_last(self, ctx, write_ccl):
        write_ccl("ring_allreduce_tcm")
        ctx.install_ipcq(algorithm="ring_allreduce_tcm", world_size_override=8)
        ctx.install_ipcq(algorithm="ring_allreduce_tcm", world_size_override=4)

        def kernel(p, tl):
            mine = p + tl.program_id(0) * 16
            tl.send(dir="E", src=tl.load(mine, shape=(8,), dtype="f16"))
            tl.store(mine, tl.recv(dir="W", shape=(8,), dtype="f16"))

        a = np.repeat(np.arange(4, dtype=np.float16), 8).reshape(1, 32)
        t = put(ctx, a, pe_columns(4))
        ctx.launch("k", kernel, t)
        assert (t.numpy().reshape(4, 8)[:, 0] == [3, 0, 1, 2]).all()

    def test_beside_a_process_group(self, ctx, write_ccl):
        write_ccl("intercube_allreduce")
        ctx.distributed.init_process_group(backend="ahbm")
        ctx.install_ipcq(algorithm="ring_allreduce_tcm", world_size_override=8)

        def kernel(p, tl):
            mine = p + tl.program_id(0) * 16
            tl.send(dir="E", src=tl.load(mine, shape=(8,), dtype="f16"))
            tl.store(mine, tl.recv(dir="W", shape=(8,), dtype="f16"))

        t = put(ctx, np.repeat(np.arange(8, dtype=np.float16), 8).reshape(1, 64), pe_columns())
        ctx.launch("k", kernel, t)
        assert (t.numpy().reshape(8, 8)[:, 0] == (np.arange(8) - 1) % 8).all()

        def worker(rank):
            from support import one_pe

            ctx.ahbm.set_device(rank)
            t = put(ctx, np.full((1, 8), rank + 1, np.float16), one_pe())
            ctx.distributed.all_reduce(t)
            assert (t.numpy() == 3).all()

        ctx.multiprocessing.spawn(worker, nprocs=2)


class TestIntercubeQueues:
    """configure_sfr_intercube_multisip."""

    def configure(self, write_ccl, path):
        write_ccl("intercube_allreduce")
        engine = make_engine(path)
        merged = resolve_algorithm_config(load_ccl_config(), "intercube_allreduce")
        plan = configure_sfr_intercube_multisip(engine, make_context(path).spec, merged)
        return engine, plan

    def test_plan(self, write_ccl, machine_file):
        engine, plan = self.configure(write_ccl, machine_file(2, "ring_1d"))
        assert plan["world_size"] == 32
        assert plan["rank_to_pe"] == [(s, c, 0) for s in range(2) for c in range(16)]

    def test_the_mesh_of_cubes(self, write_ccl, machine_file):
        engine, _ = self.configure(write_ccl, machine_file(2, "ring_1d"))
        inner = queue_pairs(engine, 0, 5, 0)
        assert {d: at(inner[d]["peer"]) for d in "NSEW"} == {
            "N": (0, 1, 0), "S": (0, 9, 0), "E": (0, 6, 0), "W": (0, 4, 0)
        }
        for cube, want in ((0, {"E", "S"}), (3, {"W", "S"}), (12, {"E", "N"}), (15, {"W", "N"})):
            got = {d for d in queue_pairs(engine, 0, cube, 0) if not d.startswith("global_")}
            assert got == want
        assert len({d for d in queue_pairs(engine, 0, 1, 0) if len(d) == 1}) == 3

    def test_a_ring_of_two(self, write_ccl, machine_file):
        engine, _ = self.configure(write_ccl, machine_file(2, "ring_1d"))
        for sip in range(2):
            for cube in range(16):
                pairs = queue_pairs(engine, sip, cube, 0)
                assert {d for d in pairs if d.startswith("global_")} == {"global_E", "global_W"}
                for d in ("global_E", "global_W"):
                    assert at(pairs[d]["peer"]) == (1 - sip, cube, 0)

    def test_a_ring_of_four(self, write_ccl, machine_file):
        engine, _ = self.configure(write_ccl, machine_file(4, "ring_1d"))
        for sip in range(4):
            pairs = queue_pairs(engine, sip, 7, 0)
            assert at(pairs["global_E"]["peer"]) == ((sip + 1) % 4, 7, 0)
            assert at(pairs["global_W"]["peer"]) == ((sip - 1) % 4, 7, 0)

    def test_a_torus(self, write_ccl, machine_file):
        engine, _ = self.configure(write_ccl, machine_file(4, "torus_2d"))
        pairs = queue_pairs(engine, 0, 15, 0)
        assert {d: at(pairs[d]["peer"]) for d in pairs if d.startswith("global_")} == {
            "global_E": (1, 15, 0), "global_W": (1, 15, 0),
            "global_N": (2, 15, 0), "global_S": (2, 15, 0),
        }

    def test_a_mesh_without_wrap(self, write_ccl, machine_file):
        engine, _ = self.configure(write_ccl, machine_file(4, "mesh_2d_no_wrap"))
        wants = {0: {"global_E": 1, "global_S": 2}, 1: {"global_W": 0, "global_S": 3},
                 2: {"global_E": 3, "global_N": 0}, 3: {"global_W": 2, "global_N": 1}}
        for sip, want in wants.items():
            pairs = queue_pairs(engine, sip, 0, 0)
            assert {d: pairs[d]["peer"].sip for d in pairs if d.startswith("global_")} == want

    def test_a_single_sip_has_none(self, write_ccl, machine_file):
        engine, plan = self.configure(write_ccl, machine_file(1, "ring_1d"))
        assert plan["world_size"] == 16
        assert not any(d.startswith("global_") for d in queue_pairs(engine, 0, 5, 0))

    def test_other_pes_have_none(self, write_ccl, machine_file):
        engine, _ = self.configure(write_ccl, machine_file(2, "ring_1d"))
        assert queue_pairs(engine, 0, 5, 1) == {}
