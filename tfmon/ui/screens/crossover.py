"""The dialog of a crossover: it asks for knob and range, and says how long that takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from tfmon import units
from tfmon.analysis.crossover import differ_only_in, expected_pairs, range_around, values_of
from tfmon.analysis.prediction import round_s
from tfmon.model.knobs import Knob, KnobError, short_name, show
from tfmon.model.lane_state import LaneState
from tfmon.model.session import Snapshot
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.rows import BLANK, Row, wrap
from tfmon.ui.render.style import DIM, STRONG, TEXT, WARN, lane_style, strong
from tfmon.ui.render.tabs import Hint
from tfmon.ui.screens.experiments import CrossoverPage
from tfmon.ui.screens.page import Dialog, bound, closer

PAIR_S = 1.2
"""A pair of slices takes about so long, before any has been measured."""
_ALIKE = (
    "the lanes differ only in this knob: with the same value they would be alike. Let them differ in something "
    "else first, or choose another knob"
)
_FIELDS = ("knob", "from", "to")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A knob that is a number."""

    knob: Knob
    why_not: str = ""
    """Why there is no crossover over it; empty where there can be one."""


def candidates(snapshot: Snapshot) -> list[Candidate]:
    """Return the knobs of the race that are numbers, those first over which there can be a crossover."""
    lanes = [lane for lane in snapshot.lanes if not lane.over][:2]
    found = []
    for knob in snapshot.race.knobs:
        try:
            values_of(knob, None, None)
        except KnobError:
            continue
        if knob.words:
            continue
        alike = len(lanes) == 2 and _alike(knob, *lanes)
        found.append(Candidate(knob, _ALIKE if alike else ""))
    return sorted(found, key=lambda one: bool(one.why_not))


def _alike(knob: Knob, first: LaneState, second: LaneState) -> bool:
    specs = [replace(lane.spec, settings=lane.in_effect) for lane in (first, second)]
    return differ_only_in(knob.name, *specs)


