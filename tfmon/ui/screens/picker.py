"""The scenario picker: type to filter, Enter races."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from tfmon.model.session import Snapshot
from tfmon.ui.render.rows import BLANK, Row, crop, wrap
from tfmon.ui.render.style import DIM, STRONG, TEXT, WARN
from tfmon.ui.screens.page import Page, bound
from tfmon.ui.view import ScenarioRow, Shell


class Picker(Page):
    """Closes with the name of the chosen scenario, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("choose", keys="enter"),
        bound("move.down", keys="down,tab"),
        bound("move.up", keys="up,shift+tab"),
        Binding("backspace", "erase", "erase a id"),
        Binding("ctrl+u", "clear", "erase all"),
    ]
    title_text = "Race another scenario"

    def __init__(self, shell: Shell) -> None:
        super().__init__(shell)
        self._cards = tuple(shell.infos())
        self._words = ""

    def body(self, snapshot: Snapshot, width: int, height: int) -> list[Row]:
        """Return the filter and the scenarios that match it."""
        found = matching(self._cards, self._words)
        up, down, choose = (self.key(one) for one in ("move.up", "move.down", "choose"))
        self.foot_text = f"type to filter · {up} {down} choose · {choose} races · {self.key('close')} closes"
        return picker_rows(found, self._words, self.cursor, snapshot.race.scenario, width, height)

    def on_key(self, event: events.Key) -> None:
        """Take what is typed into the filter."""
        if event.is_printable and event.character is not None:
            event.stop()
            self._filter(self._words + event.character)

    def action_erase(self) -> None:
        """Take the last id back."""
        self._filter(self._words[:-1])

    def action_clear(self) -> None:
        """Show all the scenarios again."""
        self._filter("")

    def action_move(self, direction: int) -> None:
        """Choose another scenario."""
        found = matching(self._cards, self._words)
        self.cursor = (self.cursor + direction) % len(found) if found else 0
        self.redraw()

    def wheel(self, direction: int) -> None:
        """Choose another scenario."""
        self.action_move(direction)

    def action_choose(self) -> None:
        """Close, and race the chosen scenario."""
        found = matching(self._cards, self._words)
        if found:
            self.dismiss(found[min(self.cursor, len(found) - 1)].name)

    def _filter(self, words: str) -> None:
        self._words = words
        self.cursor = 0
        self.redraw()


def matching(infos: tuple[ScenarioRow, ...], words: str) -> list[ScenarioRow]:
    """Return the infos in whose name or title every word occurs; matches in the name come first."""
    wanted = words.lower().split()
    found = [info for info in infos if all(word in f"{info.name} {info.title}".lower() for word in wanted)]
    return sorted(found, key=lambda info: not all(word in info.name.lower() for word in wanted))


def picker_rows(
    infos: list[ScenarioRow], words: str, cursor: int, racing: str, width: int, height: int
) -> list[Row]:
    """Return the filter line, a line for each info, and what the chosen one is about."""
    rows: list[Row] = [BLANK, (("   filter ", DIM), (words, STRONG), ("▏" if words else "all", DIM)), BLANK]
    if not infos:
        return [*rows, ((f"   no scenario matches “{words}”; Ctrl+U shows all", WARN),)]
    about = 5
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
