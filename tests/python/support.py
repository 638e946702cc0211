"""What the tests of the Python package share."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import yaml

from kernbench.policy.placement.dp import DPPolicy
from kernbench.runtime_api.context import RuntimeContext
from kernbench.runtime_api.types import resolve_device
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology.builder import resolve_topology

ROOT = pathlib.Path(__file__).resolve().parents[2]
MACHINE = ROOT / "machines" / "default.yaml"
BUILD = pathlib.Path(os.environ.get("KB_BUILD", ROOT / "build"))
PROGRAM = BUILD / "kernbench"

ONE_PE = dict(cube="replicate", pe="replicate", num_cubes=1, num_pes=1)
CUBE_ROWS = dict(cube="row_wise", pe="replicate", num_pes=1)
PE_COLUMNS = dict(cube="replicate", pe="column_wise", num_cubes=1)


def one_pe():
    """The policy that puts one shard on PE 0 of cube 0."""
    return DPPolicy(**ONE_PE)


def cube_rows():
    """The policy that puts one row on PE 0 of each cube."""
    return DPPolicy(**CUBE_ROWS)


def pe_columns(num_pes=None):
    """The policy that splits the last axis over the PEs of cube 0."""
    return DPPolicy(**PE_COLUMNS, num_pes=num_pes)


def make_engine(path=None, enable_data=True):
    topology = resolve_topology(str(path or MACHINE))
    return GraphEngine(topology.topology_obj, enable_data=enable_data)


def make_context(path=None, device="all", enable_data=True):
    topology = resolve_topology(str(path or MACHINE))
    return RuntimeContext(
        engine=GraphEngine(topology.topology_obj, enable_data=enable_data),
        target_device=resolve_device(device),
        correlation_id="test",
        spec=topology.topology_obj.spec,
    )


def write_machine(path, count, topology, **more):
    """A topology file: the default one, loaded, changed and dumped."""
    cfg = yaml.safe_load(MACHINE.read_text())
    cfg["system"]["sips"]["count"] = count
    cfg["system"]["sips"]["topology"] = topology
    for dotted, value in more.items():
        keys = dotted.split("__")
        node = cfg
        for key in keys[:-1]:
            node = node.setdefault(key, {})
        node[keys[-1]] = value
    path.write_text(yaml.dump(cfg, default_flow_style=False))
    return str(path)


ENTRIES = {
    "intercube_allreduce": dict(
        module="kernbench.ccl.algorithms.intercube_allreduce",
        topology="none",
        buffer_kind="tcm",
        n_elem=8,
        root_cube=15,
    ),
    "ring_allreduce_tcm": dict(
        module="kernbench.ccl.algorithms.ring_allreduce",
        topology="ring_1d",
        buffer_kind="tcm",
        n_elem=8,
    ),
    "ring_allreduce_hbm": dict(
        module="kernbench.ccl.algorithms.ring_allreduce",
        topology="ring_1d",
        buffer_kind="hbm",
        n_elem=8,
    ),
    "ring_allreduce_sram": dict(
        module="kernbench.ccl.algorithms.ring_allreduce",
        topology="ring_1d",
        buffer_kind="sram",
        n_elem=8,
    ),
    "mesh_allreduce_4": dict(
        module="kernbench.ccl.algorithms.mesh_allreduce",
        topology="mesh_2d",
        buffer_kind="tcm",
        world_size=4,
        n_elem=16,
    ),
    "tree_allreduce_7": dict(
        module="kernbench.ccl.algorithms.tree_allreduce",
        topology="tree_binary",
        buffer_kind="tcm",
        world_size=7,
        n_elem=16,
    ),
}


def write_ccl(path, algorithm, entries=None, **defaults):
    """Writes a ccl.yaml as it is found beside programs; entries change or add keys by name."""
    algorithms = {name: dict(entry) for name, entry in ENTRIES.items()}
    for name, keys in (entries or {}).items():
        algorithms.setdefault(name, {}).update(keys)
    cfg = {
        "defaults": {
            "algorithm": algorithm,
            "buffer_kind": "tcm",
            "backpressure": "sleep",
            "n_slots": 4,
            "slot_size": 4096,
            "vc_chunk_size": 256,
            "ipcq_credit_size_bytes": 16,
            **defaults,
        },
        "algorithms": algorithms,
    }
    pathlib.Path(path).write_text(yaml.dump(cfg, default_flow_style=False))
    return cfg


def put(ctx, array, policy=None, name=None, dtype=None):
    """A deployed tensor with these contents."""
    names = {"float16": "f16", "float32": "f32", "int8": "i8", "int32": "i32"}
    t = ctx.zeros(
        array.shape,
        dtype=dtype or names[array.dtype.name],
        dp=policy or one_pe(),
        **({"name": name} if name else {}),
    )
    t.copy_(ctx.from_numpy(array))
    return t


def run_on_pe(ctx, body, *arrays, out, out_dtype="f16"):
    """Runs body(tl, *values) on one PE; each array is loaded, the value that is returned stored."""
    names = {"float16": "f16", "float32": "f32", "int8": "i8", "int32": "i32"}
    ins = [put(ctx, a, name=f"in{i}") for i, a in enumerate(arrays)]
    res = ctx.zeros(out, dtype=out_dtype, dp=one_pe(), name="out")

    def kernel(*args, tl):
        values = [
            tl.load(p, shape=a.shape, dtype=names[a.dtype.name]) for p, a in zip(args, arrays)
        ]
        tl.store(args[len(arrays)], body(tl, *values))

    ctx.launch("body", kernel, *ins, res)
    return res.numpy()


def environment(**more):
    """The environment of a Python subprocess that finds the package under test."""
    env = dict(os.environ, **more)
    env["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    return env


def python(*args, cwd=None, timeout=60, check=True, **env):
    """Runs this Python with arguments, and returns the finished process."""
    done = subprocess.run(
        [sys.executable, *map(str, args)],
        cwd=cwd,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done


def random(shape, seed=0, dtype=np.float16, scale=1.0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)
