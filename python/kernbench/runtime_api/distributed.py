"""Ranks that do things together, with the names of torch.distributed.

Collectives are those of the engine. A call uses the entry that ``defaults.algorithm`` of ccl.yaml
names if it does that collective and the tensor's layout is the one that it needs; else ``auto``,
the fastest one that works in any layout. With ``async_op=True`` a call returns ``Work`` at once.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Optional, Sequence

from kernbench.runtime_api.tensor import Tensor

if TYPE_CHECKING:
    from kernbench.runtime_api.context import RuntimeContext

__all__ = ["Distributed", "Group", "ReduceOp", "Work"]

_OPS = ("sum", "max", "min", "prod", "avg")


class ReduceOp:
    """Names of operations, as in torch.distributed: each is its text."""

    SUM, MAX, MIN, PRODUCT, AVG = "sum", "max", "min", "prod", "avg"


class Work:
    """A collective under way."""

    def __init__(self, context: "RuntimeContext", request: Any) -> None:
        self._context, self._request = context, request

    def wait(self) -> bool:
        """Waits until the result is there."""
        self._context.wait(self._request)
        return True

    def is_completed(self) -> bool:
        """Whether it is, without waiting."""
        return self._request.done


class Group:
    """Some of the ranks."""

    def __init__(self, number: int, ranks: Sequence[int]) -> None:
        self.number, self.ranks = number, list(ranks)

    def __repr__(self) -> str:
        return f"Group({self.ranks})"


def _refuse_async(async_op: bool) -> None:
    """Lists are copied from one tensor when the collective is done."""
    if async_op:
        raise NotImplementedError("async_op with lists of tensors: use one tensor")


def _number(group: Optional[Group]) -> int:
    return 0 if group is None else group.number


def _adds_in_another_order(info: dict[str, Any], config: dict[str, Any]) -> bool:
    """Whether the configured all-reduce gives ranks other last bits than their neighbours: the
    rings that ship, over more than two devices. Calls then use `auto`, unless they name it."""
    from kernbench.ccl import install

    if info["algorithm"] == "auto" or info["rank_is_pe"] or info["world"] <= 2:
        return False
    entry = install.resolve_algorithm_config(config, info["algorithm"])
    return install.shipped_name(str(entry.get("module"))) in ("ring", "mesh")


class Distributed:
    """``ctx.distributed``."""

    ReduceOp = ReduceOp

    def __init__(self, context: "RuntimeContext") -> None:
        self._context = context
        self._initialized = False
        self._needs_auto = False

    # ---- The process group

    def init_process_group(self, backend: str = "ahbm", **unused: Any) -> None:
        """Reads ./ccl.yaml, if it is there, and installs the queues, which takes simulated time.

        Outside workers, once a context. `world_size`, `rank` and `init_method` are accepted and
        ignored.
        """
        from kernbench.ccl import install

        if self._initialized:
            raise RuntimeError("init_process_group: the process group is initialized already")
        engine = self._context.engine
        path = engine.ccl_file
        if path is None and os.path.exists(install.DEFAULT_FILE):
            path = install.DEFAULT_FILE
        config = install.load_ccl_config(path)
        modules = install.modules_of_users(config, self._context.spec)
        engine.take_process_group(self)
        file = install.file_for_engine(engine, path, config)
        engine.core.init_process_group(backend, ccl=file, modules=modules)
        self._initialized = True
        self._needs_auto = _adds_in_another_order(engine.core.ccl_info(), config)
        engine.install_queues_of_group()

    def destroy_process_group(self) -> None:
        """Removes the queues."""
        self._core().destroy_process_group()
        self._initialized = False
        self._context.engine.remove_queues_of_group()

    def _core(self) -> Any:
        if not self._initialized:
            raise RuntimeError("the process group is not initialized: call init_process_group()")
        return self._context.engine.core

    def is_initialized(self) -> bool:
        """Whether init_process_group() was called."""
        return self._initialized

    def get_world_size(self, group: Optional[Group] = None) -> int:
        """How many ranks there are."""
        core = self._core()
        return core.world_size() if group is None else core.group_size(group.number)

    def get_rank(self, group: Optional[Group] = None) -> int:
        """The rank of the worker; outside workers 0; -1 if it is not in the group."""
        core = self._core()
        rank = core.rank() if group is None else core.group_rank(group.number)
        return -1 if rank is None else rank

    def get_backend(self, group: Optional[Group] = None) -> str:
        """ "ahbm"."""
        del group
        return self._core().backend()

    def new_group(self, ranks: Optional[Sequence[int]] = None) -> Group:
        """A group of these ranks. Every rank calls it, also those that are not in it."""
        core = self._core()
        members = list(range(core.world_size())) if ranks is None else [int(r) for r in ranks]
        return Group(core.new_group(members), members)

    # ---- Collectives

    def _tensor(self, what: str, tensor: Any) -> Tensor:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{what}: expected a Tensor, found {type(tensor).__name__}")
        if not tensor._id:
            raise RuntimeError(
                f"{what}: tensor '{tensor.name}' is not deployed: it has no shards on a device"
            )
        return tensor

    @staticmethod
    def _op(op: Any) -> str:
        name = str(getattr(op, "name", op)).lower()
        if name not in _OPS:
            raise NotImplementedError(f"op {op!r} (known: {', '.join(_OPS)})")
        return name

    def _call(
        self,
        kind: str,
        inputs: Sequence[Optional[Tensor]],
        outputs: Sequence[Optional[Tensor]],
        op: str = "sum",
        root: int = 0,
        group: Optional[Group] = None,
        async_op: bool = False,
        algorithm: Optional[str] = None,
    ) -> Optional[Work]:
        core = self._core()
        given = [self._tensor(kind, tensor) for tensor in inputs if tensor is not None]
        results = [self._tensor(kind, tensor) for tensor in outputs if tensor is not None]
        with self._context.engine.explaining():
            request = core.collective(
                kind,
                given,
                results,
                op=op,
                root=root,
                group=_number(group),
                algorithm=algorithm,
                wait=not async_op,
            )
        return Work(self._context, request) if async_op else None

    def describe(self) -> dict[str, Any]:
        """What ccl.yaml chose: algorithm, validator (the layout that it needs), n_elem, op,
        rank_is_pe, reduce_shards (the shards of a SIP are combined too), and more."""
        return self._core().ccl_info()

    def all_reduce(
        self,
        tensor: Any,
        op: Any = "sum",
        group: Optional[Group] = None,
        async_op: bool = False,
        algorithm: Optional[str] = None,
    ) -> Optional[Work]:
        """What `op` (sum, max, min, prod, avg) makes of the ranks' tensors becomes each of them.

        A program outside workers that drives ranks of several SIPs gives a list, with one tensor
        for each SIP.
        """
        self._core()
        name = self._op(op)
        if algorithm is None and self._needs_auto:
            algorithm = "auto"
        inside = list(tensor) if isinstance(tensor, (list, tuple)) else [tensor]
        return self._call(
            "all_reduce", inside, inside, name, group=group, async_op=async_op, algorithm=algorithm
        )

    def all_gather(
        self,
        tensor_list: Any,
        tensor: Tensor,
        group: Optional[Group] = None,
        async_op: bool = False,
    ) -> Optional[Work]:
        """The tensors of all ranks: in a list with one for each rank, or in one tensor."""
        if isinstance(tensor_list, Tensor):
            return self.all_gather_into_tensor(tensor_list, tensor, group, async_op)
        self._core()
        _refuse_async(async_op)
        parts = [self._tensor("all_gather", part) for part in tensor_list]
        whole = self._stacked(tensor, len(parts))
        self._call("all_gather", [tensor], [whole], group=group)
        self._unstack(whole, parts)
        return None

    def all_gather_into_tensor(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: Optional[Group] = None,
        async_op: bool = False,
    ) -> Optional[Work]:
        """The tensors of all ranks, one behind the other."""
        return self._call(
            "all_gather", [input_tensor], [output_tensor], group=group, async_op=async_op
        )

    def reduce_scatter(
        self,
        output: Tensor,
        input_list: Any,
        op: Any = "sum",
        group: Optional[Group] = None,
        async_op: bool = False,
    ) -> Optional[Work]:
        """Of the sum of the inputs, each rank gets its block."""
        if isinstance(input_list, Tensor):
            return self.reduce_scatter_tensor(output, input_list, op, group, async_op)
        _refuse_async(async_op)
        return self.reduce_scatter_tensor(output, self._stack(input_list), op, group)

    def reduce_scatter_tensor(
        self,
        output: Tensor,
        input: Tensor,
        op: Any = "sum",
        group: Optional[Group] = None,
        async_op: bool = False,
    ) -> Optional[Work]:
        """The same with the blocks in one tensor."""
        name = self._op(op)
        return self._call(
            "reduce_scatter", [input], [output], name, group=group, async_op=async_op
        )

    def broadcast(
        self,
        tensor: Tensor,
        src: int = 0,
        group: Optional[Group] = None,
        async_op: bool = False,
    ) -> Optional[Work]:
        """The tensor of rank `src` becomes that of all."""
        inside = [tensor]
        return self._call("broadcast", inside, inside, root=src, group=group, async_op=async_op)

    def reduce(
        self,
        tensor: Tensor,
        dst: int = 0,
        op: Any = "sum",
        group: Optional[Group] = None,
        async_op: bool = False,
    ) -> Optional[Work]:
        """As all_reduce, but only the tensor of rank `dst` changes."""
        inside = [tensor]
        return self._call(
            "reduce", inside, inside, self._op(op), root=dst, group=group, async_op=async_op
        )

    def gather(
        self,
        tensor: Tensor,
        gather_list: Any = None,
        dst: int = 0,
        group: Optional[Group] = None,
        async_op: bool = False,
    ) -> Optional[Work]:
        """Rank `dst` gets the tensors of all: a list with one for each rank, or one tensor."""
        if gather_list is None or isinstance(gather_list, Tensor):
            return self._call(
                "gather", [tensor], [gather_list], root=dst, group=group, async_op=async_op
            )
        _refuse_async(async_op)
        whole = self._stacked(tensor, len(gather_list))
        self._call("gather", [tensor], [whole], root=dst, group=group)
        self._unstack(whole, gather_list)
        return None

    def scatter(
        self,
        tensor: Tensor,
        scatter_list: Any = None,
        src: int = 0,
        group: Optional[Group] = None,
        async_op: bool = False,
    ) -> Optional[Work]:
        """Each rank gets its block of what rank `src` has, in a list or in one tensor."""
        whole = scatter_list
        if scatter_list is not None and not isinstance(scatter_list, Tensor):
            _refuse_async(async_op)
            whole = self._stack(scatter_list)
        return self._call("scatter", [whole], [tensor], root=src, group=group, async_op=async_op)

    def all_to_all(
        self,
        output_tensor_list: Any,
        input_tensor_list: Any,
        group: Optional[Group] = None,
        async_op: bool = False,
    ) -> Optional[Work]:
        """Block s of rank r's output is block r of rank s's input. Lists, or one tensor each."""
        outputs, inputs = output_tensor_list, input_tensor_list
        if isinstance(outputs, Tensor) and isinstance(inputs, Tensor):
            return self.all_to_all_single(outputs, inputs, group=group, async_op=async_op)
        _refuse_async(async_op)
        whole = self._stack(inputs)
        result = self._stacked(inputs[0], len(outputs))
        self.all_to_all_single(result, whole, group=group)
        self._unstack(result, outputs)
        return None

    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Optional[Sequence[int]] = None,
        input_split_sizes: Optional[Sequence[int]] = None,
        group: Optional[Group] = None,
        async_op: bool = False,
    ) -> Optional[Work]:
        """The same with the blocks in one tensor. Blocks are equally large."""
        if output_split_sizes is not None or input_split_sizes is not None:
            raise NotImplementedError("all_to_all_single: blocks of different sizes")
        return self._call("all_to_all", [input], [output], group=group, async_op=async_op)

    def send(self, tensor: Tensor, dst: int, group: Optional[Group] = None) -> None:
        """To another rank, which receives."""
        self._call("send", [tensor], [tensor], root=dst, group=group)

    def recv(self, tensor: Tensor, src: int, group: Optional[Group] = None) -> None:
        """From another rank, which sends."""
        self._call("recv", [tensor], [tensor], root=src, group=group)

    def isend(self, tensor: Tensor, dst: int, group: Optional[Group] = None) -> Optional[Work]:
        """The same without waiting."""
        inside = [tensor]
        return self._call("send", inside, inside, root=dst, group=group, async_op=True)

    def irecv(self, tensor: Tensor, src: int, group: Optional[Group] = None) -> Optional[Work]:
        """The same without waiting."""
        inside = [tensor]
        return self._call("recv", inside, inside, root=src, group=group, async_op=True)

    def barrier(self, group: Optional[Group] = None, async_op: bool = False) -> Optional[Work]:
        """Waits until all ranks have called it."""
        return self._call("barrier", [], [], group=group, async_op=async_op)

    def cooperative_yield(self) -> None:
        """Lets other workers go on: for long loops of the host."""
        self._context.engine.core.cooperative_yield()

    # ---- Lists of tensors, as one tensor with a block for each rank

    def _stacked(self, like: Tensor, count: int) -> Tensor:
        elements = 1
        for size in like.shape:
            elements *= size
        return self._context.empty((count, elements), like.dtype)

    def _stack(self, parts: Sequence[Tensor]) -> Tensor:
        whole = self._stacked(parts[0], len(parts))
        for index, part in enumerate(parts):
            whole[index] = part.numpy().reshape(-1)
        return whole

    @staticmethod
    def _unstack(whole: Tensor, parts: Sequence[Tensor]) -> None:
        blocks = whole.numpy()
        for part, block in zip(parts, blocks):
            part[...] = block.reshape(part.shape)
