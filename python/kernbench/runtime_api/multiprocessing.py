"""Workers: one for each rank, as coroutines of one thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Sequence

if TYPE_CHECKING:
    from kernbench.runtime_api.context import RuntimeContext

__all__ = ["Multiprocessing", "SpawnException"]


class SpawnException(RuntimeError):
    """Workers failed. ``errors`` has the exception of each rank that did, without those that were
    only stopped because of it."""

    def __init__(self, errors: dict[int, BaseException]) -> None:
        self.errors = dict(sorted(errors.items()))
        reasons = "; ".join(f"rank {rank} raised {exc!r}" for rank, exc in self.errors.items())
        super().__init__(f"spawn failed on ranks {list(self.errors)}: {reasons}")


class Multiprocessing:
    """``ctx.multiprocessing``."""

    def __init__(self, context: "RuntimeContext") -> None:
        self._context = context

    def spawn(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        nprocs: int = 1,
        join: bool = True,
        daemon: bool = False,
        start_method: str = "spawn",
    ) -> None:
        """Runs fn(rank, *args) for each rank and returns when all are done.

        While one worker waits others go on, in the order of their ranks; simulated time passes only
        when all wait. `join`, `daemon` and `start_method` are accepted and ignored. SpawnException
        if a worker raises.
        """
        del join, daemon, start_method
        if nprocs < 1:
            raise ValueError(f"nprocs is {nprocs}: expected at least 1")
        arguments = tuple(args)
        core = self._context.engine.core
        errors = core.spawn(lambda rank: fn(rank, *arguments), nprocs)
        if errors:
            failure = SpawnException(errors)
            raise failure from next(iter(failure.errors.values()))
