"""Base of the pages that show only what contains the words that are typed."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from tfmon.ui.render.rows import Row
from tfmon.ui.render.style import DIM, STRONG
from tfmon.ui.render.tabs import Hint
from tfmon.ui.screens.page import Page, bound


class FilterPage(Page):
    """A page on which one types words after `/`; only what contains all of them is shown."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("filter"),
        Binding("backspace", "erase", "erase a character"),
        Binding("ctrl+u", "clear", "show all"),
    ]
    typing = False
    """Whether keys are characters of the filter now."""
    words = ""

    def on_key(self, event: events.Key) -> None:
        """Take what is typed into the filter."""
        if self.typing and event.is_printable and event.character is not None:
            event.stop()
            self.filter_by(self.words + event.character)

    def action_filter(self) -> None:
        """Let the user type a filter."""
        self.typing = True
        self.redraw()

    def action_erase(self) -> None:
        """Erase the last character."""
        if self.typing:
            self.filter_by(self.words[:-1])

    def action_clear(self) -> None:
        """Show everything again."""
        self.filter_by("")

    def keep_filter(self) -> bool:
        """End typing, and return whether the user typed; the filter stays."""
        typed, self.typing = self.typing, False
        if typed:
            self.redraw()
        return typed

    async def action_dismiss(self, result: str | None = None) -> None:
        """Close the page; a filter goes first."""
        if (self.typing or self.words) and not type(self).typing:
            self.typing = False
            self.filter_by("")
        else:
            await super().action_dismiss(result)

    def filter_by(self, words: str) -> None:
        """Show what contains these words."""
        self.words = words
        self.redraw()

    def filter_row(self, count: str, note: str = "") -> Row:
        """Return the filter with how much it leaves."""
        if not self.typing and not self.words:
            return ((f" {count}{note}", DIM),)
        typed = f" / {self.words}{'▏' if self.typing else ''}"
        return ((typed, STRONG), (f"   {count}{note}", DIM))

    def typing_hints(self) -> list[Hint]:
        """Return what the keys do while a filter is typed."""
        return [Hint(("choose",), "keeps the filter"), Hint(("close",), "shows all")]

    def hints(self) -> list[Hint]:
        """Return what the keys do now."""
        if self.typing and not type(self).typing:
            return self.typing_hints()
        hints = super().hints()
        if self.words and not type(self).typing:
            hints[-1] = Hint(("close",), "all", "dismiss")
        return hints
