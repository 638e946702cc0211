"""Between tensors that are the same on all ranks of a tensor parallel group and tensors that are
cut by columns over them."""

from __future__ import annotations

from typing import Optional

from kernbench.policy.placement.dp import DPPolicy
from kernbench.runtime_api.context import RuntimeContext, active_context
from kernbench.runtime_api.tensor import Tensor
from kernbench.tp.parallel_state import (
    get_tensor_model_parallel_group,
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
)

__all__ = [
    "copy_to_tp_region",
    "gather_from_tp_region",
    "reduce_from_tp_region",
    "scatter_to_tp_region",
]

_ONE_PE = DPPolicy(num_cubes=1, num_pes=1)


def _torch(torch: Optional[RuntimeContext]) -> RuntimeContext:
    context = torch if torch is not None else active_context()
    if context is None:
        raise RuntimeError("no RuntimeContext is active: use `with ctx:`")
    return context


def copy_to_tp_region(x: Tensor) -> Tensor:
    """The identity."""
    return x


def reduce_from_tp_region(x: Tensor, torch: Optional[RuntimeContext] = None) -> Tensor:
    """The sum over the ranks, in place, with the same bits on each."""
    if get_tensor_model_parallel_world_size() > 1:
        group = get_tensor_model_parallel_group()
        of_group = {} if group is None else {"group": group}
        _torch(torch).distributed.all_reduce(x, op="sum", **of_group)
    return x


def scatter_to_tp_region(x: Tensor, torch: Optional[RuntimeContext] = None) -> Tensor:
    """The rank's columns of x."""
    size, columns = get_tensor_model_parallel_world_size(), x.shape[-1]
    if columns % size:
        raise ValueError(f"{columns} columns are not a multiple of the {size} ranks")
    part, rank = columns // size, get_tensor_model_parallel_rank()
    shape = (*x.shape[:-1], part)
    out = _torch(torch).empty(shape, x.dtype, dp=_ONE_PE, name=f"{x.name}_part")
    out[...] = x[..., rank * part : (rank + 1) * part]
    return out


def gather_from_tp_region(x: Tensor, torch: Optional[RuntimeContext] = None) -> Tensor:
    """The columns of all ranks, side by side."""
    context, size = _torch(torch), get_tensor_model_parallel_world_size()
    if size == 1:
        return x
    elements = 1
    for length in x.shape:
        elements *= length
    parts = context.empty((size, elements), x.dtype, dp=_ONE_PE, name=f"{x.name}_parts")
    context.distributed.all_gather_into_tensor(
        parts, x, group=get_tensor_model_parallel_group()
    )
    out = context.empty(
        (*x.shape[:-1], x.shape[-1] * size), x.dtype, dp=_ONE_PE, name=f"{x.name}_whole"
    )
    for rank, part in enumerate(parts.numpy()):
        columns = slice(rank * x.shape[-1], (rank + 1) * x.shape[-1])
        out[..., columns] = part.reshape(x.shape)
    return out
