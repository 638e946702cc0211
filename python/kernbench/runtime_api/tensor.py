"""Tensors of the host's side: deployed on a device, or host arrays with a name.

Calls that show contents to the host first wait for all work of the caller that is under way
(``_HOST_READ_BARRIERS`` lists them). Shape, dtype and name do not wait, nor does the target of
``copy_``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Mapping, Optional, Sequence

import numpy as np

from kernbench import _core
from kernbench.common import dtypes
from kernbench.policy.placement.dp import DPPolicy, ShardSpec, resolve_dp_policy

__all__ = ["Tensor", "TensorHandle", "TensorShard", "deploy_tensor"]

# From the engine's table of calls that wait first.
_HOST_READ_BARRIERS: frozenset[str] = frozenset(_core.HOST_READ_BARRIERS)

_numbers = count()


@dataclass(frozen=True)
class TensorShard:
    """A part of a tensor on one PE. ``pa`` is the physical address of its first byte."""

    sip: int
    cube: int
    pe: int
    pa: int
    nbytes: int
    offset_bytes: int


@dataclass(frozen=True)
class TensorHandle:
    """Where a deployed tensor is: its virtual address, and its shards in the order cube, PE."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    va_base: int
    shards: list[TensorShard] = field(default_factory=list)


def _as_shape(shape: Any) -> tuple[int, ...]:
    dims = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    result = tuple(int(n) for n in dims)
    if any(n < 0 for n in result):
        raise ValueError(f"negative size in shape {result}")
    return result


