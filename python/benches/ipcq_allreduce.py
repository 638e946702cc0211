"""ipcq_allreduce: the name that ccl_allreduce had first."""

from benches.ccl_allreduce import run

__all__ = ["run"]
