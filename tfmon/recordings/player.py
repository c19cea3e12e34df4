"""Replays a recording."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from tfmon.model.events import RecordingChanged
from tfmon.model.ports import ReplayState
from tfmon.model.race import RecordingState
from tfmon.model.session import Session, Snapshot
from tfmon.recordings.header_lines import RecordingError
from tfmon.recordings.reader import Recording, guard

SPEEDS = (1, 2, 5, 10, 20, 50, 100)
KEEP_EVERY = 1_000
"""Events between two snapshots for seeks."""
TICK_S = 0.15
"""After this time in a tick, the clock of the replay lags."""


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
        self.session = Session(recording.header.machine, lambda: self._now_ns)
        recording_state = RecordingState(str(recording.path.absolute()))
        self.session.accept(RecordingChanged(at_ns=self._now_ns, recording=recording_state))
        self._kept: dict[int, Snapshot] = {0: self.session.snapshot()}
        self._play_to(recording.position_at(self._now_ns))

    def close(self) -> None:
        """Close the recording."""
        self._recording.close()

    def state(self) -> ReplayState:
        """Return the state of the replay."""
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
            started_ns=self._recording.started_ns,
        )

    def tick(self, seconds: float) -> None:
        """Advance, unless paused."""
        if not self._playing:
            return
        until_ns = min(self._now_ns + round(seconds * 1e9) * self._speed, self._times_ns[-1])
        self._play_to(self._recording.position_at(until_ns), time.monotonic() + TICK_S)
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
        """Pause, and move by one event."""
        self._playing = False
        position = max(1, min(len(self._times_ns), self._next + direction))
        self._go_to_position(position)
        self._now_ns = self._times_ns[self._next - 1] if self._next else self._times_ns[0]

    def skip(self, seconds: float) -> None:
        """Move forward or back."""
        self.go_to(self._now_ns + round(seconds * 1e9))

    def go_to(self, at_ns: int) -> None:
        """Move to a time of the race."""
        at_ns = max(self._times_ns[0], min(at_ns, self._times_ns[-1]))
        self._go_to_position(self._recording.position_at(at_ns))
        self._now_ns = at_ns

    def go_to_mark(self, direction: int) -> None:
        """Move to the next or previous mark."""
        if direction > 0:
            result = [mark.at_ns for mark in self._marks if mark.at_ns > self._now_ns][:1]
        else:
            result = [mark.at_ns for mark in self._marks if mark.at_ns < self._now_ns][-1:]
        for at_ns in result:
            self.go_to(at_ns)

    def change_speed(self, direction: int) -> None:
        """Play faster or slower."""
        index = SPEEDS.index(self._speed) + direction
        self._speed = SPEEDS[max(0, min(len(SPEEDS) - 1, index))]

    def _go_to_position(self, position: int) -> None:
        with contextlib.suppress(RecordingError):  # reported when it is played
            if recorded := self._recording.last_known(position):
                self._kept.setdefault(recorded, self._recording.known_after(recorded))
        nearest = max(kept for kept in self._kept if kept <= position)
        if position < self._next or nearest > self._next:
            self.session.restore(self._kept[nearest])
            self._next = nearest
            self._problem = ""
        self._play_to(position)

    def _play_to(self, position: int, deadline_s: float | None = None) -> None:
        while self._next < position and not self._problem:
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
