"""The page that asks over which values of which knob two lanes race, and says how long that takes."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual.binding import BindingType

from tfmon import units
from tfmon.analysis.crossover import differ_only_in, expected_pairs, range_around, values_of
from tfmon.analysis.prediction import round_s
from tfmon.analysis.series import Level, SeriesColumn, SeriesRow, SeriesTable
from tfmon.model.knobs import Knob, KnobError, short_name, show
from tfmon.model.lane_state import LaneState
from tfmon.model.session import Snapshot
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.layout import Hint
from tfmon.ui.render.rows import TEXT, Row
from tfmon.ui.render.style import lane_style, strong
from tfmon.ui.screens.experiments import CrossoverPage, SeriesPage
from tfmon.ui.screens.page import bound, closer

PAIR_S = 1.2
"""A pair of slices takes about so long, before any has been measured."""
FAINT: Level = "faint"
_ALIKE = (
    "the lanes differ only in this knob: with the same value they would be alike. Let them differ in something "
    "else first, or choose another knob"
)


def candidates(snapshot: Snapshot) -> list[tuple[Knob, str]]:
    """Return the race's numeric knobs, each with why no crossover can vary it or ""; these come first."""
    lanes = [replace(lane.spec, settings=lane.in_effect) for lane in snapshot.lanes if not lane.over][:2]
    numeric = []
    for knob in snapshot.race.knobs:
        try:
            values_of(knob, None, None)
        except KnobError:
            continue
        if not knob.words:
            alike = len(lanes) == 2 and differ_only_in(knob.name, *lanes)
            numeric.append((knob, _ALIKE if alike else ""))
    return sorted(numeric, key=lambda one: bool(one[1]))


class NewCrossoverPage(SeriesPage):
    """Lists the knobs that a crossover may vary, with a range for each, and starts one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        closer("crossover"),
        bound("move.right"),
        bound("move.left"),
        bound("move.next", "other_end", "tab"),
    ]
    title_text = "Crossover: at which value of a knob does one lane overtake the other?"
    noun = "knob"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self._end = 1
        """The end of the range that the keys change: 0 the lowest value, 1 the highest."""
        self._ranges: dict[str, list[int]] = {}

    def _lanes(self) -> list[LaneState]:
        return [lane for lane in self.monitor.snapshot.lanes if not lane.over][:2]

    def _examples(self, knob: Knob) -> int | None:
        sizes = (one.data_examples for one in self.monitor.snapshot.lanes if one.data_examples)
        return min(sizes, default=None) if knob.name == "batch_size" else None

    def make(self, before: SeriesTable) -> SeriesTable:
        """Return a row for each knob: its range, the values in it, and how long they take."""
        heads = (SeriesColumn("knob", most=20), *(SeriesColumn(name, 7) for name in ("from", "to")))
        rows = candidates(self.monitor.snapshot)
        self.nothing = "this race has no knob that is a number, so there is nothing to cross"
        if len(self._lanes()) < 2:
            rows, self.nothing = [], "a crossover compares two lanes that train; this race has fewer"
        return SeriesTable((*heads, SeriesColumn("takes")), tuple(self._row(*one) for one in rows))

    def _row(self, knob: Knob, why_not: str) -> SeriesRow:
        name = short_name(knob.name)
        now = [lane.in_effect.get(knob.name, knob.default) for lane in self._lanes()]
        ends = self._ranges.setdefault(knob.name, [*range_around(knob, now, self._examples(knob))])
        takes, level = (why_not, FAINT) if why_not else self._takes(knob)
        marks = ("←", " ") if self._end == 0 else (" ", "←")
        low, high = ((f"{end}{mark}", end) for end, mark in zip(ends, marks, strict=True))
        return SeriesRow(knob.name, ((name, name), low, high, (takes, None)), level, level, whole=knob.help)

    def _takes(self, knob: Knob) -> tuple[str, Level]:
        """Return how long a crossover over the range of a knob takes, and its values; or why there is none."""
        low, high = self._ranges[knob.name]
        examples = self._examples(knob)
        try:
            values = values_of(knob, low, high if examples is None else min(examples, high))
        except KnobError as error:
            return f"{error}; it takes {knob.allowed()}", "refused"
        pace_s = round_s([lane.slices for lane in self.monitor.snapshot.lanes]) or PAIR_S
        least, most = (units.clock(pairs * pace_s) for pairs in expected_pairs(len(values)))
        restarts = ", each of which restarts both lanes" if knob.kind == "restart" else ""
        listed = f"{len(values)} values{restarts}: {', '.join(map(show, values))}"
        return f"about {least}, up to {most} where the lead changes; {listed}", ""

    def lead(self, width: int) -> list[Row]:
        lanes = self._lanes()
        styles = [strong(lane_style(self.monitor.snapshot.lanes.index(lane))) for lane in lanes]
        return [
            ((f"   {one.spec.id}  ", style), (one.title, TEXT)) for one, style in zip(lanes, styles, strict=True)
        ]

    def starts(self) -> str:
        return "starts" if self.entry is not None and self.entry.cells[-1][1] == TEXT else ""

    def own_hints(self) -> list[Hint]:
        ends = [Hint(("move.left", "move.right"), "half, double"), Hint(("move.next",), "other end", "other_end")]
        hints = super().own_hints()
        return hints if self.entry is None else [*hints[:1], *ends, *hints[1:]]

    def action_other_end(self) -> None:
        """Let the keys change the other end of the range."""
        self._end = 1 - self._end
        self._draw_again()

    def action_step(self, direction: int) -> None:
        if self.entry is not None:
            ends = self._ranges[str(self.entry.id)]
            ends[self._end] = max(1, min(2**40, ends[self._end] * 2 if direction > 0 else ends[self._end] // 2))
            self._draw_again()

    def _draw_again(self) -> None:
        self._made_from = None
        self.redraw()

    def begin(self) -> None:
        """Start it, and close; where it cannot start, say why and stay."""
        if not self.starts() or self.entry is None or not self.may_act():
            return
        knob = str(self.entry.id)
        low, high = map(float, self._ranges[knob])
        if self.start_experiment(lambda: self.monitor.experiments.start_crossover(knob, low, high)):
            self.dismiss(None)
            if not isinstance(self.app.screen, CrossoverPage):
                self.monitor.open("crossover")
