"""The lists of knobs, recorded races and crossover ranges."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from textual import events
from textual.binding import BindingType

from tfmon import units
from tfmon.analysis.crossover_curve import FIRST_PAIRS, MOST_PAIRS, differ_only_in, range_around, values_of
from tfmon.analysis.prediction import round_s
from tfmon.model.knobs import Knob, KnobError, short_name, show
from tfmon.model.lane_state import LaneState
from tfmon.model.ports import RunInfo, Source
from tfmon.model.requests import Command
from tfmon.model.session import Snapshot
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, Span
from tfmon.ui.render.style import STRONG, TROUBLE, WARN, lane_style, strong
from tfmon.ui.render.table import Entry
from tfmon.ui.screens.experiments import CrossoverPage
from tfmon.ui.screens.page import bound, closer
from tfmon.ui.screens.text_pages import ListPage
from tfmon.ui.source import effect, reachable, shared_value, targets


class KnobPage(ListPage):
    """Changes the knobs."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("choose", "choose", "enter"),
        bound("move.right", keys="right,space,plus", word="next value"),
        bound("move.left", word="value before"),
    ]
    tab = "knobs"
    columns = ("knob", "in effect", "requested", "a change")
    noun = "knob"
    nothing = "this race has no knobs"

    def entries(self, snapshot: Snapshot) -> list[Entry]:
        view = self.monitor.view
        chosen = next((lane for lane in snapshot.lanes if lane.spec.name == view.focused), None)
        self.title_text = f"Knobs of {'all lanes' if chosen is None else f'{chosen.spec.id} {chosen.title}'}"
        entries, lanes = [], targets(snapshot.lanes, view.focused)
        for knob in snapshot.race.knobs:
            now, requested = shared_value(lanes, knob)
            differs = any(knob.name in (lane.differs or ()) for lane in snapshot.lanes)
            kind = "while it trains" if knob.kind == "live" else "restarts the lane"
            texts = ((short_name(knob.name), TEXT), (now, STRONG), (requested, WARN), (kind, DIM))
            change = effect(reachable(lanes, knob, 1, focused=chosen is not None), knob)
            whole = f"{knob.help} Takes {knob.allowed()}." + (f" The next value: {change}." if change else "")
            entries.append(Entry(knob.name, texts, whole=whole, mark="≠" if differs else " "))
        return entries

    def act(self, entry: Entry) -> None:
        self.action_step_knob(str(entry.id), 1)

    def action_step(self, direction: int) -> None:
        if self.entry is not None:
            self.action_step_knob(str(self.entry.id), direction)


