"""What was measured of one lane: steady windows summed up, slices, and what was left out and why. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tfmon.model.knobs import KnobValue, Settings
from tfmon.model.lane_events import Window
from tfmon.model.measures import Tally, TurnSpeed

MOST_TURNS = 2_000
"""Slices kept under the settings in force."""
MOST_EARLIER = 96
"""Settings whose slices are kept after a knob was changed."""
LATEST = 24
"""Windows that a late reading may still take out; at five a second these are five seconds."""
RARE = 0.5
"""A disturbance that hits a larger share of the windows is what this machine is like: nothing is left out."""
SETTLED_WINDOWS = 20
"""From so many windows on that share is known."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """Slices that ran under settings which a knob has changed since."""

    settings: dict[str, KnobValue]
    turns: tuple[TurnSpeed, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of one lane.

    Steady state begins anew when a knob or the mode changes; what ran before stays at hand under its settings.
    """

    steady: Tally = field(default_factory=Tally)
    """Since the lane began to race, or a knob or the mode last changed."""
    turns: tuple[TurnSpeed, ...] = ()
    """Slices since then, oldest first; only what was steady in them."""
    earlier: tuple[Earlier, ...] = ()
    """Slices before that, by the settings they ran under; the latest last."""
    excluded: dict[str, int] = field(default_factory=dict)
    """Windows left out of steady state, by reason."""
    windows: int = 0
    """All windows, those left out included."""
    constant: tuple[str, ...] = ()
    """Disturbances that are there most of the time, so that nothing is left out for them."""
    latest: tuple[Window, ...] = ()
    """The last steady windows, which a reading that comes late may yet take out."""

    def plus(self, window: Window) -> Measured:
        """Return what is known with one more window."""
        counted = replace(self, windows=self.windows + 1)
        if window.marks:
            return replace(counted, excluded=_counted(self.excluded, window.marks))
        return replace(
            counted,
            steady=self.steady.plus(window),
            turns=_with_turn(self.turns, window),
            latest=(*self.latest[-(LATEST - 1) :], window),
        )

    def disturbed(self, since_ns: int, until_ns: int, reason: str) -> Measured:
        """Leave out the windows that a disturbance fell into, which became known after they had ended.

        One that is there most of the time is no disturbance but the machine: then all windows count, and
        `constant` names it.
        """
        hit = tuple(one for one in self.latest if one.at_ns > since_ns and one.at_ns - one.span_ns < until_ns)
        if not hit:
            return self
        share = (self.excluded.get(reason, 0) + len(hit)) / self.windows
        if reason in self.constant or (self.windows >= SETTLED_WINDOWS and share > RARE):
            return replace(self, constant=tuple(sorted({*self.constant, reason})))
        steady, turns = self.steady, self.turns
        for window in hit:
            steady, turns = steady.minus(window), _without_turn(turns, window)
        return replace(
            self,
            steady=steady,
            turns=turns,
            latest=tuple(one for one in self.latest if one not in hit),
            excluded=_counted(self.excluded, [reason] * len(hit)),
        )

    def afresh(self, settings: Settings) -> Measured:
        """Return what is known with steady state beginning anew; the settings are those until now."""
        earlier = self.earlier
        if self.turns:
            before = next((one for one in earlier if one.settings == settings), None)
            turns = (*(before.turns if before else ()), *self.turns)[-MOST_TURNS:]
            others = [one for one in earlier if one is not before]
            earlier = (*others[-(MOST_EARLIER - 1) :], Earlier(dict(settings), turns))
        return replace(self, steady=Tally(), turns=(), latest=(), earlier=earlier)

    def turns_under(self, settings: Settings, in_force: Settings) -> tuple[TurnSpeed, ...]:
        """Return every slice that ran under these settings, given the ones in force; oldest first."""
        before = next((one.turns for one in self.earlier if one.settings == settings), ())
        return (*before, *self.turns) if settings == in_force else before


def _counted(excluded: dict[str, int], reasons: list[str] | tuple[str, ...]) -> dict[str, int]:
    total = dict(excluded)
    for reason in reasons:
        total[reason] = total.get(reason, 0) + 1
    return total


def _with_turn(turns: tuple[TurnSpeed, ...], window: Window) -> tuple[TurnSpeed, ...]:
    if window.turn is None:
        return turns
    if turns and turns[-1].turn == window.turn:
        before = turns[-1]
        examples, span_ns = before.examples + window.examples, before.span_ns + window.span_ns
        return (*turns[:-1], TurnSpeed(window.turn, window.at_ns, examples, span_ns))
    speed = TurnSpeed(window.turn, window.at_ns, window.examples, window.span_ns)
    return (*turns[-(MOST_TURNS - 1) :], speed)


def _without_turn(turns: tuple[TurnSpeed, ...], window: Window) -> tuple[TurnSpeed, ...]:
    """Take a window out of its slice, and the slice with it if nothing else was steady in it."""
    left = []
    for turn in turns:
        if turn.turn != window.turn:
            left.append(turn)
        elif turn.span_ns > window.span_ns:
            examples, span_ns = turn.examples - window.examples, turn.span_ns - window.span_ns
            left.append(TurnSpeed(turn.turn, turn.at_ns, examples, span_ns))
    return tuple(left)
