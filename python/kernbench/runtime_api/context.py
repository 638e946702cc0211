"""A runtime context: what a bench gets as `torch`."""

from __future__ import annotations

import functools
import weakref
from typing import Any, Callable, Optional, Sequence

import numpy as np

from kernbench import _core
from kernbench.common import dtypes
from kernbench.inside.allocators import AllocatorsView
from kernbench.policy.placement.dp import DPPolicy
from kernbench.runtime_api.devices import Accelerator, Ahbm
from kernbench.runtime_api.distributed import Distributed
from kernbench.runtime_api.multiprocessing import Multiprocessing
from kernbench.runtime_api.tensor import Tensor
from kernbench.runtime_api.types import Completion, DeviceSelector, resolve_device

__all__ = ["RuntimeContext", "active_context"]

# Contexts that were entered, the last one entered last.
_entered: list["weakref.ref[RuntimeContext]"] = []


def active_context() -> Optional["RuntimeContext"]:
    """The context that was entered last and not left; None if there is none."""
    while _entered:
        context = _entered[-1]()
        if context is not None:
            return context
        _entered.pop()
    return None


def _is_tensors(arg: Any) -> bool:
    """Whether it is a list with a tensor for each SIP."""
    return isinstance(arg, (list, tuple)) and bool(arg) and all(isinstance(t, Tensor) for t in arg)