def _normal(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape with two axes at least: (n) counts as (1, n)."""
    return (1,) * (2 - len(shape)) + tuple(shape)


def _ranges(
    key: Any, shape: tuple[int, ...]
) -> Optional[tuple[tuple[tuple[int, int], ...], tuple[Any, ...]]]:
    """The ranges that an index means, one an axis, and what selects from them as numpy would.

    None if it is not made of numbers and ranges without steps alone.
    """
    items = key if isinstance(key, tuple) else (key,)
    dots = sum(1 for item in items if item is Ellipsis)
    if dots > 1 or len(items) - dots > len(shape):
        return None
    if dots:
        at = next(i for i, item in enumerate(items) if item is Ellipsis)
        fill = (slice(None),) * (len(shape) - len(items) + 1)
        items = items[:at] + fill + items[at + 1 :]
    items += (slice(None),) * (len(shape) - len(items))
    ranges, picks = [], []
    for axis, (item, size) in enumerate(zip(items, shape)):
        if isinstance(item, slice):
            start, stop, step = item.indices(size)
            if step != 1:
                return None
            ranges.append((start, max(start, stop)))
            picks.append(slice(None))
        elif isinstance(item, (int, np.integer)) and not isinstance(item, (bool, np.bool_)):
            index = int(item) + size if item < 0 else int(item)
            if not 0 <= index < size:
                raise IndexError(f"index {item} is out of range: axis {axis} has {size} elements")
            ranges.append((index, index + 1))
            picks.append(0)
        else:
            return None
    return tuple(ranges), tuple(picks)


class Tensor(_core.Tensor):
    """A tensor.

    ``Tensor(shape=, dtype=, name=)`` is one of the host; its data is set by assigning an array to
    ``_host_buffer``. ``RuntimeContext.zeros`` and ``empty`` make deployed ones.
    """

    def __init__(
        self, shape: Any, dtype: str = "f16", name: Optional[str] = None
    ) -> None:
        super().__init__()
        self.shape: tuple[int, ...] = _as_shape(shape)
        self.dtype: str = dtype
        self.name: str = f"tensor{next(_numbers)}" if name is None else str(name)
        self._host_buffer: Optional[np.ndarray] = None
        self._placement: Optional[list[ShardSpec]] = None
        self._known_handle: Optional[TensorHandle] = None
        self._runtime: Any = None  # the RuntimeContext, of a deployed tensor
        self._pe_count = 0  # PEs that its layout has, of a deployed tensor

    # ---- What it is: never waits

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return dtypes.itemsize(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, once."""
        return math.prod(self.shape) * self.itemsize

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self.shape)

    @property
    def va(self) -> Optional[int]:
        """The virtual address; None of a host tensor."""
        handle = self._handle
        return None if handle is None else handle.va_base

    @property
    def _handle(self) -> Optional[TensorHandle]:
        if not self._id:
            return None
        if self._known_handle is None:
            core = self._context
            shards = [TensorShard(*shard) for shard in core.shards(self)]
            self._known_handle = TensorHandle(
                self.name, self.shape, self.dtype, core.va(self), shards
            )
        return self._known_handle

    # ---- What is in it: host reads wait for the caller's work

    def _read(self, ranges: Optional[tuple[tuple[int, int], ...]] = None) -> np.ndarray:
        shape = self.shape if ranges is None else tuple(end - start for start, end in ranges)
        array = np.empty(shape, dtypes.numpy_dtype(self.dtype))
        if array.size:
            with self._runtime.engine.explaining():
                self._context.read(self, array, slice=ranges)
        return array

    def _host_array(self) -> np.ndarray:
        if self._host_buffer is None:
            raise RuntimeError(
                f"tensor '{self.name}' has no data: it is not deployed, and no host buffer was set"
            )
        return np.asarray(self._host_buffer).reshape(self.shape)

    def numpy(self) -> np.ndarray:
        """All elements, in the tensor's shape; bf16 as uint16 (``dtypes.widen_bf16``)."""
        return self._read() if self._id else self._host_array()

    @property
    def data(self) -> np.ndarray:
        """The same as numpy()."""
        return self.numpy()

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray:
        del copy  # what numpy() returns is a copy already
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor without axes")
        return self.shape[0]

    def __getitem__(self, key: Any) -> np.ndarray:
        if not self._id:
            return self._host_array()[key]
        found = _ranges(key, self.shape)
        if found is None:
            return self.numpy()[key]
        ranges, picks = found
        return self._read(ranges)[picks]

    def __setitem__(self, key: Any, value: Any) -> None:
        if not self._id:
            self._host_array()[key] = _elements(value, self.dtype)
            return
        found = _ranges(key, self.shape)
        if found is None:
            array = self.numpy()
            array[key] = _elements(value, self.dtype)
            self._context.write(self, array)
            return
        ranges, picks = found
        shape = tuple(end - start for start, end in ranges)
        if 0 in shape:
            return
        if isinstance(value, (bool, int, float, np.number)):
            self._context.fill(self, float(value), slice=ranges)
            return
        array = np.empty(shape, dtypes.numpy_dtype(self.dtype))
        array[picks] = _elements(value, self.dtype)
        self._context.write(self, array, slice=ranges)

    def copy_(self, src: Any) -> "Tensor":
        """Copies all elements from `src`: a tensor in any layout, or anything with numpy()."""
        own = isinstance(src, Tensor)
        source = src if own else src.numpy()
        if _normal(source.shape) != _normal(self.shape):
            raise ValueError(
                f"copy_ shape mismatch: '{self.name}' has {self.shape}, the source "
                f"{tuple(source.shape)}"
            )
        if not self._id:
            raise RuntimeError(f"copy_ into tensor '{self.name}', which is not deployed")
        if own and src._id and src._context is self._context and self._same_type(src):
            self._context.copy(self, src)
            return self
        wanted = dtypes.numpy_dtype(self.dtype)
        elements = _elements(src if own else source, self.dtype)
        array = np.ascontiguousarray(elements, dtype=wanted).reshape(self.shape)
        if array.size:
            self._context.write(self, array)
        return self

    def _same_type(self, other: "Tensor") -> bool:
        return dtypes.canonical(self.dtype) == dtypes.canonical(other.dtype)

    def fill_(self, value: float) -> "Tensor":
        """Sets all elements to a number."""
        self[...] = value
        return self

    def __repr__(self) -> str:
        about = f"name={self.name!r}, shape={self.shape}, dtype={self.dtype}"
        if not self._id and self._host_buffer is None:
            return f"tensor({about}, no data)"
        values = _as_double(self.numpy(), self.dtype)
        mean = float(values.mean()) if values.size else 0.0
        norm = float(np.sqrt(np.sum(values * values)))
        return f"tensor({about}, mean={mean:.4g}, norm={norm:.4g})"

    # ---- Placement

    def to(
        self,
        placement: Optional[Sequence[ShardSpec]] = None,
        dp_policy: Optional[DPPolicy] = None,
        sip: int = 0,
        cube: int = 0,
        target_pe: int = 0,
    ) -> "Tensor":
        """Notes a placement, by default one shard at (sip, cube, target_pe). Moves nothing."""
        if placement is not None:
            self._placement = list(placement)
        elif dp_policy is not None:
            self._placement = self._placed(dp_policy, sip)
        else:
            self._placement = [ShardSpec(sip, cube, target_pe, 0, self.nbytes)]
        return self

    def _placed(self, policy: DPPolicy, sip: int) -> list[ShardSpec]:
        if self._runtime is not None:
            machine = self._runtime.engine.machine
            pes, cubes = machine["pes"], machine["cubes"]
        else:
            pes, cubes = policy.num_pes or 1, policy.num_cubes or 1
        return resolve_dp_policy(
            policy,
            shape=self.shape,
            itemsize=self.itemsize,
            num_pe=pes,
            num_cubes=cubes,
            target_sip=sip,
        )

    def free(self) -> None:
        """Gives its memory back. It cannot be used from here on."""
        if self._id:
            self._context.free(self)
        self._known_handle = None


