"""The names of number types, and what numpy calls them.

numpy has no bf16 and no f8: arrays of these have their bits, as uint16 and uint8. ``widen_bf16``
makes f32 of the former.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

__all__ = ["canonical", "has_bits", "itemsize", "name_of", "numpy_dtype", "widen_bf16"]

_NUMPY = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(np.uint16),
    "f32": np.dtype(np.float32),
    "f8e4m3": np.dtype(np.uint8),
    "f8e5m2": np.dtype(np.uint8),
    "i8": np.dtype(np.int8),
    "i32": np.dtype(np.int32),
}

_ALIASES = {
    "fp16": "f16",
    "float16": "f16",
    "half": "f16",
    "bfloat16": "bf16",
    "fp32": "f32",
    "float32": "f32",
    "float": "f32",
    "fp8e4m3": "f8e4m3",
    "float8_e4m3": "f8e4m3",
    "float8_e4m3fn": "f8e4m3",
    "fp8e5m2": "f8e5m2",
    "float8_e5m2": "f8e5m2",
    "int8": "i8",
    "int32": "i32",
    "int": "i32",
}

# Of numpy's types those whose arrays have one meaning.
_NAMES = {
    np.dtype(np.float16): "f16",
    np.dtype(np.float32): "f32",
    np.dtype(np.int8): "i8",
    np.dtype(np.int32): "i32",
}


def canonical(name: Any) -> str:
    """The short name of a type: "float16" and numpy.float16 are "f16".

    An unknown name means f16, with a warning.
    """
    if not isinstance(name, str):
        return name_of(np.dtype(name))
    key = name.lower()
    key = _ALIASES.get(key, key)
    if key not in _NUMPY:
        known = ", ".join(_NUMPY)
        warnings.warn(f"unknown dtype {name!r}: f16 is used (known: {known})", stacklevel=3)
        return "f16"
    return key


def numpy_dtype(name: Any) -> np.dtype:
    """What numpy calls a type. A type of numpy's is itself."""
    if not isinstance(name, str):
        return np.dtype(name)
    return _NUMPY[canonical(name)]


def itemsize(name: Any) -> int:
    """Bytes of an element."""
    return numpy_dtype(name).itemsize


def has_bits(name: Any) -> bool:
    """Whether arrays of the type have its bits, as numpy has no such numbers."""
    return canonical(name) in ("bf16", "f8e4m3", "f8e5m2")


def name_of(dtype: np.dtype) -> str:
    """The short name of a type of numpy's; ValueError if there is none."""
    name = _NAMES.get(np.dtype(dtype).newbyteorder("="))
    if name is None:
        known = ", ".join(str(known) for known in _NAMES)
        raise ValueError(f"unsupported numpy dtype {dtype} (supported: {known})")
    return name


def widen_bf16(bits: np.ndarray) -> np.ndarray:
    """f32 with the values of an array of bf16, which numpy has as uint16."""
    array = np.ascontiguousarray(bits, dtype=np.uint16)
    return (array.astype(np.uint32) << 16).view(np.float32)
