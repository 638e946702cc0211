"""ccl_allreduce: the all-reduce that ./ccl.yaml chooses, with a line that says how many results are
right.

Where ranks are SIPs each has a worker, whose tensor is filled with its rank + 1. Where the entry
has a world_size, ranks are PEs: one program drives them all, with slice r filled with r + 1.
"""

import numpy as np

from kernbench.policy.placement.dp import DPPolicy

_ONE_PE = DPPolicy(num_cubes=1, num_pes=1)
_PER_CUBE = DPPolicy(cube="row_wise", pe="replicate", num_pes=1)
_PER_PE = DPPolicy(cube="column_wise", pe="column_wise")

_MEANING = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod, "avg": np.mean}


class _Tally:
    """Which parts of the results are right."""

    def __init__(self, expected):
        self.expected = expected
        self.right = 0
        self.wrong_means = []

    def add(self, part):
        """A part whose elements all have to be the expected number."""
        values = part.astype(np.float64)
        if np.allclose(values, self.expected, rtol=1e-2):
            self.right += 1
        else:
            self.wrong_means.append(values.mean())

    def report(self, name, world):
        """Prints the line; AssertionError if something is wrong."""
        if not self.wrong_means:
            print(f"{name} (ws={world}): {self.right} OK")
            return
        mean = self.wrong_means[0]
        line = f"[FAIL] {name} (ws={world}): got mean={mean:.3f}, expected={self.expected:.3f}"
        print(line)
        raise AssertionError(line)


def _expected(op, numbers):
    return float(_MEANING[op](np.array(numbers, dtype=np.float64)))


def _run_sips(torch, entry):
    """A worker for each SIP."""
    d = torch.distributed
    world, mesh = d.get_world_size(), torch.spec["sip"]["cube_mesh"]
    cubes, n_elem, op = mesh["w"] * mesh["h"], entry["n_elem"] or 8, entry["op"]
    layouts = {
        "shard_per_cube": ((cubes, n_elem), _PER_CUBE),
        "multi_pe_sip_local": ((1, n_elem * cubes * _pes(torch)), _PER_PE),
    }
    shape, policy = layouts.get(entry["validator"], ((1, n_elem), _ONE_PE))
    copies = shape[0] * shape[1] // n_elem if entry["reduce_shards"] else 1
    tally = _Tally(_expected(op, [rank + 1 for rank in range(world)] * copies))

    def worker(rank):
        if world > 1:  # else the device is that of the run
            torch.ahbm.set_device(rank)
        tensor = torch.zeros(shape, dtype="f16", dp=policy, name=f"x{rank}")
        tensor.copy_(torch.from_numpy(np.full(shape, rank + 1, dtype=np.float16)))
        d.all_reduce(tensor, op=op, algorithm=entry["algorithm"])
        for row in tensor.numpy():
            tally.add(row)

    torch.multiprocessing.spawn(worker, nprocs=world)
    tally.report(entry["algorithm"], world)


def _pes(torch):
    layout = torch.spec["cube"]["pe_layout"]
    return layout["pe_per_corner"] * len(layout["corners"])


def _layout_of_pes(world, pes, cubes):
    """The first `world` PEs of a SIP: in one cube, or in whole cubes."""
    if world <= pes:
        return DPPolicy(cube="replicate", num_cubes=1, pe="column_wise", num_pes=world)
    if world % pes == 0 and world // pes <= cubes:
        return DPPolicy(cube="column_wise", num_cubes=world // pes, pe="column_wise")
    raise ValueError(f"{world} ranks are neither PEs of one cube nor whole cubes of {pes} PEs")


def _run_pes(torch, entry):
    """One program for all ranks, with a tensor on each SIP that has some."""
    d = torch.distributed
    world, mesh, pes = d.get_world_size(), torch.spec["sip"]["cube_mesh"], _pes(torch)
    cubes, n_elem, op = mesh["w"] * mesh["h"], entry["n_elem"] or 8, entry["op"]
    tally = _Tally(_expected(op, range(1, world + 1)))
    tensors = []
    for first in range(0, world, cubes * pes):
        ranks = range(first, min(world, first + cubes * pes))
        torch.ahbm.set_device(first // (cubes * pes))
        policy = _layout_of_pes(len(ranks), pes, cubes)
        shape = (1, len(ranks) * n_elem)
        tensor = torch.zeros(shape, dtype="f16", dp=policy, name=f"x{first}")
        values = np.repeat(np.array(ranks, dtype=np.float16) + 1, n_elem)
        tensor.copy_(torch.from_numpy(values.reshape(shape)))
        tensors.append(tensor)
    d.all_reduce(tensors if len(tensors) > 1 else tensors[0], op=op)
    for tensor in tensors:
        for part in tensor.numpy().reshape(-1, n_elem):
            tally.add(part)
    tally.report(entry["algorithm"], world)


def run(torch):
    """The bench."""
    torch.distributed.init_process_group(backend="ahbm")
    entry = torch.distributed.describe()
    if entry["rank_is_pe"]:
        _run_pes(torch, entry)
    else:
        _run_sips(torch, entry)
