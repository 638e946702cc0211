"""The queue component of each PE, with what is installed there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Optional

__all__ = ["ComponentsView", "IpcqView", "PeerView"]

_IPCQ = "pe_ipcq"


@dataclass(frozen=True)
class PeerView:
    """The other end of a queue pair."""

    sip: int
    cube: int
    pe: int
    rx_base_pa: Optional[int]  # where its slots are for what this PE sends


class IpcqView:
    """``engine._components["sip0.cube5.pe0.pe_ipcq"]``."""

    def __init__(self, engine: Any, pe: tuple[int, int, int]) -> None:
        self._engine, self._pe = engine, pe

    @property
    def queue_pairs(self) -> dict[str, dict[str, Any]]:
        """The queue pairs of the set that was installed on this PE last, by direction."""
        latest = self._engine.queues_at(self._pe)
        pairs = {}
        for end in latest:
            if end["pe"] == self._pe:
                pairs[end["direction"]] = self._pair(end, latest)
        return pairs

    def _pair(self, end: dict[str, Any], ends: list[dict[str, Any]]) -> dict[str, Any]:
        peer = end["to"] if end["can_send"] else end["from_"]
        ring_of_peer = _ring_for(end, ends) if end["can_send"] else None
        return {
            "peer": PeerView(*peer, ring_of_peer),
            "my_head": end["my_head"],
            "my_tail": end["my_tail"],
            "peer_head_cache": end["peer_head_cache"],
            "peer_tail_cache": end["peer_tail_cache"],
            "my_rx_base_pa": end["ring"],
            "peer_rx_base_pa": ring_of_peer,
        }


_OPPOSITE = {"N": "S", "S": "N", "E": "W", "W": "E"}


def opposite(direction: str) -> str:
    """The direction that points back: of E it is W, of global_E global_W."""
    prefix, _, letter = direction.rpartition("_")
    if letter not in _OPPOSITE:
        return direction
    return f"{prefix}_{_OPPOSITE[letter]}" if prefix else _OPPOSITE[letter]


def _ring_for(end: dict[str, Any], ends: list[dict[str, Any]]) -> Optional[int]:
    """The ring at the peer that receives what this end sends."""
    back = [
        other
        for other in ends
        if other["pe"] == end["to"] and other["can_receive"] and other["from_"] == end["pe"]
    ]
    for other in back:
        if other["direction"] == opposite(end["direction"]):
            return other["ring"]
    return back[0]["ring"] if back else None


class ComponentsView(Mapping):
    """``engine._components``: the ``pe_ipcq`` of every PE, by its name."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __iter__(self) -> Iterator[str]:
        machine = self._engine.machine
        for sip in range(machine["sips"]):
            for cube in range(machine["cubes"]):
                for pe in range(machine["pes"]):
                    yield f"sip{sip}.cube{cube}.pe{pe}.{_IPCQ}"

    def __len__(self) -> int:
        machine = self._engine.machine
        return machine["sips"] * machine["cubes"] * machine["pes"]

    def __getitem__(self, name: str) -> IpcqView:
        pe = self._place(name)
        if pe is None:
            raise KeyError(name)
        return IpcqView(self._engine, pe)

    def _place(self, name: str) -> Optional[tuple[int, int, int]]:
        parts = name.split(".")
        prefixes = ("sip", "cube", "pe")
        if len(parts) != 4 or parts[3] != _IPCQ:
            return None
        numbers = []
        for part, prefix in zip(parts, prefixes):
            digits = part[len(prefix) :]
            if not part.startswith(prefix) or not digits.isdecimal():
                return None
            numbers.append(int(digits))
        machine = self._engine.machine
        limits = (machine["sips"], machine["cubes"], machine["pes"])
        if any(number >= limit for number, limit in zip(numbers, limits)):
            return None
        return tuple(numbers)
