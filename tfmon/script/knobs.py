"""The knobs that a script has: those it offers, what was asked of them, and what is in force."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from tfmon.model.knobs import Knob, KnobError, KnobValue, find
from tfmon.model.lane_events import KnobApplied, KnobOffered, KnobRefused
from tfmon.model.wire import SetKnob
from tfmon.script.teller import Teller


class OfferedKnobs:
    """Knobs by their names.

    Thread: the one that trains.
    """

    def __init__(self, asked: Mapping[str, KnobValue], teller: Teller) -> None:
        self.settings: dict[str, KnobValue] = {}
        """What is in force."""
        self._asked, self._teller = asked, teller
        self._offered: dict[str, tuple[Knob, Callable[[Any], None]]] = {}
        self._fresh: list[SetKnob] = []

    def __contains__(self, name: str) -> bool:
        """Whether a knob was offered."""
        return name in self._offered

    @property
    def unknown(self) -> str:
        """Name of a knob that the command line asks for and the script has not offered; empty for none."""
        return next((name for name in self._asked if name not in self._offered), "")

    @property
    def fresh(self) -> bool:
        """Whether a wish waits for its first step to be confirmed."""
        return bool(self._fresh)

    def offer(self, knob: Knob, take: Callable[[Any], None]) -> KnobValue:
        """Offer a knob, and return its value: the one in force, or that of the command line, or its default.

        `take` is called with each new value, in the thread that trains, between two steps; KnobError refuses it.
        Errors: KnobError for a value of the command line that the knob cannot have.
        """
        known = knob.name in self._offered
        self._offered[knob.name] = knob, take
        if known:
            return self.settings[knob.name]
        self.settings[knob.name] = value = knob.default
        asked = self._asked.get(knob.name)
        if asked is not None:
            value = knob.parse(str(asked)) if isinstance(asked, str) else knob.check(asked)
            take(value)
            self.settings[knob.name] = value
        self._teller.send(
            KnobOffered(
                at_ns=time.monotonic_ns(),
                knob=knob.name,
                value=value,
                default=knob.default,
                help=knob.help,
                choices=knob.choices,
                low=knob.low,
                high=knob.high,
            )
        )
        return value

    def ask(self, wish: SetKnob) -> bool:
        """Set a knob, or refuse to; return whether it was set."""
        try:
            value = find([knob for knob, _ in self._offered.values()], wish.knob).check(wish.value)
            self._offered[wish.knob][1](value)
        except KnobError as error:
            self._teller.send(
                KnobRefused(
                    at_ns=time.monotonic_ns(),
                    request=wish.request,
                    knob=wish.knob,
                    value=wish.value,
                    reason=str(error),
                )
            )
            return False
        self.settings[wish.knob] = value
        self._fresh.append(wish)
        return True

    def confirm(self, at_ns: int, step: int, gap_ns: int) -> None:
        """Tell of the first step under what was asked."""
        fresh, self._fresh = self._fresh, []
        for wish in fresh:
            self._teller.send(
                KnobApplied(
                    at_ns=at_ns,
                    request=wish.request,
                    knob=wish.knob,
                    value=self.settings[wish.knob],
                    step=step,
                    gap_ns=gap_ns,
                )
            )
