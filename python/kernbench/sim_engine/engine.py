"""An engine: a simulated machine that contexts work on."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import Any, Iterator, Optional

from kernbench import _core
from kernbench.ccl import diagnostics
from kernbench.inside.components import ComponentsView
from kernbench.inside.environment import EnvironmentView
from kernbench.inside.memory import MemoryView
from kernbench.inside.results import results, trace_of
from kernbench.runtime_api.types import Completion
from kernbench.topology.builder import TopologyGraph, resolve_topology

__all__ = ["GraphEngine"]


def _print_queue_line(line: str) -> None:
    """A line of the engine's queue trace, with the direction as `dir=E`."""
    time, unit, pe, what, direction, rest = line.split(None, 5)
    print(f"{time:>12} {unit}  {pe:<16}  {what}  dir={direction:<8}  {rest}")


def _queue_trace() -> Any:
    wanted = diagnostics.trace_enabled() or os.environ.get("KERNBENCH_CCL_TRACE") == "1"
    return _print_queue_line if wanted else None


class GraphEngine:
    """A machine, from ``resolve_topology(..).topology_obj``.

    The simulation is made when it is first used. ``enable_data=False`` simulates times without
    numbers; `options` are those of ``_core.Context``. `core` is a simulation that is there already.
    """

    def __init__(
        self,
        topology_obj: Any,
        enable_data: bool = True,
        *,
        core: Optional[_core.Context] = None,
        **options: Any,
    ) -> None:
        if isinstance(topology_obj, (str, os.PathLike)):
            topology_obj = resolve_topology(topology_obj)
        self.topology: TopologyGraph = getattr(topology_obj, "topology_obj", topology_obj)
        self.enable_data = enable_data
        self._options = options
        self._device: Optional[int] = None
        self._made = core
        if core is not None and _queue_trace() is not None:
            core.redirect_ccl_trace(_print_queue_line)
        self._closed = False
        self._queue_sets: list[int] = []
        self._group_owner: Any = None
        self._queues_of_group: Optional[int] = None
        self._env = EnvironmentView(self)
        self._components = ComponentsView(self)
        self.memory_store = MemoryView(self)
        self.ccl_file: Optional[str] = None  # instead of ./ccl.yaml

    @property
    def spec(self) -> dict[str, Any]:
        """The machine's description."""
        return self.topology.spec

    # ---- The simulation

    @property
    def core(self) -> _core.Context:
        """The engine behind it."""
        if self._made is None:
            if self._closed:
                raise _core.KernbenchError("context is closed")
            self._made = self._make()
        return self._made

    def _make(self) -> _core.Context:
        options = dict(self._options)
        options.setdefault("on_ccl_trace", _queue_trace())
        options.setdefault("timing_only", not self.enable_data)
        if self._device is not None:
            options.setdefault("device", f"sip:{self._device}")
        with self.topology.description() as (source, settings):
            return _core.Context(source, settings, **options)

    @property
    def machine(self) -> dict[str, Any]:
        """What the machine has: sips, cubes, cube_w, cube_h, pes, and bytes of its memories."""
        return self.core.machine

    def limit_to(self, sip: Optional[int]) -> None:
        """A context may use this SIP alone. An engine that is in use already goes on with all, and
        the SIP becomes the current device."""
        if sip is None:
            return
        if self._made is None:
            self._device = sip
        elif self._device != sip:
            self._made.set_device(sip)

    @property
    def closed(self) -> bool:
        """Whether close() was called, or a run was interrupted."""
        return self._closed or (self._made is not None and self._made.closed)

    def close(self) -> None:
        """Frees the simulation and all that is in it."""
        self._closed = True
        if self._made is not None:
            self._made.close()

    # ---- Launches that have ended

    def traces(self) -> list[dict[str, Any]]:
        """A dict for each launch and SIP, in their order, collectives' too."""
        return [trace_of(result) for result in self.core.results()]

    @property
    def _results(self) -> dict[str, tuple[Completion, dict[str, Any]]]:
        return results(self.core.results())

    def get_completion(self, handle: Any) -> tuple[Completion, Optional[dict[str, Any]]]:
        """What became of a request; its trace is None if it is not a launch that is done."""
        found = handle.results if handle.done else None
        return Completion(handle.done, handle), trace_of(found[0]) if found else None

    # ---- Queues

    def add_queues(self, **spec: Any) -> int:
        """Installs queues; see ``_core.Context.queues_create``. Returns the set's number."""
        number = self.core.queues_create(**spec)
        self.core.queues_install(number)
        self._queue_sets.append(number)
        return number

    def queues_at(self, pe: tuple[int, int, int]) -> list[dict[str, Any]]:
        """All ends of the set that was installed last on a PE."""
        for number in reversed(self._queue_sets):
            ends = self.core.queues_list(number)
            if any(end["pe"] == pe for end in ends):
                return ends
        return []

    def queues_dump(self) -> str:
        """The ends of all sets, as text."""
        lines = []
        for number in self._queue_sets:
            for end in self.core.queues_list(number):
                name = "sip{}.cube{}.pe{}".format(*end["pe"])
                ring = "-" if end["ring"] is None else f"{end['ring']:#x}"
                lines.append(
                    f"{name}  {end['direction']}: my_head={end['my_head']} "
                    f"my_tail={end['my_tail']} peer_head_cache={end['peer_head_cache']} "
                    f"peer_tail_cache={end['peer_tail_cache']} rx_base={ring}"
                )
        return "\n".join(lines)

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Adds the pointers of all queues to the text of a deadlock."""
        try:
            yield
        except _core.IpcqDeadlock as deadlock:
            text, pointers = str(deadlock), self.queues_dump()
            if pointers not in text:
                deadlock.args = (f"{text}\n{pointers}",)
            raise

    # ---- The process group, of which an engine has one at a time

    def take_process_group(self, owner: Any) -> None:
        """A context is about to initialize: the group of another one ends."""
        before = self._group_owner
        if before is not None and before is not owner and before.is_initialized():
            before.destroy_process_group()
        self._group_owner = owner

    def install_queues_of_group(self) -> None:
        """Kernels of ordinary launches can use the queues of the configured entry too."""
        core = self.core
        algorithm = core.ccl_info()["algorithm"]
        if algorithm != "auto" and core.worker_rank() is None:
            self._queues_of_group = self.add_queues(algorithm=algorithm)

    def remove_queues_of_group(self) -> None:
        """The process group ends."""
        number, self._queues_of_group = self._queues_of_group, None
        if number is not None:
            self._queue_sets.remove(number)
            self.core.queues_remove(number)
