"""KernBench: a simulator of accelerators that are made of chiplets, with kernels in Python.

    import numpy as np
    import kernbench as kb

    def scale(x_ptr, n, factor, tl):
        mine = x_ptr + tl.program_id(0) * n * 2
        tl.store(mine, tl.load(mine, shape=(n,), dtype="f16") * factor)

    def bench(torch):
        x = torch.zeros((1, 512), dp=kb.DPPolicy(num_cubes=1, pe="column_wise"), name="x")
        x[...] = 3
        torch.launch("scale", scale, x, 64, 0.5)
        print(x)

    result = kb.run(bench, machine=kb.Machine("default", {"sip.ucie.bw_gbs": 1024}))
    print(result.sim_ns, result.kernels)

- ``Machine(source, settings)`` is a machine: a file or a built-in name, with settings.
- ``Context(machine)`` is a simulation of it: tensors, launches, devices, ranks. As a context
  manager it is closed in the end.
- ``run(bench, machine)`` runs a function that gets a context, or a bench by its name, and returns a
  ``RunResult``: ``sim_ns``, ``kernels``, ``breakdown``, ``units``, ``links``.
- ``kernel`` marks a function as a kernel; ``tl`` is the class whose methods kernels call.
- ``compile_c(path)`` compiles kernels in C, which are launched like those in Python.
- Errors: ``KernbenchError``, ``InputError``, ``KernelError``, ``IpcqInvalidDirection``,
  ``IpcqDeadlock``.

docs/python.md is a tutorial. The modules below this one have the names of the Python original:
``kernbench.runtime_api``, ``kernbench.ccl``, ``kernbench.tp`` and so on. Their objects are the
same.
"""

import os as _os
from typing import TYPE_CHECKING as _TYPE_CHECKING

if "KB_PYTHON_BUILD" in _os.environ:  # the extension of a build directory
    __path__.append(_os.path.join(_os.environ["KB_PYTHON_BUILD"], "kernbench"))

if _TYPE_CHECKING:
    from kernbench._core import (
        TL as tl,
        IpcqDeadlock,
        IpcqInvalidDirection,
        InputError,
        KernbenchError,
        KernelError,
    )
    from kernbench.compiling import compile_c
    from kernbench.api import Context, Machine, RunResult, kernel, run
    from kernbench.policy.placement.dp import DPPolicy

_CORE = {
    "IpcqDeadlock": "IpcqDeadlock",
    "IpcqInvalidDirection": "IpcqInvalidDirection",
    "InputError": "InputError",
    "KernbenchError": "KernbenchError",
    "KernelError": "KernelError",
    "tl": "TL",
}
_API = ("Context", "Machine", "RunResult", "kernel", "run")

_OTHERS = {
    "DPPolicy": "kernbench.policy.placement.dp",
    "compile_c": "kernbench.compiling",
}

__all__ = sorted([*_CORE, *_API, *_OTHERS])


def __getattr__(name):
    """Imports what is asked for: `import kernbench` itself is quick."""
    import importlib

    if name in _CORE:
        value = getattr(importlib.import_module("kernbench._core"), _CORE[name])
    elif name in _API:
        value = getattr(importlib.import_module("kernbench.api"), name)
    elif name in _OTHERS:
        value = getattr(importlib.import_module(_OTHERS[name]), name)
    else:
        raise AttributeError(f"module 'kernbench' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
