"""Arrays by space and address, without a machine.

``GraphEngine.memory_store`` has the same calls for the memories of an engine.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

import numpy as np

from kernbench.common import dtypes

__all__ = ["MemoryStore"]


class MemoryStore:
    """Keeps a copy of each array that is written, and hands out copies.

    >>> store = MemoryStore()
    >>> store.write("tcm", 0x1000, np.arange(4, dtype=np.float16))
    >>> store.read("tcm", 0x1000, shape=(2, 2), dtype="f16")
    array([[0., 1.],
           [2., 3.]], dtype=float16)
    """

    def __init__(self) -> None:
        self._arrays: dict[tuple[str, int], np.ndarray] = {}

    def write(self, space: str, addr: int, array: Any) -> None:
        """Replaces what is at the address."""
        self._arrays[space, int(addr)] = np.array(array, copy=True)

    def has(self, space: str, addr: int) -> bool:
        """Whether something was written there."""
        return (space, int(addr)) in self._arrays

    def read(
        self,
        space: str,
        addr: int,
        shape: Optional[Sequence[int]] = None,
        dtype: Optional[str] = None,
    ) -> np.ndarray:
        """A copy of what was written there last.

        KeyError if nothing was; ValueError "Shape mismatch" if it has another number of elements.
        """
        try:
            array = self._arrays[space, int(addr)]
        except KeyError:
            raise KeyError(f"nothing was written to {space} at {addr:#x}") from None
        if dtype is not None and array.dtype != dtypes.numpy_dtype(dtype):
            array = array.astype(dtypes.numpy_dtype(dtype))
        if shape is None:
            return array.copy()
        wanted = tuple(int(n) for n in shape)
        if int(np.prod(wanted)) != array.size:
            raise ValueError(
                f"Shape mismatch at {space} {addr:#x}: {array.shape} was written, "
                f"{wanted} is read"
            )
        return array.reshape(wanted).copy()
