"""The page of all knobs: value, what each is for, and whether a change needs a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType

from tfmon.model.session import Snapshot
from tfmon.ui.render.rows import BLANK, Row, cells, fit, wrap
from tfmon.ui.render.style import DIM, STRONG, TEXT
from tfmon.ui.requests import shared_value, short_name, targets
from tfmon.ui.screens.page import Page, bound, closer
from tfmon.ui.view import View

if TYPE_CHECKING:
    from tfmon.ui.screens.race import RaceScreen
    from tfmon.ui.view import Shell


class KnobPage(Page):
    """Lets every knob of the scenario be changed, by the same rules as the keys on the race screen."""

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

    def __init__(self, shell: Shell, race: RaceScreen) -> None:
        super().__init__(shell)
        self._race = race

    def body(self, snapshot: Snapshot, width: int, height: int) -> list[Row]:
        """Return the knobs with the chosen one marked."""
        self.title_text = f"Knobs of {self.shell.view.focused or 'all lanes'}"
        up, down, left, right = (self.key(f"move.{way}") for way in ("up", "down", "left", "right"))
        self.foot_text = f"{up} {down} choose · {left} {right} change · {self.key('close')} closes"
        return knob_rows(snapshot, self.shell.view, self.cursor, width, height)

    def action_move(self, direction: int) -> None:
        """Choose another knob."""
        count = len(self.shell.snapshot.race.knobs)
        self.cursor = (self.cursor + direction) % count if count else 0
        self.redraw()

    def wheel(self, direction: int) -> None:
        """Choose another knob."""
        self.action_move(direction)

    def action_step(self, direction: int) -> None:
        """Ask for the next value of the chosen knob."""
        knobs = self.shell.snapshot.race.knobs
        if knobs:
            self._race.action_step_knob(knobs[self.cursor % len(knobs)].name, direction)


def knob_rows(snapshot: Snapshot, view: View, cursor: int, width: int, height: int) -> list[Row]:
    """Return two lines a knob: its value, then what it is for; the chosen one stays in view."""
    lanes = targets(snapshot.lanes, view.focused)
    rows: list[Row] = [BLANK]
    chosen_at = 0
    for place, knob in enumerate(snapshot.race.knobs):
        now, asked = shared_value(lanes, knob)
        chosen = place == cursor % max(1, len(snapshot.race.knobs))
        if chosen:
            chosen_at = len(rows)
        value: Row = ((f"{now}", STRONG), (f"  {asked} asked" if asked else "", DIM))
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