class CrossoverDialog(Dialog):
    """Asks over which values of which knob two lanes race, and shows how that goes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        closer("crossover"),
        bound("choose", "start", "enter"),
        bound("move.down", "move(1)", "down,tab"),
        bound("move.up", "move(-1)", "up,shift+tab"),
        bound("move.right"),
        bound("move.left"),
        Binding("backspace", "erase", "erase a digit"),
    ]
    title_text = "Crossover: at which value of a knob does one lane overtake the other?"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self._field = 0
        self._place = 0
        self._bounds = ["", ""]
        self._fresh = True
        """Whether the next digit begins a new number."""
        self._known = candidates(monitor.snapshot)
        self._propose()

    @property
    def _chosen(self) -> Candidate | None:
        return self._known[self._place % len(self._known)] if self._known else None

    def _examples(self) -> int | None:
        return min((one.data_examples for one in self.monitor.snapshot.lanes if one.data_examples), default=None)

    def _propose(self) -> None:
        """Fill in a range around the values that the lanes have."""
        if self._chosen is not None:
            knob = self._chosen.knob
            now = [lane.in_effect.get(knob.name, knob.default) for lane in self.monitor.snapshot.lanes[:2]]
            self._bounds = [str(end) for end in range_around(knob, now, self._examples())]

    def _values(self) -> tuple[list[str], str]:
        """Return the values that would be measured, or why there are none."""
        assert self._chosen is not None
        low, high = (float(text) if text else None for text in self._bounds)
        examples = self._examples() if self._chosen.knob.name == "batch_size" else None
        if examples is not None:
            high = min(examples, high if high is not None else examples)
        try:
            return [show(value) for value in values_of(self._chosen.knob, low, high)], ""
        except KnobError as error:
            return [], f"{error}; it takes {self._chosen.knob.allowed()}"

    def body(self, snapshot: Snapshot, width: int, height: int) -> list[Row]:
        """Return who races, the three fields, and what they come to."""
        self._known = candidates(snapshot)
        lanes = [lane for lane in snapshot.lanes if not lane.over]
        rows: list[Row] = [
            BLANK,
            *(_lane_row(lane, snapshot.lanes.index(lane)) for lane in lanes[:2]),
            BLANK,
        ]
        if len(lanes) < 2:
            return [*rows, *_said("a crossover compares two lanes that train; this race has fewer", width)]
        if self._chosen is None:
            return [*rows, *_said("this race has no knob that is a number, so there is nothing to cross", width)]
        knob = self._chosen.knob
        others = f"   {self._place % len(self._known) + 1} of {len(self._known)}" if len(self._known) > 1 else ""
        rows.append(self._row(0, short_name(knob.name), others))
        if self._chosen.why_not:
            return [*rows, BLANK, *_said(self._chosen.why_not, width)]
        rows += [self._row(1, self._bounds[0], ""), self._row(2, self._bounds[1], ""), BLANK]
        values, wrong = self._values()
        if wrong:
            return [*rows, *_said(wrong, width)]
        rows += _said(f"{len(values)} values: {', '.join(values)}", width, TEXT)
        pace_s = round_s([lane.slices for lane in snapshot.lanes]) or PAIR_S
        least, most = (pairs * pace_s for pairs in expected_pairs(len(values)))
        restarts = "; each value also restarts both lanes" if knob.kind == "restart" else ""
        time = f"about {units.clock(least)}, up to {units.clock(most)} where the lead changes{restarts}"
        rows += _said(time, width, STRONG)
        rows += [BLANK, *_said(f"Both lanes race at each value, and get their own back. {knob.help}", width, DIM)]
        return rows

    def _row(self, place: int, text: str, note: str) -> Row:
        here = place == self._field
        shown = f"← {text}▏→" if here and place else f"← {text} →" if here else f"  {text}"
        return (
            (" ▸ " if here else "   ", STRONG),
            (f"{_FIELDS[place]:<8}", STRONG if here else DIM),
            (shown, STRONG if here else TEXT),
            (note, DIM),
        )

    def own_hints(self) -> list[Hint]:
        """Return the actions of the keys now."""
        if self._chosen is None or sum(not lane.over for lane in self.monitor.snapshot.lanes) < 2:
            return []
        several = len(self._known) > 1
        if self._chosen.why_not or (self._field == 0 and not several):
            change = [Hint(("move.left", "move.right"), "another knob", "step(1)")] if several else []
        else:
            word = "another knob" if self._field == 0 else "half, double; or type"
            change = [Hint(("move.left", "move.right"), word, "step(1)")]
        if self._chosen.why_not:
            return change
        first = [Hint(("choose",), "starts", "start")] if self._values()[0] else []
        return [*first, Hint(("move.up", "move.down"), "field"), *change]

    def action_move(self, direction: int) -> None:
        """Go to another field."""
        self._field = (self._field + direction) % len(_FIELDS)
        self._fresh = True
        self.redraw()

    def action_step(self, direction: int) -> None:
        """Choose another knob, or halve or double the bound."""
        if self._chosen is None:
            return
        if self._field == 0:
            self._place += direction
            self._propose()
        else:
            now = int(self._bounds[self._field - 1] or 1)
            power = max(0, now.bit_length() - 1)
            exact = now == 2**power
            power += direction if direction > 0 or exact else 0
            self._bounds[self._field - 1] = str(2 ** max(0, min(40, power)))
        self.redraw()

    def on_key(self, event: events.Key) -> None:
        """Take the digits of a bound."""
        if self._field and event.character is not None and event.character.isdecimal():
            event.stop()
            before = "" if self._fresh else self._bounds[self._field - 1]
            self._fresh = False
            self._bounds[self._field - 1] = (before + event.character)[:7].lstrip("0")
            self.redraw()

    def action_erase(self) -> None:
        """Erase the last digit of a bound."""
        if self._field:
            self._fresh = False
            self._bounds[self._field - 1] = self._bounds[self._field - 1][:-1]
            self.redraw()

    def clicked(self, row: int) -> None:
        """Go to the field that was clicked."""
        first = 2 + min(2, sum(not lane.over for lane in self.monitor.snapshot.lanes))
        if first <= row < first + len(_FIELDS):
            self.action_move(row - first - self._field)

    def action_start(self) -> None:
        """Start it, and close; where it cannot start, say why and stay."""
        chosen = self._chosen
        if chosen is None or chosen.why_not or not self._values()[0] or not self.may_act():
            return
        low, high = (float(text) if text else None for text in self._bounds)
        if self.start_experiment(lambda: self.monitor.experiments.start_crossover(chosen.knob.name, low, high)):
            self.dismiss(None)
            if not isinstance(self.app.screen, CrossoverPage):
                self.monitor.open("crossover")


def _lane_row(lane: LaneState, place: int) -> Row:
    return ((f"   {lane.spec.id}  ", strong(lane_style(place))), (lane.title, TEXT))


def _said(text: str, width: int, style: str = WARN) -> list[Row]:
    return [((f"   {line}", style),) for line in wrap(text, width - 6, 4)]
