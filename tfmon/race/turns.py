"""Whose turn it is: lanes alternate in the order A B, B A, A B, … so that a drift hits both alike."""

from __future__ import annotations

from collections.abc import Sequence


class TurnOrder:
    """Deals out turns in rounds; every other round runs backwards.

    A lane that cannot run is passed over, and one that comes back joins the next round.
    """

    def __init__(self) -> None:
        self.round = 0
        self._left: list[str] = []

    @property
    def round_over(self) -> bool:
        """True when every lane that can run has had its turn of the round."""
        return not self._left

    def next(self, lanes: Sequence[str]) -> tuple[str, int] | None:
        """Return the lane whose turn is next and the round it belongs to; None when no lane can run."""
        self._left = [lane for lane in self._left if lane in lanes]
        if not self._left and lanes:
            self.round += 1
            self._left = list(lanes) if self.round % 2 else list(reversed(lanes))
        return (self._left.pop(0), self.round) if self._left else None

    def break_off(self) -> None:
        """Leave out the rest of the round; the next turn begins another one."""
        self._left = []
