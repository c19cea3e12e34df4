"""Which thread of a script is followed, and when: not where Keras trains, or the script reports its steps."""

from __future__ import annotations

import threading
import time
import weakref
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tfmon.model.script_events import Progressed
from tfmon.script.looking import line_of, users_frame
from tfmon.script.rounds import SETTLED
from tfmon.script.sources import BatchSource

if TYPE_CHECKING:
    from tfmon.script.lane import Lane

TRAINING, VALIDATION = "training", "validation"
LOOP_IN_GRAPH = "the loop over the data runs inside of a graph"


class LoopReport:
    """How far a loop is, and what was told of it. Thread: that of the loop."""

    def __init__(self) -> None:
        self.doing = ""
        """`training` or `validation`; empty before either was told."""
        self._epoch = 1
        self._batches: int | None = None
        self._told: set[str] = set()
        self.doubts: dict[str, str] = {}
        """What may stay unknown of the steps, and why; an empty reason for what is known again."""
        self._kinds: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()
        """Each kind of update, with the step that it was first seen in."""

    def begins(self, kind: object, step: int) -> bool:
        """Return whether an update of this kind begins a phase: it is new, and no part of a round."""
        if kind in self._kinds:
            return False
        begins = step >= max(self._kinds.values(), default=-SETTLED) + SETTLED
        self._kinds[kind] = step
        return begins

    def describe(self, name: str, *, given: bool, read: bool) -> str:
        """Return the operation that is counted as a step, by the line of the script that makes it."""
        examples = "the first dimension of what it is given" if given else "what is read for it" if read else "n/a"
        return f"{line_of(users_frame())}: an update by {name}; examples: {examples}"

    def epoch_over(self, batches: int) -> None:
        """Record that an epoch of so many batches has ended."""
        self._batches = batches
        self._epoch += 1

    def progress(self, main: BatchSource | None) -> Progressed:
        """Return how far the loop is in what it reads, None where no dataset is read."""
        begun = self._epoch - int(main is not None and main.over)
        return Progressed(
            at_ns=time.monotonic_ns(),
            doing=self.doing,
            epoch=begun if self._batches is not None or main is not None else 0,
            batch=main.steps if main is not None else 0,
            batches=self._batches,
            epochs_done=self._epoch - 1,
        )

    def examples(self, counted: int | str) -> int:
        """Return the examples of a step; 0 where they are unknown, and keep the reason."""
        if isinstance(counted, str):
            self.doubts["examples"] = self.doubts.get("examples") or counted
        return 0 if isinstance(counted, str) or "examples" in self._told else counted

    def doubt(self, reason: str, *parts: str) -> None:
        """Have nothing told of the steps, or of these parts of what is."""
        self.doubts.update(dict.fromkeys(parts or ("steps", "examples", "loss"), reason))

    def tell(self, lane: Lane) -> None:
        """Tell a lane once what is in doubt, and why."""
        for what, reason in self.doubts.items():
            if reason and what not in self._told:
                lane.cannot_know(what, reason)
                self._told.add(what)


class Followed(ABC):
    """The thread of the first update; calls from others are ignored."""

    def __init__(self) -> None:
        self.off = False
        """True once this process is known not to be the lane, or the script reports its steps itself."""
        self.lane: Lane | None = None
        self._asides: dict[int, int] = {}
        """How often each thread has stepped aside: another watcher follows what it does."""
        self.report = LoopReport()
        self._reported = self._updating = False
        self._thread = 0

    @property
    def aside(self) -> int:
        """More than 0 while another watcher follows what the calling thread does."""
        return self._asides.get(threading.get_ident(), 0) if self._asides else 0

    @property
    def mine(self) -> bool:
        """Whether the calling thread trains, or no thread is known to train yet."""
        return self.lane is None or threading.get_ident() == self._thread

    @property
    def here(self) -> bool:
        """Whether the calling thread is watched now."""
        if self.off or self._updating or (self._asides and self.aside):
            return False
        ident = threading.get_ident()
        if ident == self._thread:
            return True
        if self.lane is not None:
            return False
        self.begin_anew()
        self._thread = ident
        return True

    def step_aside(self) -> bool:
        """Leave what follows to another watcher; return whether `come_back` must be called."""
        if self.off and not self._reported:
            return False
        if self.lane is not None and threading.get_ident() != self._thread:
            return False
        if not self.aside and threading.get_ident() == self._thread:
            self.finish()
            self.report.doing = ""
        self._asides[threading.get_ident()] = self.aside + 1
        return True

    def come_back(self) -> None:
        """Watch again, also a script that reported its steps before."""
        self._asides[threading.get_ident()] -= 1
        if self._reported:
            self.off = self._reported = False

    def retire(self, *, reported: bool = False) -> None:
        """Watch no more; until Keras has trained if the script has `reported` a step itself."""
        self.off, self._reported = True, reported
        self.forget()

    @abstractmethod
    def begin_anew(self) -> None:
        """Begin to follow a thread: nothing is known of it."""

    @abstractmethod
    def forget(self) -> None:
        """Begin a step without anything in it."""

    @abstractmethod
    def finish(self) -> None:
        """End the step under way: no other follows for a while."""