class RunsPage(ListPage):
    """Lists recorded races, the latest first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("choose", "choose", "enter", "replay"),
        bound("run.delete", word="delete"),
    ]
    tab = "runs"
    still = True
    title_text = "Recorded races"
    noun = "run"
    columns = ("started", "scenario", "lasted", "outcome")
    nothing = "reading the recordings…"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        assert monitor.source.runs is not None
        self.port = monitor.source.runs
        self._runs: tuple[RunInfo, ...] = ()
        self._doomed = ""

    def on_screen_resume(self) -> None:
        self._read()

    def _read(self) -> None:
        self.monitor.work(self.port.list, self._take)

    def _take(self, runs: Sequence[RunInfo]) -> None:
        self._runs = tuple(reversed(runs))
        self.nothing = "no race was recorded yet"
        self.redraw()

    def entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        return [run_entry(run) for run in self._runs]

    def note(self) -> str:
        failed = sum(bool(run.failure or run.problem) for run in self._runs)
        return f" · {failed} failed" if failed else ""

    def message(self, snapshot: Snapshot) -> str:
        return f"delete {self._doomed} for good?  y: yes   n: no" if self._doomed else super().message(snapshot)

    def act(self, entry: Entry) -> None:
        monitor = self.monitor

        def show(opened: Source) -> None:
            monitor.unsay()
            view = monitor.view
            above = Monitor(monitor.app, opened, charset=view.charset, keys=view.keys, below=monitor)
            self.app.push_screen(above.screen)

        monitor.say("opening the recording…")
        monitor.work(lambda: self.port.replay(str(entry.id)), show)

    def action_delete(self) -> None:
        if self.entry is None:
            return
        if self.monitor.view.readonly:
            self.monitor.say("read only: this screen changes nothing")
            return
        self._doomed = str(self.entry.id)
        self.redraw()

    def on_key(self, event: events.Key) -> None:
        if not self._doomed:
            return  # Textual also calls the base class's handler
        event.stop()
        event.prevent_default()
        doomed, self._doomed = self._doomed, ""
        if event.key == "y":
            self.monitor.work(lambda: self.port.delete(doomed), lambda _: self._read())
        self.redraw()

    def on_screen_suspend(self) -> None:
        self._doomed = ""


def run_entry(run: RunInfo) -> Entry:
    """Return a run as an entry."""
    failed = bool(run.failure or run.problem)
    lasted = "–" if run.seconds is None else units.clock(run.seconds)
    cells = (
        (run.started[:16].replace("T", " ") or run.id[:15], TROUBLE if failed else DIM),
        (run.scenario or "–", TEXT),
        (f"{lasted:>7}", DIM),
        (run.outcome, TROUBLE if failed else TEXT if run.verdict else WARN),
    )
    ranks = (run.started, run.scenario, run.seconds, (not failed, run.outcome))
    about = " · ".join(filter(None, (run.id, ", ".join(run.lanes), run.mode, units.memory(run.bytes))))
    return Entry(run.id, cells, ranks, whole=about, mark="✗" if failed else " ")


PAIR_S = 1.2
_ALIKE = (
    "the lanes differ only in this knob: with the same value they would be alike. Let them differ in something "
    "else first"
)


class NewCrossoverPage(ListPage):
    """Starts a crossover over a knob's range."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("choose", "choose", "enter", "start"),
        closer("crossover"),
        bound("move.right", word="double"),
        bound("move.left", word="half"),
        bound("move.next", "other_end", "tab", "other end"),
    ]
    title_text = "Crossover: at which value of a knob does one lane overtake the other?"
    columns = ("knob", "   from", "     to", "takes")
    noun = "knob"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self._chosen_end = 1
        self._ranges: dict[str, list[int]] = {}

    def _lanes(self) -> list[LaneState]:
        return [lane for lane in self.monitor.snapshot.lanes if not lane.over][:2]

    def _examples(self, knob: Knob) -> int | None:
        sizes = (lane.process.data_examples for lane in self.monitor.snapshot.lanes if lane.process.data_examples)
        return min(sizes, default=None) if knob.name == "batch_size" else None

    def entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        specs = [replace(lane.spec, settings=lane.in_effect) for lane in self._lanes()]
        rows = []
        self.nothing = "this race has no knob that is a number, so there is nothing to cross"
        if len(specs) < 2:
            self.nothing = "a crossover compares two lanes that train; this race has fewer"
        for knob in snapshot.race.knobs if len(specs) == 2 else ():
            with contextlib.suppress(KnobError):
                values_of(knob, None, None)
                if not knob.words:
                    rows.append(self._row(knob, _ALIKE if differ_only_in(knob.name, *specs) else ""))
        return sorted(rows, key=lambda row: row.cells[0][1] == DIM)

    def _row(self, knob: Knob, why_not: str) -> Entry:
        now = [lane.in_effect.get(knob.name, knob.default) for lane in self._lanes()]
        ends = self._ranges.setdefault(knob.name, [*range_around(knob, now, self._examples(knob))])
        takes, style = (why_not, DIM) if why_not else self._takes(knob)
        marks = ("←", " ") if self._chosen_end == 0 else (" ", "←")
        low, high = (f"{end}{mark}".rjust(7) for end, mark in zip(ends, marks, strict=True))
        cells = ((short_name(knob.name), style), (low, style), (high, style), (takes, style))
        return Entry(knob.name, cells, ranks=(knob.name, *ends, takes), whole=knob.help)

    def _takes(self, knob: Knob) -> Span:
        low, high = self._ranges[knob.name]
        examples = self._examples(knob)
        try:
            values = values_of(knob, low, high if examples is None else min(examples, high))
        except KnobError as error:
            return f"{error}; it takes {knob.allowed()}", WARN
        pace_s = round_s([lane.slices for lane in self.monitor.snapshot.lanes]) or PAIR_S
        least, most = (units.clock(pairs * len(values) * pace_s) for pairs in (FIRST_PAIRS, MOST_PAIRS))
        restarts = ", each of which restarts both lanes" if knob.kind == "restart" else ""
        listed = f"{len(values)} values{restarts}: {', '.join(map(show, values))}"
        return f"about {least}, up to {most} where the lead changes or is close; {listed}", TEXT

    def above(self, snapshot: Snapshot, width: int) -> list[Row]:
        rows: list[Row] = []
        for lane in self._lanes():
            style = strong(lane_style(snapshot.lanes.index(lane)))
            rows.append(((f"   {lane.spec.id}  ", style), (lane.title, TEXT)))
        return [*rows, BLANK, *super().above(snapshot, width)]

    def action_other_end(self) -> None:
        self._chosen_end = 1 - self._chosen_end
        self.redraw()

    def action_step(self, direction: int) -> None:
        if self.entry is not None:
            ends = self._ranges[str(self.entry.id)]
            ends[self._chosen_end] = max(
                1, min(2**40, ends[self._chosen_end] * 2 if direction > 0 else ends[self._chosen_end] // 2)
            )
            self.redraw()

    def action_choose(self) -> None:
        if self.entry is None or self.entry.cells[-1][1] != TEXT:
            self.monitor.say(self.nothing if self.entry is None else self.entry.cells[-1][0])
            return
        if not self.may_act():
            return
        knob = str(self.entry.id)
        low, high = map(float, self._ranges[knob])
        if self.run_experiment(Command("begin crossover", (), knob, (low, high))) is not None:
            self.dismiss(None)
            if not isinstance(self.app.screen, CrossoverPage):
                self.monitor.open("crossover")
