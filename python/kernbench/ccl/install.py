"""ccl.yaml, and queues between PEs for kernels that send and receive.

    >>> cfg = load_ccl_config()
    >>> merged = resolve_algorithm_config(cfg, "ring_allreduce_tcm")
    >>> merged["topology"], merged["n_slots"]
    ('ring_1d', 4)
"""

from __future__ import annotations

import copy
import importlib
import json
import os
import tempfile
import weakref
from functools import lru_cache
from typing import Any, Callable, Optional, Sequence

from kernbench import _core
from kernbench.ccl import sfr_config, topologies

__all__ = [
    "install_ipcq",
    "linear_rank_to_pe",
    "load_ccl_config",
    "resolve_algorithm_config",
]

DEFAULT_FILE = "ccl.yaml"  # of the working directory

_PACKAGE = "kernbench.ccl.algorithms."
_FIRST_NAMES = {"allreduce_intercube_multidevice": "intercube"}

Pe = tuple[int, int, int]


# ---- ccl.yaml


def _parse(text: Any, path: str) -> dict[str, Any]:
    config = _core.parse_yaml(text)
    if config is None:
        config = {}
    if not isinstance(config, dict):
        raise ValueError(f"{path}: expected a mapping with defaults and algorithms")
    return {
        "defaults": dict(config.get("defaults") or {}),
        "algorithms": dict(config.get("algorithms") or {}),
    }


@lru_cache(maxsize=1)
def _builtin() -> dict[str, Any]:
    return _parse(_core.builtin_ccl(), "built-in ccl.yaml")


def load_ccl_config(path: Optional[Any] = None) -> dict[str, Any]:
    """{"defaults": .., "algorithms": ..} of a file; None: ./ccl.yaml as it is now, or if there is
    none what is built in. What the file's defaults do not say is as built in."""
    if path is None:
        if not os.path.exists(DEFAULT_FILE):
            return copy.deepcopy(_builtin())
        path = DEFAULT_FILE
    with open(path, "rb") as file:
        config = _parse(file.read(), os.fspath(path))
    config["defaults"] = {**_builtin()["defaults"], **config["defaults"]}
    return config


def resolve_algorithm_config(cfg: dict[str, Any], name: Optional[str] = None) -> dict[str, Any]:
    """The defaults overlaid by an entry, and its name as "algorithm". None: defaults.algorithm.

    Built-in entries are there too, under names that the file does not use.
    """
    defaults = cfg.get("defaults") or {}
    wanted = defaults.get("algorithm") if name is None else name
    entries = {**_builtin()["algorithms"], **(cfg.get("algorithms") or {})}
    if wanted not in entries:
        raise ValueError(f"unknown algorithm {wanted!r} (known: {', '.join(entries)})")
    return {**defaults, **(entries[wanted] or {}), "algorithm": wanted}


def shipped_name(module: str) -> Optional[str]:
    """The engine's name of a shipped algorithm: "ring" of kernbench.ccl.algorithms.ring_allreduce.
    None of another module."""
    if module in {entry["module"] for entry in _builtin()["algorithms"].values()}:
        return module
    if not module.startswith(_PACKAGE):
        return None
    name = module[len(_PACKAGE) :]
    if name in _FIRST_NAMES:
        return _FIRST_NAMES[name]
    return name[: -len("_allreduce")] if name.endswith("_allreduce") else name


def import_algorithm(module: str) -> Any:
    """The Python module of an entry; None if it is one of the engine's without one."""
    name = shipped_name(module)
    if name is None:
        return importlib.import_module(module)
    for candidate in (f"{_PACKAGE}{name}_allreduce", f"{_PACKAGE}{name}"):
        try:
            return importlib.import_module(candidate)
        except ModuleNotFoundError as exc:
            if exc.name != candidate:
                raise
    return None


def _check_hook(entry: dict[str, Any], key: str, name: str) -> None:
    """A mapper or validator that is given as "pkg.mod.fn" has to be there."""
    path = entry.get(key)
    if not isinstance(path, str) or "." not in path:
        return
    module, _, function = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), function, None)
    except ImportError:
        found = None
    if not callable(found):
        raise ValueError(f"unknown {key} {path!r} of algorithm {name!r}")


