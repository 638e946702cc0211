"""The program `kernbench` in this process: its output goes to sys.stdout and sys.stderr.

`run --bench NAME` also takes Python benches: modules with ``run(torch)``. NAME is a path,
./mine.py, or a module ``benches.NAME``: in the working directory, anywhere on sys.path, or one of
ours. With --param the engine's bench of that name runs.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import tempfile
import traceback
from typing import Any, Callable, Iterator, Optional, Sequence

from kernbench import _core
from kernbench.ccl import diagnostics
from kernbench.ccl.install import DEFAULT_FILE

__all__ = ["main"]

Bench = Callable[[Any], Any]

_LOADERS = (__file__, "<frozen importlib", importlib.__file__)  # files whose lines explain nothing


def _option(argv: Sequence[str], name: str) -> Optional[str]:
    """The value of the last `--name VALUE` or `--name=VALUE`."""
    value = None
    for index, word in enumerate(argv):
        if word == name and index + 1 < len(argv):
            value = argv[index + 1]
        elif word.startswith(name + "="):
            value = word[len(name) + 1 :]
    return value


def _has_option(argv: Sequence[str], name: str) -> bool:
    return any(word == name or word.startswith(name + "=") for word in argv)


def _settings(argv: Sequence[str]) -> list[str]:
    found = []
    for index, word in enumerate(argv):
        if word == "--set" and index + 1 < len(argv):
            found.append(argv[index + 1])
        elif word.startswith("--set="):
            found.append(word[len("--set=") :])
    return found


def _run_of(module: Any, where: str) -> Bench:
    run = getattr(module, "run", None)
    if not callable(run):
        raise _core.InputError(f"{where} has no function run(torch)")
    return run


def _load_file(path: str, name: str) -> Bench:
    """The bench in a file, read anew. Its module is known by the name until main() returns."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not os.path.isfile(path):
        raise _core.InputError(f"{path}: no such Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return _run_of(module, path)


def _load_module(name: str) -> Optional[Bench]:
    """The bench benches.NAME; None if there is no such module."""
    module_name = f"benches.{name}"
    local = os.path.join("benches", f"{name}.py")
    if os.path.isfile(local):
        return _load_file(local, module_name)
    try:
        return _run_of(importlib.import_module(module_name), module_name)
    except ModuleNotFoundError as exc:
        if exc.name not in ("benches", module_name):
            raise
    for folder in sys.path:  # a package `benches` with an __init__.py hides other folders
        path = os.path.join(folder, local)
        if os.path.isfile(path):
            return _load_file(path, module_name)
    return None


def _folders_of(argv: Sequence[str]) -> list[str]:
    """Folders that a bench imports from: its own, and the working directory."""
    name = _option(argv, "--bench") or ""
    own = [os.path.dirname(os.path.abspath(name))] if name.endswith(".py") else []
    return own + [os.getcwd()]


def _module_of(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def find_bench(argv: Sequence[str]) -> Optional[Bench]:
    """The Python bench that a command line runs; None if it is one of the engine's or no run."""
    if not argv or argv[0] != "run" or _has_option(argv, "--help"):
        return None
    name = _option(argv, "--bench")
    if name is None:
        return None
    if name.endswith(".py"):
        return _load_file(name, _module_of(name))
    if os.sep in name or _has_option(argv, "--param"):
        return None
    return _load_module(name)


def _find_or_report(argv: Sequence[str]) -> Optional[Bench]:
    """The same; a module that raises is an InputError, behind a traceback of its lines."""
    try:
        return find_bench(argv)
    except _core.InputError:
        raise
    except Exception as exc:
        lines = exc.__traceback__
        while lines is not None and lines.tb_frame.f_code.co_filename.startswith(_LOADERS):
            lines = lines.tb_next
        traceback.print_exception(type(exc), exc, lines)
        reason = f"{type(exc).__name__}: {exc}"
        raise _core.InputError(f"cannot load {_option(argv, '--bench')}: {reason}") from None


@contextlib.contextmanager
def words_for_engine(argv: Sequence[str]) -> Iterator[list[str]]:
    """The command line of a bench in Python for the engine. It has no ccl.yaml: the package reads
    that when the bench asks for it, as it may name algorithms in Python."""
    words = _without_option(argv, "--ccl")
    has_file = len(words) < len(argv) or os.path.exists(DEFAULT_FILE)
    if diagnostics.trace_enabled():
        words.append("--ccl-trace")
    if not has_file:
        yield words
        return
    with tempfile.NamedTemporaryFile("w", prefix="kernbench-ccl-", suffix=".yaml") as file:
        file.write("defaults: {}\n")
        file.flush()
        yield [*words, "--ccl", file.name]


def _without_option(argv: Sequence[str], name: str) -> list[str]:
    words, skip = [], False
    for word in argv:
        if not skip and word != name and not word.startswith(name + "="):
            words.append(word)
        skip = not skip and word == name
    return words


def _forget_bench(argv: Sequence[str], modules: dict[str, Any]) -> None:
    """The next command line reads its bench anew, maybe in another folder."""
    bench = _option(argv, "--bench") or ""
    name = _module_of(bench) if bench.endswith(".py") else f"benches.{bench}"
    if name in sys.modules and name not in modules:
        del sys.modules[name]


def _run_bench(argv: Sequence[str], bench: Bench) -> int:
    from kernbench.runtime_api.bench_runner import run_on  # not needed by other commands
    from kernbench.topology.builder import resolve_topology

    def run(core: _core.Context) -> None:
        topology = resolve_topology(_option(argv, "--topology") or "default", _settings(argv))
        output = sys.stderr if _has_option(argv, "--json") else sys.stdout
        with contextlib.redirect_stdout(output):
            run_on(core, bench, topology, _option(argv, "--device"), _option(argv, "--ccl"))

    with words_for_engine(argv) as words:
        return _core.run_cli(words, bench=run)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs a command line, sys.argv[1:] if there is none, and returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    folders, modules = _folders_of(words), dict(sys.modules)
    sys.path[:0] = folders
    try:
        bench = _find_or_report(words)
        return _core.run_cli(words) if bench is None else _run_bench(words, bench)
    except _core.InputError as exc:
        print(f"kernbench: {exc}", file=sys.stderr)
        return 2
    finally:
        for folder in folders:
            if folder in sys.path:
                sys.path.remove(folder)
        _forget_bench(words, modules)
