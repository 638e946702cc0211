"""Running a bench: a function that gets a context."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Callable, Optional

from kernbench.runtime_api.context import RuntimeContext
from kernbench.runtime_api.types import Completion, DeviceSelector, resolve_device
from kernbench.sim_engine.engine import GraphEngine

__all__ = ["BenchResult", "run_bench", "run_on"]


@dataclass
class BenchResult:
    """What a bench did: ``traces`` has a dict for each launch and SIP, in their order."""

    completion: Completion
    traces: list[dict[str, Any]] = field(default_factory=list)
    sim_ns: float = 0.0


def _default_engine(topology: Any, device: Any) -> GraphEngine:
    del device
    return GraphEngine(getattr(topology, "topology_obj", topology), enable_data=True)


def _call(bench_fn: Callable[[RuntimeContext], Any], context: RuntimeContext) -> None:
    """Calls the bench, and waits for all that it launched."""
    returned = bench_fn(context)
    if isinstance(returned, (GeneratorType, CoroutineType, AsyncGeneratorType)):
        raise TypeError(
            f"the bench returned {returned!r}, and its body has not run: a bench is a plain "
            "function, without `yield` and `async`"
        )
    context.synchronize()


def run_on(
    core: Any,
    bench_fn: Callable[[RuntimeContext], Any],
    topology: Any,
    device: Any,
    ccl_file: Optional[str] = None,
) -> None:
    """Runs a bench on a simulation that is there already, and waits for all that it launched."""
    engine = GraphEngine(topology, core=core)
    engine.ccl_file = ccl_file
    with RuntimeContext(engine=engine, target_device=device, correlation_id="bench") as context:
        _call(bench_fn, context)


def run_bench(
    *,
    topology: Any,
    bench_fn: Callable[[RuntimeContext], Any],
    device: Any = None,
    engine_factory: Optional[Callable[[Any, DeviceSelector], Any]] = None,
    correlation_id: str = "bench",
) -> BenchResult:
    """Makes an engine and a context, calls the bench with it, and waits for all that it launched.

    An exception of the bench comes out of here.
    """
    selector = resolve_device(device)
    engine = (engine_factory or _default_engine)(topology, selector)
    spec = getattr(getattr(topology, "topology_obj", topology), "spec", None)
    context = RuntimeContext(
        engine=engine, target_device=selector, correlation_id=correlation_id, spec=spec
    )
    with context:
        _call(bench_fn, context)
        sim_ns = engine._env.now
    return BenchResult(Completion(), engine.traces(), sim_ns)
