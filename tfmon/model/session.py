"""The one mutable object of the program: it takes every event and gives immutable snapshots."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from tfmon.model.events import (
    ClockStarted,
    Event,
    ExclusiveChanged,
    ExperimentChanged,
    MachineKnown,
    ModeChanged,
    RaceBegan,
    SliceGranted,
)
from tfmon.model.race import CONCURRENT, MODES, TURNS, Experiment, Machine, Race, RecordingState
from tfmon.model.snapshot import HISTORY_SAMPLES, Snapshot, after, concerns
from tfmon.model.spec import LaneSpec

__all__ = [
    "CONCURRENT", "HISTORY_SAMPLES", "MODES", "TURNS", "Journal", "Machine", "Race", "RecordingState", "Session",
    "Snapshot",
]  # fmt: skip

Journal: TypeAlias = Callable[[Event, Snapshot], None]
"""Takes an event and what is known after it."""


class Session:
    """Takes events from any thread and hands out snapshots.

    Everything known follows from the events and their order alone: whoever accepts them again, in that order,
    knows the same. A replay does just that, with another clock.

    Thread: every method may be called from any thread.
    """

    def __init__(self, machine: Machine, clock_ns: Callable[[], int]) -> None:
        self._lock = threading.Lock()
        self._clock_ns = clock_ns
        self._known = Snapshot(at_ns=0, machine=machine, race=Race(), lanes=())
        self._journal: Journal | None = None
        self._listeners: tuple[Callable[[Event], None], ...] = ()

    # ------------------------------------------------------------ events that the monitor makes

    def begin(self, race: Race, specs: Sequence[LaneSpec], source: str = "") -> None:
        """Start a race: what was known of the lanes of an earlier one is dropped.

        `source` is the digest of the scenario file.
        """
        race = replace(race, number=self._known.race.number + 1)
        self.accept(RaceBegan(at_ns=self._clock_ns(), race=race, specs=tuple(specs), source=source))

    def know_machine(self, machine: Machine) -> None:
        """Take over what is now known of the machine."""
        self.accept(MachineKnown(at_ns=self._clock_ns(), machine=machine))

    def start_clock(self, at_ns: int) -> None:
        """Note that the lanes got the start signal."""
        self.accept(ClockStarted(at_ns=at_ns))

    def set_mode(self, mode: str) -> None:
        """Note how the lanes share the machine from now on; steady state begins anew if that is a change."""
        self.accept(ModeChanged(at_ns=self._clock_ns(), mode=mode))

    def set_turn(self, lane: str) -> None:
        """Note whose turn it is; "" for nobody's."""
        self.accept(SliceGranted(at_ns=self._clock_ns(), lane=lane))

    def set_exclusive(self, lane: str) -> None:
        """Note which lane has the machine for itself from now on; "" for none.

        Lanes that train at once begin steady state anew: by itself a lane is faster.
        """
        self.accept(ExclusiveChanged(at_ns=self._clock_ns(), exclusive=lane))

    def set_trial(self, experiment: Experiment) -> None:
        """Note how far a series of measurements is."""
        self.accept(ExperimentChanged(at_ns=self._clock_ns(), experiment=experiment))

    # ------------------------------------------------------------ all events

    def accept(self, event: Event) -> None:
        """Take an event; one for a lane that is not in this race is passed over."""
        with self._lock:
            taken = concerns(self._known, event)
            if taken:
                self._known = after(self._known, event)
            if self._journal is not None:
                self._journal(event, self._known)
        for listener in self._listeners if taken else ():
            listener(event)

    def listen(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call `listener` with every event from now on, in the thread that accepts it; return how to end that."""
        self._listeners = (*self._listeners, listener)

        def forget() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not listener)

        return forget

    def keep_journal(self, journal: Journal) -> None:
        """Give every event from now on to a journal, in the order in which they count, those passed over too.

        Thread: it is called with the session locked, so it must return at once and ask nothing of the session.
        """
        self._journal = journal

    def restore(self, known: Snapshot) -> None:
        """Go back, or forward, to what was known at another moment: a replay seeks."""
        with self._lock:
            self._known = known

    def snapshot(self) -> Snapshot:
        """Return everything known now."""
        with self._lock:
            return replace(self._known, at_ns=self._clock_ns())
