"""Base of the pages that show one lane: the same one on each of them."""

from __future__ import annotations

from tfmon.model.lane_state import LaneState
from tfmon.ui.render.tabs import Hint
from tfmon.ui.screens.page import Page


class OneLanePage(Page):
    """A page of one lane; a key goes to the next one."""

    @property
    def lane(self) -> LaneState | None:
        """The lane that is shown; None where there is none."""
        return self.monitor.pages.lane_of(self.monitor.snapshot.lanes)

    def lane_hints(self) -> list[Hint]:
        """Return the key that goes to the next lane, where there are several."""
        several = len(self.monitor.snapshot.lanes) > 1
        return [Hint(("move.next",), "next lane", "turn(1)")] if several else []

    def start_over(self) -> None:
        """Show the page of another lane from where such a page begins."""
        raise NotImplementedError

    def action_turn(self, direction: int) -> None:
        """Show another lane."""
        self.monitor.pages.lane += direction
        self.start_over()
        self.redraw()
