"""Machines, contexts and runs under short names: what ``import kernbench as kb`` offers."""

from __future__ import annotations

import contextlib
import html
import inspect
import io
import json
import os
import shlex
import sys
import time
from typing import Any, Callable, Mapping, Optional, Sequence, TypeVar, Union

from kernbench import _core
from kernbench.cli.main import find_bench, words_for_engine
from kernbench.runtime_api.bench_runner import run_on
from kernbench.runtime_api.context import RuntimeContext
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology.builder import TopologyGraph, resolve_topology

__all__ = ["Context", "Machine", "RunResult", "kernel", "run"]

Settings = Union[Mapping[str, Any], Sequence[str]]
Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def _as_text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (bool, list, dict)) else str(value)


class Machine:
    """A machine: a file or a built-in name ("default"), with settings as those of --set.

    >>> Machine("default", {"sip.ucie.bw_gbs": 1024}).spec["sip"]["ucie"]["bw_gbs"]
    1024
    """

    def __init__(self, source: Any = "default", settings: Settings = ()) -> None:
        if isinstance(settings, Mapping):
            settings = [f"{key}={_as_text(value)}" for key, value in settings.items()]
        self.topology_obj: TopologyGraph = resolve_topology(source, tuple(settings)).topology_obj

    @property
    def spec(self) -> dict[str, Any]:
        """The machine's description, with defaults filled in."""
        return self.topology_obj.spec

    def __repr__(self) -> str:
        graph = self.topology_obj
        return f"Machine({graph.source!r}, {list(graph.settings)!r})"


def _as_machine(machine: Any) -> Machine:
    if isinstance(machine, Machine):
        return machine
    return Machine("default" if machine is None else machine)


class Context(RuntimeContext):
    """A simulation of a machine: tensors, launches, devices, ranks.

    `with` closes it in the end. ``data=False`` simulates times without numbers. `options` are those
    of ``_core.Context``, such as races="fail".
    """

    def __init__(
        self,
        machine: Any = None,
        *,
        device: Optional[str] = None,
        data: bool = True,
        **options: Any,
    ) -> None:
        engine = GraphEngine(_as_machine(machine).topology_obj, enable_data=data, **options)
        super().__init__(engine=engine, target_device=device)

    def __exit__(self, exc_type: Any, exc: Any, traceback: Any) -> None:
        self.close()


def kernel(function: Kernel) -> Kernel:
    """Marks a function as a kernel: it is returned as it is, and checked to take `tl`."""
    if "tl" not in inspect.signature(function).parameters:
        raise TypeError(f"kernel {function.__name__}() has no parameter `tl`")
    return function


class RunResult:
    """What a run took, as ``kernbench run --json`` has it."""

    def __init__(self, document: dict[str, Any], origin: dict[str, Any]) -> None:
        self._document, self._origin = document, origin

    @property
    def sim_ns(self) -> float:
        """The simulated time."""
        return float(self._document["sim_ns"])

    @property
    def kernels(self) -> list[dict[str, Any]]:
        """A dict for each launch and SIP: name, sip, total_ns, pe_exec_ns, network_ns."""
        return self._document["kernels"]

    @property
    def breakdown(self) -> Any:
        """Where the time went."""
        return self._document["breakdown"]

    @property
    def units(self) -> Any:
        """What the units of the PEs did."""
        return self._document.get("units")

    @property
    def links(self) -> Any:
        """The busiest links."""
        return self._document["busiest_links"]

    def to_dict(self) -> dict[str, Any]:
        """All of it."""
        return self._document

    def save(self, path: Any = "kernbench.db") -> str:
        """Adds the run to a store, as ``run --save`` does, and returns its id there.

        ``kernbench runs`` lists what a store has.
        """
        topology = self._document["topology"]
        return _core.save_run(
            os.fspath(path),
            json.dumps(self._document),
            machine_name=topology["name"],
            machine_hash=topology["hash"],
            **self._origin,
        )

    def __repr__(self) -> str:
        count = len(self.kernels)
        return f"RunResult({self._document['bench']}: {self.sim_ns:.3f} ns, {count} kernels)"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(str(row['name']))}</td><td>{row['sip']}</td>"
            f"<td>{row['total_ns']:.3f}</td><td>{row['pe_exec_ns']:.3f}</td></tr>"
            for row in self.kernels
        )
        return (
            f"<p><b>{html.escape(str(self._document['bench']))}</b>: simulated time "
            f"{self.sim_ns:.3f} ns</p><table><tr><th>kernel</th><th>SIP</th><th>total ns</th>"
            f"<th>PE exec ns</th></tr>{rows}</table>"
        )


def _origin(name: str, argv: list[str], can_repeat: bool) -> dict[str, Any]:
    """What a store keeps of how a run was made. Only what a command can run again has one."""
    again = [word for word in argv if word != "--json"]
    return {
        "bench": name,
        "bench_file": name if name.endswith(".py") else None,
        "command": f"kernbench {shlex.join(again)}" if can_repeat else None,
        "directory": os.getcwd(),
    }


def _call(argv: list[str], bench: Optional[Callable[..., Any]], body: Any) -> str:
    """Runs a command line of `run --json`; returns its output, or raises what went wrong."""
    shown, warnings, failures = sys.stdout, io.StringIO(), []

    def guarded(core: _core.Context) -> None:
        try:
            with contextlib.redirect_stdout(shown):
                body(core)
        except BaseException as exc:
            failures.append(exc)
            raise

    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(warnings):
        if bench is None:
            code = _core.run_cli(argv)
        else:
            with words_for_engine(argv) as words:
                code = _core.run_cli(words, bench=guarded)
    if failures:
        raise failures[0]
    if code != 0:
        error = _core.InputError if code == 2 else _core.KernbenchError
        raise error(warnings.getvalue().strip())
    sys.stderr.write(warnings.getvalue())
    return output.getvalue()


def run(
    bench: Union[str, Callable[[RuntimeContext], Any]],
    machine: Any = None,
    *,
    device: Optional[str] = None,
    params: Optional[Mapping[str, Any]] = None,
    verify: bool = False,
    data: bool = True,
) -> RunResult:
    """Runs a bench: a function that gets a context, or a name as `--bench` has it.

    `machine` is a Machine, a file or a name. `params` are those of a bench of the engine, `verify`
    has it compare its results; ``data=False`` simulates times without numbers. What a function
    raises comes out of here.
    """
    name = bench if isinstance(bench, str) else getattr(bench, "__name__", "bench")
    options = [f"--param={key}={value}" for key, value in (params or {}).items()]
    options += ["--verify-data"] if verify else []
    options += [] if data else ["--timing-only"]
    options += [f"--device={device}"] if device is not None else []
    function = find_bench(["run", f"--bench={name}", *options]) if bench is name else bench
    graph = _as_machine(machine).topology_obj

    with graph.description() as (source, settings):
        argv = ["run", "--json", f"--bench={name}", f"--topology={source}", *options]
        argv += [f"--set={setting}" for setting in settings]
        origin = _origin(name, argv, bench is name and source == graph.source)
        origin["machine"] = _core.describe_machine(source, settings)
        origin["settings"] = settings
        begin = time.perf_counter()
        output = _call(argv, function, lambda core: run_on(core, function, graph, device))
        origin["wall_s"] = time.perf_counter() - begin
    return RunResult(json.loads(output), origin)