def _without_named_tensors(
    kernel_fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A launch whose tensors are all given by position: the engine knows addresses there alone."""
    named = {k: v for k, v in kwargs.items() if isinstance(v, Tensor) or _is_tensors(v)}
    if not named:
        return kernel_fn, args, kwargs
    count = len(args)

    @functools.wraps(kernel_fn)
    def kernel(*values: Any, tl: Any, **others: Any) -> None:
        addresses = dict(zip(named, values[count:]))
        kernel_fn(*values[:count], tl=tl, **addresses, **others)

    rest = {k: v for k, v in kwargs.items() if k not in named}
    return kernel, (*args, *named.values()), rest


class RuntimeContext:
    """Tensors, launches, devices and ranks on an engine.

    It works with and without ``with``. The engine goes on when it is left: its tensors can be read,
    and other contexts use it. Memory is free again when the objects are gone.
    """

    def __init__(
        self,
        engine: Any,
        target_device: Any = None,
        correlation_id: Optional[str] = None,
        spec: Optional[dict] = None,
    ) -> None:
        self.engine = engine
        self.target_device: DeviceSelector = resolve_device(target_device)
        self.correlation_id = correlation_id
        self.spec = engine.spec if spec is None else spec
        self.ahbm = Ahbm(self)
        self.accelerator = Accelerator(self.ahbm)
        self.multiprocessing = Multiprocessing(self)
        self.distributed = Distributed(self)
        self._tensor_parallel: Any = None  # of kernbench.tp.parallel_state
        # What a worker waits for is the engine's; a worker that goes on finds its own done.
        self._pending_worker_waits: list[Any] = []
        self._places: set[tuple[int, int, int]] = set()
        self._tensors: "weakref.WeakSet[Tensor]" = weakref.WeakSet()
        engine.limit_to(self.target_device.sip)

    # ---- Lifetime

    def __enter__(self) -> "RuntimeContext":
        _entered.append(weakref.ref(self))
        return self

    def __exit__(self, exc_type: Any, exc: Any, traceback: Any) -> None:
        self._leave()

    def _leave(self) -> None:
        for index in range(len(_entered) - 1, -1, -1):
            if _entered[index]() is self:
                del _entered[index]
                return

    def close(self) -> None:
        """Closes the engine too: nothing of it can be used from here on."""
        self._leave()
        self.engine.close()

    @property
    def _allocators(self) -> AllocatorsView:
        return AllocatorsView(list(self._tensors), self._places)

    # ---- Tensors

    def _deploy(
        self,
        shape: Any,
        dtype: str,
        dp: Optional[DPPolicy],
        name: Optional[str],
        fill: Optional[float],
        **options: Any,
    ) -> Tensor:
        tensor = Tensor(shape, dtype, name)
        if not tensor.shape or 0 in tensor.shape:
            raise ValueError(f"tensor '{tensor.name}' has shape {tensor.shape}: no elements")
        policy = DPPolicy() if dp is None else dp
        core = self.engine.core
        core.deploy(
            tensor,
            tensor.shape,
            dtypes.canonical(dtype),
            name=tensor.name,
            cube=policy.cube,
            pe=policy.pe,
            num_cubes=policy.num_cubes or 0,
            num_pes=policy.num_pes or 0,
            fill=fill,
            **options,
        )
        tensor._runtime = self
        machine = self.engine.machine
        cubes = policy.num_cubes or machine["cubes"]
        pes = policy.num_pes or machine["pes"]
        tensor._pe_count = cubes * pes
        self._places.add((core.device(tensor), cubes, pes))
        self._tensors.add(tensor)
        return tensor

    def zeros(
        self,
        shape: Any,
        dtype: str = "f16",
        dp: Optional[DPPolicy] = None,
        name: Optional[str] = None,
        **options: Any,
    ) -> Tensor:
        """A tensor of zeros on the current device, laid out by a policy.

        Options: memory="hbm" or "tcm", timed=False (takes no simulated time), index=True.
        """
        return self._deploy(shape, dtype, dp, name, 0.0, **options)

    def full(
        self,
        shape: Any,
        value: float,
        dtype: str = "f16",
        dp: Optional[DPPolicy] = None,
        name: Optional[str] = None,
        **options: Any,
    ) -> Tensor:
        """The same, filled with a number."""
        return self._deploy(shape, dtype, dp, name, float(value), **options)

    def empty(
        self,
        shape: Any,
        dtype: str = "f16",
        dp: Optional[DPPolicy] = None,
        name: Optional[str] = None,
        **options: Any,
    ) -> Tensor:
        """The same with whatever is in its memory, which is 0 where nothing was written."""
        return self._deploy(shape, dtype, dp, name, None, **options)

    def from_numpy(
        self, array: np.ndarray, dtype: Optional[str] = None, name: Optional[str] = None
    ) -> Tensor:
        """A host tensor with an array of float16, float32, int8 or int32.

        With `dtype` "bf16" or an f8 the array has the bits, as uint16 or uint8.
        """
        if dtype is None:
            dtype = dtypes.name_of(array.dtype)
        elif np.dtype(array.dtype) != dtypes.numpy_dtype(dtype):
            raise ValueError(
                f"unsupported numpy dtype {array.dtype} for {dtype}: expected "
                f"{dtypes.numpy_dtype(dtype)}"
            )
        tensor = Tensor(array.shape, dtype, name)
        tensor._host_buffer = array
        return tensor

    def free(self, tensor: Tensor) -> None:
        """Gives a tensor's memory back."""
        tensor.free()

    # ---- Launches

    def launch(
        self,
        kernel_name: str,
        kernel_fn: Callable[..., Any],
        *args: Any,
        _defer_wait: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Runs a kernel on every PE that has a part of a tensor argument, and waits.

        The kernel gets, for each tensor, its address on the PE's SIP as an int, other arguments as
        they are, and `tl` by that name. A list of tensors, one on each SIP, launches it on all of
        them: each gets its own. Returns the handle; with ``_defer_wait=True`` it does not
        wait and returns [(handle, sip, meta)], one for each SIP.
        """
        kernel_fn, args, kwargs = _without_named_tensors(kernel_fn, args, kwargs)
        given = tuple(_core.Each(arg) if _is_tensors(arg) else arg for arg in args)
        request = self.engine.core.launch(kernel_name, kernel_fn, given, kwargs)
        if _defer_wait:
            return [(request, sip, self._meta(kernel_name, sip, args)) for sip in self._sips(args)]
        self.wait(request)
        return request

    def _sips(self, args: Sequence[Any]) -> list[int]:
        core, sips = self.engine.core, set()
        for arg in args:
            for tensor in arg if isinstance(arg, (list, tuple)) else (arg,):
                if isinstance(tensor, _core.Tensor):
                    sips.add(core.device(tensor))
        return sorted(sips)

    @staticmethod
    def _meta(name: str, sip: int, args: Sequence[Any]) -> dict[str, Any]:
        tensors = [arg for arg in args if isinstance(arg, Tensor)]
        target = 0 if all(tensor._pe_count == 1 for tensor in tensors) else "all"
        return {"phase": "kernel", "name": name, "sip": sip, "target_pe": target}

    def wait(self, handle: Any, *, _meta: Optional[dict] = None) -> Completion:
        """Waits for a request: free if it is done. In a worker others go on meanwhile.

        The exception of a kernel comes out of here.
        """
        core = self.engine.core
        with self.engine.explaining():
            core.wait(handle)
        return Completion(True, handle)

    def synchronize(self) -> None:
        """Waits for all of the caller's work."""
        with self.engine.explaining():
            self.engine.core.synchronize()

    # ---- Queues

    def install_ipcq(
        self, algorithm: Optional[str] = None, world_size_override: Optional[int] = None
    ) -> dict[str, Any]:
        """Installs the queues of an entry of ./ccl.yaml, for kernels that send and receive.

        Ranks are PEs, in the order of the machine; needs no process group. Returns the plan.
        """
        from kernbench.ccl import install  # kernels of ccl need no context, but this call does

        config = install.load_ccl_config(self.engine.ccl_file)
        merged = install.resolve_algorithm_config(config, algorithm)
        if world_size_override is not None:
            merged["world_size"] = world_size_override
        return install.install_entry(self.engine, self.spec, merged)