def _converted(array: np.ndarray, source: str, target: str) -> np.ndarray:
    """The values of one type in another, rounded as the engine does."""
    array = np.ascontiguousarray(array)
    result = np.empty(array.shape, dtypes.numpy_dtype(target))
    _core.convert(array, dtypes.canonical(source), dtypes.canonical(target), result)
    return result


def _elements(value: Any, dtype: str) -> np.ndarray:
    """What numpy has for the values in a type: of bf16 and f8 the bits."""
    if isinstance(value, Tensor):
        array, source = value.numpy(), dtypes.canonical(value.dtype)
        return array if source == dtypes.canonical(dtype) else _converted(array, source, dtype)
    array = np.asarray(value)
    if dtypes.has_bits(dtype) and array.dtype != dtypes.numpy_dtype(dtype):
        return _converted(array.astype(np.float32), "f32", dtype)
    return array


def _as_double(array: np.ndarray, dtype: str) -> np.ndarray:
    if dtypes.has_bits(dtype):
        array = _converted(array, dtype, "f32")
    return array.astype(np.float64)


def deploy_tensor(
    *,
    name: str,
    shape: Sequence[int],
    dtype: str,
    placement: Sequence[ShardSpec],
    allocators: Mapping[tuple[int, int, int], Any],
    mem_kind: str = "hbm",
    va_allocator: Optional[Any] = None,
) -> TensorHandle:
    """Allocates the shards of a placement with allocators of one's own; needs no engine."""
    if mem_kind not in ("hbm", "tcm"):
        raise ValueError(f"unknown mem_kind {mem_kind!r} (known: hbm, tcm)")
    shards = []
    for part in placement:
        allocator = allocators[part.sip, part.cube, part.pe]
        take = allocator.alloc_hbm if mem_kind == "hbm" else allocator.alloc_tcm
        pa = take(part.nbytes)
        shards.append(
            TensorShard(part.sip, part.cube, part.pe, int(pa), part.nbytes, part.offset_bytes)
        )
    dims = _as_shape(shape)
    extent = max((part.offset_bytes + part.nbytes for part in placement), default=0)
    nbytes = max(math.prod(dims) * dtypes.itemsize(dtype), extent)
    va_base = va_allocator.alloc(nbytes) if va_allocator is not None else 0
    return TensorHandle(name, dims, dtype, va_base, shards)
