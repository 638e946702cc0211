"""intercube_allreduce under the name that it had first."""

from kernbench.ccl.algorithms.intercube_allreduce import (
    TOPO_NAME_TO_KIND,
    allreduce_intercube_multidevice,
    kernel,
    kernel_args,
)

__all__ = ["TOPO_NAME_TO_KIND", "allreduce_intercube_multidevice", "kernel", "kernel_args"]
