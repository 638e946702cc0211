"""tp_mlp: a tensor parallel MLP of two layers, with a worker for each SIP."""

import numpy as np

import kernbench.tp as tp
from kernbench.policy.placement.dp import DPPolicy

BATCH, WIDTH, HIDDEN = 16, 64, 128

_ONE_PE = DPPolicy(num_cubes=1, num_pes=1)


def _relu(x_ptr, n, tl):
    x = tl.load(x_ptr, shape=(n,), dtype="f16")
    tl.store(x_ptr, tl.maximum(x, 0.0))


def run(torch):
    """The bench."""
    random = np.random.default_rng(5)
    x = random.uniform(-1, 1, (BATCH, WIDTH)).astype(np.float16)
    w_up = random.uniform(-0.2, 0.2, (WIDTH, HIDDEN)).astype(np.float16)
    w_down = random.uniform(-0.2, 0.2, (HIDDEN, WIDTH)).astype(np.float16)
    hidden = np.maximum(x.astype(np.float32) @ w_up.astype(np.float32), 0)
    expected = hidden @ w_down.astype(np.float32)

    torch.distributed.init_process_group(backend="ahbm")
    world = torch.distributed.get_world_size()
    tp.initialize_model_parallel(world)
    part = HIDDEN // world

    def worker(rank):
        torch.ahbm.set_device(rank)
        mine = slice(rank * part, (rank + 1) * part)
        up = tp.ColumnParallelLinear(WIDTH, HIDDEN, torch=torch)
        down = tp.RowParallelLinear(HIDDEN, WIDTH, torch=torch)
        up.weight.copy_(torch.from_numpy(np.ascontiguousarray(w_up[:, mine])))
        down.weight.copy_(torch.from_numpy(np.ascontiguousarray(w_down[mine])))
        tensor = torch.empty(x.shape, dp=_ONE_PE, name=f"x{rank}").copy_(torch.from_numpy(x))
        between = up.forward(tensor)
        torch.launch("relu", _relu, between, BATCH * part)
        np.testing.assert_allclose(down.forward(between).numpy(), expected, rtol=1e-2, atol=1e-2)

    torch.multiprocessing.spawn(worker, nprocs=world)
    print(f"tp_mlp: {world} ranks, ({BATCH}, {WIDTH}) through {HIDDEN}: OK")
