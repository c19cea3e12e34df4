"""The two pages on which one chooses from a list: the knobs of the race, and the scenarios to race."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from textual.binding import BindingType

from tfmon.model.session import Snapshot
from tfmon.ui.render.rows import BLANK, Row, cells, crop, fit, wrap
from tfmon.ui.render.style import DIM, STRONG, TEXT, WARN
from tfmon.ui.requests import shared_value, short_name, step_knob, targets
from tfmon.ui.screens.page import FilterPage, ListPage, bound, closer, matches
from tfmon.ui.view import View

if TYPE_CHECKING:
    from tfmon.ui.app import MonitorApp


class ScenarioRow(Protocol):
    """One scenario as the picker shows it."""

    @property
    def name(self) -> str:
        """What `race` takes."""

    @property
    def title(self) -> str:
        """One line."""

    @property
    def doc(self) -> str:
        """A paragraph; may be empty."""

    @property
    def origin(self) -> str:
        """Where it comes from, such as "built in" or a path."""


class KnobPage(ListPage):
    """Lets every knob of the scenario be changed, by the same rules as the keys of the race screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        closer("knobs"),
        bound("choose", "dismiss", "enter"),
        bound("move.down"),
        bound("move.up"),
        bound("move.next", "move(1)"),
        bound("move.previous", "move(-1)"),
        bound("move.right", keys="right,space,plus"),
        bound("move.left"),
    ]

    def body(self, snapshot: Snapshot, width: int, height: int) -> list[Row]:
        """Return the knobs with the chosen one marked."""
        self.title_text = f"Knobs of {self.monitor.view.focused or 'all lanes'}"
        up, down, left, right = (self.key(f"move.{way}") for way in ("up", "down", "left", "right"))
        self.keys_text = f"{up} {down} choose · {left} {right} change · {self.key('close')} closes"
        return knob_rows(snapshot, self.monitor.view, self.cursor, width, height)

    def entries(self) -> int:
        """Return how many knobs there are."""
        return len(self.monitor.snapshot.race.knobs)

    def action_step(self, direction: int) -> None:
        """Request the next value of the chosen knob."""
        knobs = self.monitor.snapshot.race.knobs
        if knobs:
            step_knob(self.monitor, knobs[self.cursor % len(knobs)].name, direction)


def knob_rows(snapshot: Snapshot, view: View, cursor: int, width: int, height: int) -> list[Row]:
    """Return two lines a knob: its value, then what it is for; the chosen one stays in view."""
    lanes = targets(snapshot.lanes, view.focused)
    rows: list[Row] = [BLANK]
    chosen_at = 0
    for place, knob in enumerate(snapshot.race.knobs):
        now, requested = shared_value(lanes, knob)
        chosen = place == cursor % max(1, len(snapshot.race.knobs))
        if chosen:
            chosen_at = len(rows)
        value: Row = ((f"{now}", STRONG), (f"  {requested} requested" if requested else "", DIM))
        kind = "changes while it trains" if knob.kind == "live" else "restarts the lane"
        head: Row = (
            (" ▸ " if chosen else "   ", STRONG),
            (f"{short_name(knob.name):<18}", STRONG if chosen else TEXT),
        )
        rows.append((*head, *fit(value, max(24, cells(value))), (f"  {kind}", DIM)))
        rows += [((f"   {line}", DIM),) for line in wrap(f"{knob.help} Takes {knob.allowed()}.", width - 5, 2)]
        rows.append(BLANK)
    first = max(0, min(chosen_at - height // 2, len(rows) - height))
    return rows[first : first + height]


class Picker(ListPage, FilterPage):
    """Closes with the name of the chosen scenario, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("choose", keys="enter"),
        bound("move.down", keys="down,tab"),
        bound("move.up", keys="up,shift+tab"),
    ]
    title_text = "Race another scenario"

    def __init__(self, monitor: MonitorApp) -> None:
        super().__init__(monitor)
        self._scenarios = tuple(monitor.scenarios())

    def body(self, snapshot: Snapshot, width: int, height: int) -> list[Row]:
        """Return the filter and the scenarios that match it."""
        found = matching(self._scenarios, self.words)
        up, down, choose = (self.key(one) for one in ("move.up", "move.down", "choose"))
        self.keys_text = f"type to filter · {up} {down} choose · {choose} races · {self.key('close')} closes"
        return picker_rows(found, self.words, self.cursor, snapshot.race.scenario, width, height)

    def entries(self) -> int:
        """Return how many scenarios match."""
        return len(matching(self._scenarios, self.words))

    def action_choose(self) -> None:
        """Close, and race the chosen scenario."""
        found = matching(self._scenarios, self.words)
        if found:
            self.dismiss(found[min(self.cursor, len(found) - 1)].name)


def matching(infos: Sequence[ScenarioRow], words: str) -> list[ScenarioRow]:
    """Return the scenarios in whose name or title every word occurs; matches in the name come first."""
    found = [info for info in infos if matches(f"{info.name} {info.title}", words)]
    return sorted(found, key=lambda info: not matches(info.name, words))


def picker_rows(
    infos: Sequence[ScenarioRow], words: str, cursor: int, racing: str, width: int, height: int
) -> list[Row]:
    """Return the filter line, a line for each scenario, and what the chosen one is about."""
    rows: list[Row] = [BLANK, (("   filter ", DIM), (words, STRONG), ("▏" if words else "all", DIM)), BLANK]
    if not infos:
        return [*rows, ((f"   no scenario matches “{words}”; Ctrl+U shows all", WARN),)]
    about = 5  # rows below the list
    room = max(1, height - len(rows) - about)
    first = max(0, min(cursor - room // 2, len(infos) - room))
    for place, info in enumerate(infos[first : first + room], first):
        chosen = place == cursor
        note = " (this race)" if info.name == racing else ""
        rows.append(
            (
                (" ▸ " if chosen else "   ", STRONG),
                (crop(f"{info.name}{note}", 30).ljust(32), STRONG if chosen else TEXT),
                (info.title, TEXT if chosen else DIM),
            )
        )
    info = infos[min(cursor, len(infos) - 1)]
    rows.append(BLANK)
    rows += [((f"   {line}", DIM),) for line in wrap(info.doc, width - 6, about - 2)]
    rows.append(((f"   {info.origin}", DIM),))
    return rows
