"""Kernels in C: compiles a file of them and loads it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from typing import Any, Iterator, Sequence

from kernbench import _core

__all__ = ["CKernels", "compile_c"]

_OPTIONS = (
    "-std=gnu17",
    "-O2",
    "-g",
    "-shared",
    "-fPIC",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Werror=int-conversion",
    "-Werror=incompatible-pointer-types",
)

_COMMENT_OR_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"', re.DOTALL)
_KERNEL = re.compile(r"^[ \t]*KB_KERNEL\s*\(\s*(\w+)", re.MULTILINE)


class CKernels:
    """The kernels of a file, as attributes: ``ctx.launch("scale", kernels.scale, x, 64, 0.5)``."""

    def __init__(self, path: str, kernels: dict[str, Any]) -> None:
        self._path, self._kernels = path, kernels

    def __getattr__(self, name: str) -> Any:
        kernels = self.__dict__.get("_kernels", {})
        if name not in kernels:
            known = ", ".join(kernels) or "none"
            path = self.__dict__.get("_path")
            raise AttributeError(f"{path} has no kernel {name!r} (it has: {known})")
        return kernels[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __dir__(self) -> list[str]:
        return sorted(self._kernels)

    def __repr__(self) -> str:
        return f"CKernels({self._path!r}: {', '.join(self._kernels)})"


def _include_folder() -> str:
    """The headers of this installation, or of the tree that the package is in."""
    folder = os.path.dirname(os.path.abspath(__file__))
    while True:
        candidate = os.path.join(folder, "include")
        if os.path.isfile(os.path.join(candidate, "kernbench", "tl.h")):
            return candidate
        parent = os.path.dirname(folder)
        if parent == folder:
            raise _core.KernbenchError("the headers of KernBench are not installed")
        folder = parent


def _kernel_names(source: str) -> list[str]:
    return list(dict.fromkeys(_KERNEL.findall(_COMMENT_OR_TEXT.sub(" ", source))))


def _quoted(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


def compile_c(path: Any, flags: Sequence[str] = ()) -> CKernels:
    """Compiles a file with kernels (KB_KERNEL) and returns them as attributes of an object.

    `flags` are more options for the compiler, which is $CC, or cc. What it says of an error is the
    text of an InputError. The kernels stay loaded.
    """
    file = os.path.abspath(os.fspath(path))
    with open(file, encoding="utf-8") as source:
        names = _kernel_names(source.read())
    if not names:
        raise _core.InputError(f"{path}: no kernel: expected KB_KERNEL(name, parameters...)")
    table = ", ".join(f"&{name}" for name in names)
    with tempfile.TemporaryDirectory(prefix="kernbench-") as folder:
        unit, library = os.path.join(folder, "kernels.c"), os.path.join(folder, "kernels.so")
        with open(unit, "w", encoding="utf-8") as text:
            text.write(f"#include {_quoted(file)}\n")
            text.write("__attribute__((visibility(\"default\")))\n")
            text.write(f"const kb_kernel *const kernbench_kernels[] = {{{table}, 0}};\n")
        compiler = shlex.split(os.environ.get("CC") or "cc")
        command = [*compiler, *_OPTIONS, f"-I{_include_folder()}", *flags, "-o", library, unit]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            reason = f"cannot run the compiler {compiler[0]!r}: {error.strerror}"
            raise _core.KernbenchError(f"{reason}; set CC to an installed one") from None
        if done.returncode != 0:
            raise _core.InputError(f"{path} does not compile:\n{done.stderr.rstrip()}")
        sys.stderr.write(done.stderr)  # warnings
        return CKernels(os.fspath(path), _core.load_kernels(library))
