"""Plays a recording."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from tfmon.model.events import ClockStarted, RecordingChanged
from tfmon.model.ports import ReplayState
from tfmon.model.race import RecordingState
from tfmon.model.session import Session, Snapshot
from tfmon.recordings.header_lines import RecordingError
from tfmon.recordings.reader import Recording, guard

SPEEDS = (1, 2, 5, 10, 20, 50, 100)
SEARCHED_EVENTS = 2_000
KEEP_EVERY = 1_000
"""Events between two snapshots for seeks."""
TICK_S = 0.15
"""On a slow machine, the clock of the replay lags."""


class Player:
    """Plays a recording in its own session. Thread: one."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._times_ns = recording.times_ns
        self._now_ns = self._times_ns[0]
        self._next = 0
        self._speed = SPEEDS[0]
        self._playing = True
        self._problem = ""
        self._marks = tuple(recording.marks)
        self._started_ns = _started_ns(recording)
        self.session = Session(recording.header.machine, lambda: self._now_ns)
        place = RecordingState(str(recording.path.absolute()))
        self.session.accept(RecordingChanged(at_ns=self._now_ns, recording=place))
        self._kept: dict[int, Snapshot] = {0: self.session.snapshot()}
        self._play_to_place(recording.place_at(self._now_ns))

    def close(self) -> None:
        """Close the recording."""
        self._recording.close()

    def state(self) -> ReplayState:
        """Return the position."""
        torn = "the recording is cut off at its end" if self._recording.torn else ""
        return ReplayState(
            at_ns=self._now_ns,
            from_ns=self._times_ns[0],
            to_ns=self._times_ns[-1],
            event=self._next,
            events=len(self._times_ns),
            playing=self._playing,
            speed=self._speed,
            marks=self._marks,
            note=self._problem or torn,
            started_ns=self._started_ns,
        )

    def tick(self, seconds: float) -> None:
        """Advance, if it plays."""
        if not self._playing:
            return
        until_ns = min(self._now_ns + round(seconds * 1e9) * self._speed, self._times_ns[-1])
        self._play_to_place(self._recording.place_at(until_ns), time.monotonic() + TICK_S)
        behind = self._next < len(self._times_ns) and self._times_ns[self._next] <= until_ns
        self._now_ns = max(self._now_ns, self._times_ns[self._next - 1]) if behind else until_ns
        if self._next >= len(self._times_ns):
            self._playing = False

    def toggle(self) -> None:
        """Pause or play; at the end, restart."""
        if not self._playing and self._next >= len(self._times_ns):
            self.go_to(self._times_ns[0])
        self._playing = not self._playing and not self._problem

    def step(self, direction: int) -> None:
        """Pause, and go one event."""
        self._playing = False
        place = max(1, min(len(self._times_ns), self._next + direction))
        self._go_to_place(place)
        self._now_ns = self._times_ns[self._next - 1] if self._next else self._times_ns[0]

    def skip(self, seconds: float) -> None:
        """Go forward or back."""
        self.go_to(self._now_ns + round(seconds * 1e9))

    def go_to(self, at_ns: int) -> None:
        """Show a moment of the race."""
        at_ns = max(self._times_ns[0], min(at_ns, self._times_ns[-1]))
        self._go_to_place(self._recording.place_at(at_ns))
        self._now_ns = at_ns

    def go_to_mark(self, direction: int) -> None:
        """Go to another mark."""
        if direction > 0:
            result = [mark.at_ns for mark in self._marks if mark.at_ns > self._now_ns][:1]
        else:
            result = [mark.at_ns for mark in self._marks if mark.at_ns < self._now_ns][-1:]
        for at_ns in result:
            self.go_to(at_ns)

    def change_speed(self, direction: int) -> None:
        """Play faster or slower."""
        place = SPEEDS.index(self._speed) + direction
        self._speed = SPEEDS[max(0, min(len(SPEEDS) - 1, place))]

    def _go_to_place(self, place: int) -> None:
        with contextlib.suppress(RecordingError):  # reported when it is played
            if recorded := self._recording.last_known(place):
                self._kept.setdefault(recorded, self._recording.known_after(recorded))
        nearest = max(kept for kept in self._kept if kept <= place)
        if place < self._next or nearest > self._next:
            self.session.restore(self._kept[nearest])
            self._next = nearest
            self._problem = ""
        self._play_to_place(place)

    def _play_to_place(self, place: int, deadline_s: float | None = None) -> None:
        while self._next < place and not self._problem:
            try:
                with guard(self._recording.path):
                    self._recording.play(self.session, self._next, self._next + 1)
            except RecordingError as error:
                self._problem = error.message
                self._playing = False
                return
            self._next += 1
            if self._next % KEEP_EVERY == 0:
                self._kept.setdefault(self._next, self.session.snapshot())
            if deadline_s is not None and time.monotonic() > deadline_s:
                return


def _started_ns(recording: Recording) -> int | None:
    with contextlib.suppress(RecordingError), guard(recording.path):
        for place in range(min(SEARCHED_EVENTS, len(recording.times_ns))):
            event = recording.event(place)
            if isinstance(event, ClockStarted):
                return event.at_ns
    return None


def play_all(path: Path) -> tuple[Recording, Snapshot]:
    """Return a closed recording and its last state; raises RecordingError."""
    with Recording(path) as recording:
        return recording, end_of(recording)


def end_of(recording: Recording) -> Snapshot:
    """Return the last snapshot of an open recording; raises RecordingError."""
    session = Session(recording.header.machine, lambda: recording.times_ns[-1])
    session.accept(RecordingChanged(at_ns=0, recording=RecordingState(str(recording.path.absolute()))))
    if last := recording.last_known(len(recording)):
        session.restore(recording.known_after(last))
    recording.play(session, last, len(recording))
    return session.snapshot()
