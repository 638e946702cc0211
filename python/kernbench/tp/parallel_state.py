"""The tensor parallel groups of a context: consecutive ranks of the process group."""

from __future__ import annotations

from typing import Optional

from kernbench.runtime_api.context import RuntimeContext, active_context
from kernbench.runtime_api.distributed import Group

__all__ = [
    "ParallelSizeError",
    "get_tensor_model_parallel_group",
    "get_tensor_model_parallel_rank",
    "get_tensor_model_parallel_world_size",
    "initialize_model_parallel",
]


class ParallelSizeError(ValueError, NotImplementedError):
    """A tensor parallel size that does not divide the world size."""


class _State:
    """What a context knows of its groups."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.groups: list[Group] = []  # empty if there is one group of all ranks


def _context(function: str) -> RuntimeContext:
    context = active_context()
    if context is None:
        raise RuntimeError(f"{function}: no RuntimeContext is active: use `with ctx:`")
    return context


def _state(function: str) -> tuple[RuntimeContext, _State]:
    context = _context(function)
    state = context._tensor_parallel
    if state is None:
        raise RuntimeError(f"{function}: call initialize_model_parallel() first")
    return context, state


def initialize_model_parallel(tensor_model_parallel_size: int = 1) -> None:
    """Divides the ranks into groups of this size, which has to divide the world size.

    Once for all ranks, outside workers; or every worker calls it with the same size.
    """
    context = _context("initialize_model_parallel")
    world = context.distributed.get_world_size()
    size = int(tensor_model_parallel_size)
    if size < 1 or world % size:
        raise ParallelSizeError(
            f"tensor_model_parallel_size {size} does not divide the world size {world}"
        )
    known: Optional[_State] = context._tensor_parallel
    in_worker = context.engine.core.worker_rank() is not None
    if known is not None and known.size == size and not (in_worker and size < world):
        return
    if known is not None and known.size != size:
        raise RuntimeError(
            f"initialize_model_parallel: the size is {known.size} already, not {size}"
        )
    state = known or _State(size)
    if size < world:
        groups = [
            context.distributed.new_group(range(first, first + size))
            for first in range(0, world, size)
        ]
        state.groups = groups
    context._tensor_parallel = state


def get_tensor_model_parallel_world_size() -> int:
    """How many ranks share a layer."""
    return _state("get_tensor_model_parallel_world_size")[1].size


def get_tensor_model_parallel_rank() -> int:
    """The caller's place in its group; 0 outside workers."""
    context, state = _state("get_tensor_model_parallel_rank")
    return context.distributed.get_rank() % state.size


def get_tensor_model_parallel_group() -> Optional[Group]:
    """The caller's group; None if it has all ranks."""
    context, state = _state("get_tensor_model_parallel_group")
    if not state.groups:
        return None
    return state.groups[context.distributed.get_rank() // state.size]


def _reset_for_tests() -> None:
    """Forgets the groups of the active context, if there is one."""
    context = active_context()
    if context is not None:
        context._tensor_parallel = None