def modules_of_users(cfg: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """The Python modules that entries of a file name and that do not ship, by that name.

    A module with neighbors() has connections of its own, and so has one for the leaders of cubes:
    such an entry is changed, to a module of its own without a topology.
    """
    modules: dict[str, Any] = {}
    for name, entry in cfg["algorithms"].items():
        entry = entry or {}
        for key in ("mapper", "validator"):
            _check_hook(entry, key, name)
        path = entry.get("module")
        if not isinstance(path, str):
            continue
        shipped = shipped_name(path)
        if shipped is not None:
            cfg["algorithms"][name] = _for_engine(entry, path, shipped)
            continue
        module = importlib.import_module(path)
        topology = entry.get("topology", "none")
        own = {"module": f"{path} of {name}", "topology": "none"}
        if hasattr(module, "neighbors"):
            neighbors = _neighbors_of(topology, module)
        elif topology == "none" and _is_for_leaders(entry, module):
            neighbors = sfr_config.intercube_neighbors(spec)
            own.update(_FOR_LEADERS)
        else:
            modules[path] = module
            continue
        cfg["algorithms"][name] = {**entry, **own}
        modules[own["module"]] = _Connected(module, neighbors)
    return modules


# Algorithms whose connections are their own: files of the original name any topology for them.
_OWN_TOPOLOGY = {"intercube": "none", "hierarchical": "hierarchical_3level"}


def _for_engine(entry: dict[str, Any], path: str, shipped: str) -> dict[str, Any]:
    """The entry of a shipped algorithm by its dotted name as the engine has it: unchanged, but for
    a name and a topology that only the original knows."""
    changed = dict(entry)
    if path.rpartition(".")[2] in _FIRST_NAMES:
        changed["module"] = shipped
    if "." in path and shipped in _OWN_TOPOLOGY:
        changed["topology"] = _OWN_TOPOLOGY[shipped]
    return changed


# What an algorithm over PE 0 of every cube needs: it combines the shards of the cubes too.
_FOR_LEADERS = {"mapper": "cube_leaders", "validator": "shard_per_cube", "reduce_shards": True}


def _is_for_leaders(entry: dict[str, Any], module: Any) -> bool:
    mapper = entry.get("mapper")
    if mapper is None:
        return hasattr(module, "TOPO_NAME_TO_KIND")
    return mapper.endswith("cube_leaders")


def _neighbors_of(topology: str, module: Optional[Any]) -> topologies.Topology:
    """The neighbours of a topology, changed by the module: all of them where the engine's name
    of the topology means that the algorithm connects its ranks."""
    if topology in _OWN_TOPOLOGY.values() and hasattr(module, "neighbors"):
        topology = "none"
    return topologies.resolve_topology(topology, module)


class _Connected:
    """An algorithm's module with connections of its own: neighbors(rank, count) -> {dir: rank}."""

    def __init__(self, module: Any, neighbors: Callable[[int, int], dict[str, int]]) -> None:
        self._module, self.neighbors = module, neighbors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def file_for_engine(engine: Any, path: Optional[str], cfg: dict[str, Any]) -> Optional[str]:
    """The file that the engine reads: that of the user, or one with the entries as they were
    changed, which is there as long as the engine."""
    if path is None or load_ccl_config(path) == cfg:
        return path
    handle, changed = tempfile.mkstemp(prefix="kernbench-ccl-", suffix=".yaml")
    weakref.finalize(engine, os.unlink, changed)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(cfg, file)  # which is YAML too
    return changed


# ---- Ranks and PEs


def _counts(spec: dict[str, Any]) -> tuple[int, int, int]:
    """SIPs, cubes of a SIP, PEs of a cube."""
    mesh, layout = spec["sip"]["cube_mesh"], spec["cube"]["pe_layout"]
    per_corner, corners = layout.get("pe_per_corner"), layout.get("corners")
    if per_corner is None or corners is None:
        raise ValueError("cube.pe_layout has no pe_per_corner and corners: give rank_to_pe")
    return spec["system"]["sips"]["count"], mesh["w"] * mesh["h"], per_corner * len(corners)


def linear_rank_to_pe(rank: int, spec: dict[str, Any]) -> Pe:
    """The PE of a rank if ranks are PEs, in the order of (sip, cube, pe)."""
    sips, cubes, pes = _counts(spec)
    if not 0 <= rank < sips * cubes * pes:
        raise ValueError(f"rank {rank}: the machine has {sips * cubes * pes} PEs")
    return rank // (cubes * pes), rank // pes % cubes, rank % pes


# ---- Queues


def _form(merged: dict[str, Any]) -> dict[str, Any]:
    """What an entry says of the queues themselves."""
    return {
        "buffer_kind": merged.get("buffer_kind"),
        "n_slots": _positive(merged, "n_slots"),
        "slot_bytes": _positive(merged, "slot_size"),
    }


def _positive(merged: dict[str, Any], key: str) -> int:
    """A number of an entry; 0 if it has none."""
    value = merged.get(key)
    if value is None:
        return 0
    if int(value) < 1:
        raise ValueError(f"{key} is {value}: expected at least 1")
    return int(value)


def install_table(
    engine: Any, merged: dict[str, Any], ranks: Sequence[Pe], table: dict[int, dict[str, int]]
) -> dict[str, Any]:
    """Installs the queues of a table of neighbours, and returns the plan."""
    edges = [
        (ranks[rank], direction, ranks[peer])
        for rank, neighbors in table.items()
        for direction, peer in neighbors.items()
    ]
    if edges:
        engine.add_queues(edges=edges, **_form(merged))
    return {
        "world_size": len(ranks),
        "buffer_kind": merged.get("buffer_kind", "tcm"),
        "rank_to_pe": list(ranks),
        "neighbor_table": table,
    }


def install_ipcq(
    engine: Any,
    spec: dict[str, Any],
    merged: dict[str, Any],
    *,
    algo_module: Optional[Any] = None,
    rank_to_pe: Optional[Sequence[Pe]] = None,
) -> dict[str, Any]:
    """Installs the queues of an entry, by commands through the fabric, and waits.

    Rank r is the PE ``rank_to_pe[r]``, else ``linear_rank_to_pe(r, spec)``; there are
    ``merged["world_size"]`` of them, else as many as PEs. Kernels of later launches on these PEs
    use the queues. Returns {"world_size", "buffer_kind", "rank_to_pe", "neighbor_table"}.
    """
    if rank_to_pe is None:
        sips, cubes, pes = _counts(spec)
        world = merged.get("world_size") or sips * cubes * pes
        ranks = [linear_rank_to_pe(rank, spec) for rank in range(world)]
    else:
        ranks = [tuple(int(n) for n in pe) for pe in rank_to_pe]
        world = merged.get("world_size") or len(ranks)
        if world > len(ranks):
            raise ValueError(f"world_size is {world}, but rank_to_pe has {len(ranks)} PEs")
        ranks = ranks[:world]
    if algo_module is None and isinstance(merged.get("module"), str):
        algo_module = import_algorithm(merged["module"])
    neighbors = _neighbors_of(merged.get("topology", "none"), algo_module)
    table = {rank: neighbors(rank, len(ranks)) for rank in range(len(ranks))}
    return install_table(engine, merged, ranks, table)


def install_entry(engine: Any, spec: dict[str, Any], merged: dict[str, Any]) -> dict[str, Any]:
    """The queues of an entry, whatever its mapper: those of cube leaders are along the meshes of
    cubes and SIPs."""
    module = merged.get("module")
    leaders = merged.get("mapper", "").endswith("cube_leaders") or (
        isinstance(module, str) and shipped_name(module) == "intercube"
    )
    if leaders:
        return sfr_config.configure_sfr_intercube_multisip(engine, spec, merged)
    return install_ipcq(engine, spec, merged)
