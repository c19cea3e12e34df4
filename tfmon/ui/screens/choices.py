"""The lists from which one chooses what is raced: the knobs of the race, and the scenarios."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType

from tfmon.model.knobs import Knob, short_name
from tfmon.model.session import Snapshot
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.style import DIM, STRONG, TEXT, WARN
from tfmon.ui.render.table import Column, Entry, matches
from tfmon.ui.render.tabs import Hint
from tfmon.ui.requests import shared_value, targets
from tfmon.ui.screens.lists import ListPage
from tfmon.ui.screens.page import Dialog, bound
from tfmon.ui.source import ScenarioRow
from tfmon.ui.view import View


class KnobPage(ListPage):
    """Lets every knob of the scenario be changed, by the same rules as the keys of the race screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("move.next", "move(1)"),
        bound("move.previous", "move(-1)"),
        bound("move.right", keys="right,space,plus"),
        bound("move.left"),
    ]
    tab = "knobs"
    columns = (Column("knob", 24), Column("in effect", 24), Column("requested", 16), Column("a change"))
    noun = "knob"
    nothing = "this race has no knobs"

    def entries(self, snapshot: Snapshot) -> list[Entry]:
        """Return the knobs, with what they are set to in the lanes that keys act on."""
        view = self.monitor.view
        chosen = next((lane for lane in snapshot.lanes if lane.spec.name == view.focused), None)
        self.title_text = f"Knobs of {'all lanes' if chosen is None else f'{chosen.spec.id} {chosen.title}'}"
        return [knob_entry(snapshot, view, knob) for knob in snapshot.race.knobs]

    def own_hints(self) -> list[Hint]:
        """Return what the keys do; where nothing may be changed, only how to look."""
        hints = super().own_hints()
        training = any(not lane.over for lane in self.monitor.snapshot.lanes)
        if self.shown and training and not self.monitor.refusal:
            hints.insert(0, Hint(("move.left", "move.right"), "change", "step(1)"))
        return hints

    def act(self, entry: Entry) -> None:
        """Request the next value."""
        self.action_step_knob(str(entry.id), 1)

    def action_step(self, direction: int) -> None:
        """Request the next value of the chosen knob, or the one before."""
        if self.entry is not None:
            self.action_step_knob(str(self.entry.id), direction)


def knob_entry(snapshot: Snapshot, view: View, knob: Knob) -> Entry:
    """Return a knob as an entry of the list; it is marked where the lanes differ in it."""
    now, requested = shared_value(targets(snapshot.lanes, view.focused), knob)
    differs = any(knob.name in (lane.differs or ()) for lane in snapshot.lanes)
    kind = "while it trains" if knob.kind == "live" else "restarts the lane"
    return Entry(
        knob.name,
        ((short_name(knob.name), TEXT), (now, STRONG), (requested, WARN), (kind, DIM)),
        whole=f"{knob.help} Takes {knob.allowed()}." + (" The lanes differ in it." if differs else ""),
        mark="≠" if differs else " ",
    )


class Picker(ListPage, Dialog):
    """Closes with the name of the chosen scenario, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("move.down", keys="down,tab"),
        bound("move.up", keys="up,shift+tab"),
        bound("sort", keys="ctrl+o"),
    ]
    typing = True
    title_text = "Race another scenario"
    columns = (Column("scenario", 30), Column("title", 90), Column("from"))
    noun = "scenario"
    nothing = "there is no scenario"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self._every = [_scenario_entry(one, monitor.snapshot.race.scenario) for one in monitor.source.scenarios()]

    def entries(self, snapshot: Snapshot) -> list[Entry]:
        """Return the scenarios; where words are typed, those with the words in their name come first."""
        return self._every

    def matching(self, every: Sequence[Entry]) -> list[Entry]:
        """Return what matches; unless it is sorted, matches in the name come first."""
        found = super().matching(every)
        if self.order.column is None and self.words:
            found = sorted(found, key=lambda one: not matches(str(one.id), self.words))
        return found

    def own_hints(self) -> list[Hint]:
        """Return what the keys do."""
        return [Hint(("choose",), "race it", "choose"), Hint(("move.up", "move.down"), "choose; type to filter")]

    def filter_by(self, words: str) -> None:
        """Show what contains these words, and choose the first."""
        self.chosen, self.first = None, 0
        super().filter_by(words)

    def action_choose(self) -> None:
        """Close, and race the chosen scenario."""
        if self.entry is not None:
            self.dismiss(None)
            self._race(str(self.entry.id))

    def _race(self, scenario: str) -> None:
        monitor, before = self.monitor, self.monitor.snapshot.race.number

        def change() -> None:
            monitor.experiments.stop()
            monitor.controls.race(scenario)

        monitor.say(f"starting the race of {scenario}…", lambda snapshot: snapshot.race.number != before)
        monitor.work(change)


def _scenario_entry(one: ScenarioRow, racing: str) -> Entry:
    note = " (this race)" if one.name == racing else ""
    cells = ((f"{one.name}{note}", TEXT), (one.title, TEXT), (one.origin, DIM))
    return Entry(one.name, cells, whole=f"{one.title.rstrip('.')}. {' '.join(one.doc.split())}".rstrip())
