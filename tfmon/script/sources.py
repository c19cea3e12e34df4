"""The iterators that a script pulls batches from: those of the step under way, and the one that it reads first."""

from __future__ import annotations

import weakref


def nothing(*_: object) -> None:
    """Do nothing, and return nothing."""


class Source:
    """An iterator that the script pulls batches from."""

    __slots__ = ("began_ns", "fed", "first_ns", "in_row", "last_step", "over", "pulls", "ref", "rows", "steps",
                 "strange", "trained", "wait_ns")  # fmt: skip

    def __init__(self, iterator: object) -> None:
        self.ref = weakref.ref(iterator)
        self.over = self.fed = self.trained = False
        self.pulls = self.strange = self.steps = self.in_row = 0
        self.last_step = -1
        self.began_ns = self.first_ns = self.wait_ns = self.rows = 0

    @property
    def open(self) -> bool:
        """Whether it may still be pulled from."""
        return not self.over and self.ref() is not None

    def in_step(self, step: int, steps: int = 1) -> None:
        """Record that it was pulled from for a step, or for several from that on, and for how many in a row."""
        if self.last_step != step:
            self.in_row = steps + (self.in_row if self.last_step == step - 1 else 0)
            self.last_step = step + steps - 1


class Sources:
    """The iterators of a loop. Thread: that of the loop."""

    def __init__(self) -> None:
        """Know none yet."""
        self.pulled: list[Source] = []
        """Those pulled from since the last step, in the order of their first pull."""
        self.primary: Source | None = None
        """The one that the loop reads first; None while that is not known."""
        self._known: dict[int, Source] = {}

    @property
    def reads(self) -> object:
        """The iterator that the loop reads first and that has not ended; None if there is none."""
        return self.primary.ref() if self.primary is not None and self.primary.open else None

    @property
    def feeds(self) -> tuple[tuple[object, int], ...]:
        """The iterators that the step under way has read, each with its examples."""
        return tuple((source.ref(), source.rows) for source in self.pulled)

    def of(self, iterator: object) -> Source:
        """Return what is known of an iterator; at its first pull, forget those that have ended."""
        source = self._known.get(id(iterator))
        if source is not None and source.ref() is iterator:
            return source
        for key in [key for key, one in self._known.items() if not one.open]:
            del self._known[key]
        source = self._known[id(iterator)] = Source(iterator)
        return source

    def drop_closed(self) -> int:
        """Forget what was pulled from and is closed before the first update, for the loop does not read it.

        Returns: the examples of the last of them; 0 for none.
        """
        closed = [source for source in self.pulled if not source.open]
        if closed:
            self.pulled = [source for source in self.pulled if source.open]
        return closed[-1].rows if closed else 0

    def giver(self, fed: list[Source]) -> Source | None:
        """Return the one whose batch has the step's examples, of those that fed it; remember the primary one."""
        if self.primary not in fed:
            self.primary = next((source for source in fed if source.in_row > 1), None)
        return self.primary or (fed[-1] if fed else None)
