"""Tensor parallel layers, as Megatron has them: the weights are shared out to the ranks.

Call ``initialize_model_parallel`` after ``init_process_group``, then make layers in the workers:

    up = tp.ColumnParallelLinear(64, 256, torch=ctx)
    down = tp.RowParallelLinear(256, 64, torch=ctx)
    y = down.forward(up.forward(x))

The state belongs to the context that was entered last.
"""

from kernbench.tp.layers import ColumnParallelLinear, RowParallelLinear
from kernbench.tp.parallel_state import (
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
    initialize_model_parallel,
)

__all__ = [
    "ColumnParallelLinear",
    "RowParallelLinear",
    "get_tensor_model_parallel_rank",
    "get_tensor_model_parallel_world_size",
    "initialize_model_parallel",
]
