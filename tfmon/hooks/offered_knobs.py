"""The knobs that a script offers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from tfmon.model.knobs import PYTHON, Knob, KnobError, KnobValue, find, show
from tfmon.system.lane_pipes import SETTINGS


class OfferedKnobs:
    """The offered knobs. Thread: the training thread."""

    def __init__(self) -> None:
        self.settings: dict[str, KnobValue] = {}
        self._requested: dict[str, KnobValue] = json.loads(os.environ.get(SETTINGS, "{}"))
        self._offered: dict[str, tuple[Knob, Callable[[Any], object]]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._offered

    @property
    def not_offered(self) -> str:
        """Name of a requested knob that the script does not offer, or empty."""
        return next((name for name in self._requested if name not in (*self._offered, PYTHON)), "")

    def requested(self, knob: Knob) -> KnobValue | None:
        """Return a knob's value on the command line. Raises KnobError."""
        requested = self._requested.get(knob.name)
        if requested is None:
            return None
        return knob.parse(str(requested)) if isinstance(requested, str) else knob.check(requested)

    def offer(self, knob: Knob, apply: Callable[[Any], object]) -> KnobValue:
        """Add a knob, and return its value. Raises KnobError for an impossible value.

        The training thread calls `apply` with each new value between steps. `apply` raises KnobError to refuse.
        """
        known = knob.name in self._offered
        self._offered[knob.name] = knob, apply
        if known:
            return self.settings[knob.name]
        self.settings[knob.name] = value = knob.default
        requested = self.requested(knob)
        if requested is not None:
            value = requested
            if apply(value):
                raise KnobError(f"{knob.name}={show(value)} is not possible from the script's first epoch on")
            self.settings[knob.name] = value
        return value

    def made_of_defaults(self, values: Mapping[str, KnobValue]) -> None:
        """Add values that cannot be changed."""
        self.settings.update({name: value for name, value in values.items() if name not in self._offered})

    def set(self, name: str, value: KnobValue) -> bool:
        """Change a value, and return whether it takes effect later. Raises KnobError."""
        value = find([knob for knob, _ in self._offered.values()], name).check(value)
        later = bool(self._offered[name][1](value))
        if not later:
            self.settings[name] = value
        return later
