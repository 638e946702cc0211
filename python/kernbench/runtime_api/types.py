"""Small types of the host's side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

__all__ = ["Completion", "DeviceSelector", "resolve_device"]


@dataclass(frozen=True)
class DeviceSelector:
    """Which SIPs a context may use: "all", or one, "sip:1"."""

    selector: str = "all"

    def __post_init__(self) -> None:
        if self.selector != "all" and self.sip is None:
            raise ValueError(f"invalid device {self.selector!r}: expected 'all' or 'sip:N'")

    @property
    def sip(self) -> Optional[int]:
        """The number of the only SIP; None for all."""
        kind, _, number = self.selector.partition(":")
        return int(number) if kind == "sip" and number.isdecimal() else None

    def __str__(self) -> str:
        return self.selector


def resolve_device(device: object = "all") -> DeviceSelector:
    """A selector from its text; None means "all"."""
    if isinstance(device, DeviceSelector):
        return device
    return DeviceSelector("all" if device is None else str(device))


@dataclass(frozen=True)
class Completion:
    """What became of a request."""

    ok: bool = True
    handle: object = None
