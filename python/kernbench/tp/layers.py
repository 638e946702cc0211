"""Linear layers whose weights are shared out to the ranks of a tensor parallel group.

Each rank multiplies on PE 0 of cube 0 of its device: the layers of the Python original. The engine
has layers that use all PEs of a device: ``include/kernbench/tp.h``.
"""

from __future__ import annotations

from typing import Optional

from kernbench.policy.placement.dp import DPPolicy
from kernbench.runtime_api.context import RuntimeContext, active_context
from kernbench.runtime_api.tensor import Tensor
from kernbench.tp.kernels import _gemm_kernel
from kernbench.tp.parallel_state import get_tensor_model_parallel_world_size
from kernbench.tp.primitives import reduce_from_tp_region

__all__ = ["ColumnParallelLinear", "RowParallelLinear"]

_ONE_PE = DPPolicy(cube="replicate", pe="replicate", num_cubes=1, num_pes=1)


def _divide(name: str, features: int, size: int) -> int:
    if features % size:
        raise ValueError(f"{name} {features} is not a multiple of the {size} tensor parallel ranks")
    return features // size


def _on_one_pe(torch: RuntimeContext, x: Tensor) -> Tensor:
    """The input as one shard on PE 0 of cube 0: itself, or a copy."""
    handle = x._handle
    if handle is not None:
        shards = handle.shards
        if len(shards) == 1 and (shards[0].cube, shards[0].pe) == (0, 0):
            return x
    copied = torch.empty(x.shape, x.dtype, dp=_ONE_PE, name=f"{x.name}_on_pe0")
    copied.copy_(x)
    return copied


class _Linear:
    """A layer with a weight of (rows, columns) on each rank."""

    launch_name = ""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        dtype: str,
        torch: Optional[RuntimeContext],
    ) -> None:
        if torch is None:
            raise TypeError(f"{type(self).__name__}() needs the argument torch: the context")
        if active_context() is None:
            raise RuntimeError(f"{type(self).__name__}: no RuntimeContext is active")
        self._torch = torch
        self.in_features, self.out_features = int(in_features), int(out_features)
        self.dtype = dtype
        self.world_size = get_tensor_model_parallel_world_size()
        self.bias: Optional[Tensor] = None

    def _tensor(self, shape: tuple[int, int], what: str, dtype: str) -> Tensor:
        return self._torch.zeros(shape, dtype=dtype, dp=_ONE_PE, name=f"{self.launch_name}_{what}")

    def _multiply(self, x: Tensor, weight: Tensor) -> Tensor:
        """x times the weight, in the dtype of x."""
        rows = x.shape[0] if len(x.shape) > 1 else 1
        inner, columns = weight.shape
        if x.shape[-1] != inner:
            raise ValueError(
                f"{type(self).__name__}: the input has {x.shape[-1]} columns, the weight {inner} "
                "rows"
            )
        name = f"{self.launch_name}_out"
        out = self._torch.empty((rows, columns), x.dtype, dp=_ONE_PE, name=name)
        self._torch.launch(
            self.launch_name,
            _gemm_kernel,
            _on_one_pe(self._torch, x),
            weight,
            out,
            rows,
            inner,
            columns,
            DTYPE=x.dtype,
        )
        return out

    def _add_bias(self, out: Tensor) -> Tensor:
        if self.bias is not None:
            out[...] = out.numpy() + self.bias.numpy()
        return out

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output."""
        raise NotImplementedError

    def __call__(self, x: Tensor) -> Tensor:
        return self.forward(x)


class ColumnParallelLinear(_Linear):
    """y = x W, of which each rank has the columns W[:, rank * n : (rank + 1) * n].

    The input is the same on all ranks, the output is the rank's columns.
    """

    launch_name = "col_parallel_gemm"

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = False,
        dtype: str = "f16",
        torch: Optional[RuntimeContext] = None,
    ) -> None:
        super().__init__(in_features, out_features, dtype, torch)
        self.n_local = _divide("out_features", self.out_features, self.world_size)
        self.k_local = self.in_features
        self.weight = self._tensor((self.in_features, self.n_local), "weight", dtype)
        if bias:
            self.bias = self._tensor((1, self.n_local), "bias", dtype)

    def forward(self, x: Tensor) -> Tensor:
        """(M, in_features) gives (M, out_features / ranks)."""
        return self._add_bias(self._multiply(x, self.weight))


class RowParallelLinear(_Linear):
    """y = x W, of which each rank has rows: its input is its columns of x. The products are added
    up over the ranks: every rank gets the same output."""

    launch_name = "row_parallel_gemm"

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = False,
        dtype: str = "f16",
        torch: Optional[RuntimeContext] = None,
    ) -> None:
        super().__init__(in_features, out_features, dtype, torch)
        self.k_local = _divide("in_features", self.in_features, self.world_size)
        self.n_local = self.out_features
        self.weight = self._tensor((self.k_local, self.out_features), "weight", dtype)
        if bias:
            self.bias = self._tensor((1, self.out_features), "bias", dtype)

    def forward(self, x: Tensor) -> Tensor:
        """(M, in_features / ranks) gives (M, out_features)."""
        out = reduce_from_tp_region(self._multiply(x, self.weight), self._torch)
        return self._add_bias(out)
