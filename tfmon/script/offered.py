"""The knobs that a script offers, and their values in effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tfmon.model.knobs import Knob, KnobError, KnobValue, find, show


class OfferedKnobs:
    """The knobs that a script offers, and their values in effect.

    Thread: the one that trains.
    """

    def __init__(self, requested: Mapping[str, KnobValue]) -> None:
        """Offer none yet; `requested` has the values of the command line."""
        self.settings: dict[str, KnobValue] = {}
        """The values in effect."""
        self._requested = requested
        self._offered: dict[str, tuple[Knob, Callable[[Any], object]]] = {}

    def __contains__(self, name: str) -> bool:
        """Return whether a knob was offered."""
        return name in self._offered

    @property
    def not_offered(self) -> str:
        """Name of a knob that the command line sets and the script does not offer; empty for none."""
        return next((name for name in self._requested if name not in self._offered), "")

    def requested(self, knob: Knob) -> KnobValue | None:
        """Return what the command line sets a knob to; None if it does not.

        Raises: KnobError for an impossible value.
        """
        requested = self._requested.get(knob.name)
        if requested is None:
            return None
        return knob.parse(str(requested)) if isinstance(requested, str) else knob.check(requested)

    def offer(self, knob: Knob, apply: Callable[[Any], object]) -> KnobValue:
        """Add a knob, and return its value: the one in effect, or that of the command line, or its default.

        `apply` is called with each new value between two steps, in the thread that trains; KnobError refuses it.

        Raises: KnobError for an impossible value of the command line.
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

    def set(self, name: str, value: KnobValue) -> bool:
        """Change a value, and return whether it takes effect later only.

        Raises: KnobError for an unknown knob or an impossible value.
        """
        value = find([knob for knob, _ in self._offered.values()], name).check(value)
        later = bool(self._offered[name][1](value))
        if not later:
            self.settings[name] = value
        return later
