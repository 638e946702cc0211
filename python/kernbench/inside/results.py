"""Launches that have ended."""

from __future__ import annotations

from typing import Any

from kernbench.runtime_api.types import Completion

__all__ = ["results", "trace_of"]


def trace_of(result: dict[str, Any]) -> dict[str, Any]:
    """A launch on one SIP, as benches and tests read it."""
    return {
        "phase": "kernel",
        "name": result["name"],
        "sip": result["sip"],
        "target_pe": "all" if result["pes"] > 1 else 0,
        "pes": result["pes"],
        "total_ns": result["total_ns"],
        "pe_exec_ns": result["pe_exec_ns"],
        "network_ns": result["network_ns"],
    }


def results(launches: list[dict[str, Any]]) -> dict[str, tuple[Completion, dict[str, Any]]]:
    """``engine._results``: a completion and a trace for each launch and SIP, in their order."""
    return {
        f"launch{index}": (Completion(True), trace_of(result))
        for index, result in enumerate(launches)
    }
