"""The current device of a caller: a SIP. Each worker has its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from kernbench.runtime_api.context import RuntimeContext

__all__ = ["Accelerator", "Ahbm"]


class Ahbm:
    """``ctx.ahbm``."""

    def __init__(self, context: "RuntimeContext") -> None:
        self._context = context

    def set_device(self, device: int) -> None:
        """Makes a SIP the current device, by its number in the machine."""
        number = int(device)
        if number < 0:
            raise ValueError(f"device {number}: devices are numbered from 0")
        self._context.engine.core.set_device(number)

    def current_device(self) -> Optional[int]:
        """The current device; None until it is set: tensors then go to SIP 0."""
        core = self._context.engine.core
        return core.current_device() if core.device_is_set() else None

    def device_count(self) -> int:
        """How many there are."""
        return self._context.engine.core.device_count()


class Accelerator:
    """``ctx.accelerator``: the same state under names that do not say what kind of device it is."""

    def __init__(self, ahbm: Ahbm) -> None:
        self._ahbm = ahbm

    def set_device_index(self, device: int) -> None:
        """As ``ahbm.set_device``."""
        self._ahbm.set_device(device)

    def current_device_index(self) -> Optional[int]:
        """As ``ahbm.current_device``."""
        return self._ahbm.current_device()

    def device_count(self) -> int:
        """How many there are."""
        return self._ahbm.device_count()
