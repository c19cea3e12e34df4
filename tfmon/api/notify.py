"""Notices about events of a race, by a command or the terminal."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from tfmon.analysis.analysis import analyse
from tfmon.analysis.health import FAIL_ON, concerns
from tfmon.errors import UsageError
from tfmon.model.codec import clean
from tfmon.model.events import Event, LaneEnded
from tfmon.model.lane_events import LaneFailed
from tfmon.model.lane_state import ABSENT, FAILED, LaneState
from tfmon.model.readings import ALWAYS_VALID, HostSample
from tfmon.model.session import Session, Snapshot
from tfmon.model.threads import start_thread
from tfmon.version import __version__

if TYPE_CHECKING:
    from tfmon.recordings.figures import RaceFigures
    from tfmon.recordings.header import Header

EVERY_S = 60.0
PATIENCE_S = 30.0
"""Longest run time of a command before it is killed."""
COMPARED_EVERY_S = 10.0
AT_THE_END_S = 5.0
"""Longest wait for the last command at the end of a race."""
LONGEST_TEXT = 300

Act = Callable[["Notice"], object]


@dataclass(frozen=True, slots=True)
class Notice:
    """An event of lanes or of a GPU."""

    kind: str
    """A concern of `--fail-on`, `failed`, `ended`, `regression` or `gpu`."""
    text: str
    lanes: tuple[str, ...]
    scenario: str = ""
    recording: str = ""

    def facts(self) -> dict[str, Any]:
        """Return the JSON for a command's standard input."""
        return {
            "tfmon": __version__,
            "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "kind": self.kind,
            "text": self.text,
            "lanes": list(self.lanes),
            "scenario": self.scenario,
            "recording": self.recording or None,
        }


def happening(snapshot: Snapshot) -> Iterator[tuple[str, str, str, str]]:
    """Yield each present event: its kind, its identity, the title of its lane or "", and a text."""
    names = {concern: name for name, concern in FAIL_ON.items()}
    for lane in snapshot.lanes:
        if lane.phase in (FAILED, ABSENT):
            yield "failed", f"{lane.spec.name} {lane.phase_since_ns}", lane.title, _why_failed(lane)
        for concern in () if lane.over else concerns(snapshot, lane):
            if concern.is_fault:
                yield names[concern.id], lane.spec.name, lane.title, concern.text
    for host in snapshot.hosts.values():
        for gpu in host.gpus:
            for fault in gpu.faults:
                yield "gpu", f"{gpu.key} {fault.at_ns}", "", f"{gpu.name}: {fault.text}"
    if snapshot.lanes and all(lane.over for lane in snapshot.lanes):
        outcome = analyse(snapshot).outcome
        yield "ended", str(snapshot.race.number), "", f"{snapshot.race.scenario} ended: {outcome}"


class Baseline:
    """A race for comparison while this race runs. Thread: one."""

    def __init__(self, figures: RaceFigures, limit: float, header: Callable[[], Header | None]) -> None:
        """Start with the figures to compare with, and the share of its speed that a lane can lose."""
        self._figures, self._limit, self._header = figures, limit, header
        self._known: list[tuple[str, str, str, str]] = []
        self._due_s = 0.0

    def regressions(self, snapshot: Snapshot, *, at_the_end: bool) -> Sequence[tuple[str, str, str, str]]:
        """Return the slower lanes, as in `happening`, checked once in `COMPARED_EVERY_S`."""
        from tfmon.recordings.compare import compare  # late, as the next: few races need it
        from tfmon.recordings.figures import RaceFigures
        from tfmon.recordings.gate import SLOWER, judge

        header = self._header()
        if header is None or not (at_the_end or time.monotonic() >= self._due_s):
            return self._known
        self._due_s = time.monotonic() + COMPARED_EVERY_S
        now = RaceFigures.of("", header, snapshot)
        try:
            lanes = judge([compare(self._figures, now)], self._limit, kind=ALWAYS_VALID).lanes
        except UsageError:  # of another scenario, which was chosen on the screen
            lanes = ()
        self._known = [("regression", one.lane, one.lane, one.reason) for one in lanes if one.kind == SLOWER]
        return self._known


def _why_failed(lane: LaneState) -> str:
    return lane.trouble.message if lane.trouble is not None else f"the lane is {lane.phase}"


class Notifier:
    """Checks once a second for new events and reports them; an event that ends can be reported again.

    Thread: it acts in its own thread, so that nothing waits for a slow command.
    """

    def __init__(
        self, session: Session, act: Act, tell: Callable[[str], object], baseline: Baseline | None = None
    ) -> None:
        """Follow a session; `act` gets a notice of a kind at most every `EVERY_S`.

        `tell` gets a line after a failure of `act`, once until it succeeds. A lane slower than the baseline is a
        notice, too.
        """
        self._baseline = baseline
        self._session = session
        self._act = act
        self._tell = tell
        self._fails = False
        self._told: set[tuple[str, str]] = set()
        self._latest_s: dict[str, float] = {}
        self._due: queue.Queue[bool] = queue.Queue()
        """Requests to check; False for the last one."""
        self._forget = session.listen(self._hear)
        self._thread = start_thread("tfmon-notify", self._work, lambda reason: tell(f"--notify: {reason}"))

    def close(self) -> None:
        """Send the remaining notices, and end."""
        self._forget()
        self._due.put(False)
        self._thread.join(AT_THE_END_S)

    def _hear(self, event: Event) -> None:
        if isinstance(event, HostSample | LaneEnded | LaneFailed) and self._due.empty():
            self._due.put(True)

    def _work(self) -> None:
        goes_on = True
        while goes_on:
            goes_on = self._due.get()
            for notice in self._news(at_the_end=not goes_on):
                try:
                    self._act(notice)
                    self._fails = False
                except OSError as error:
                    if not self._fails:
                        self._tell(f"--notify: {error.strerror or error}")
                    self._fails = True

    def _news(self, *, at_the_end: bool) -> Iterable[Notice]:
        """Return a notice for each kind with a new event that is due."""
        snapshot = self._session.snapshot()
        now = list(happening(snapshot))
        if self._baseline is not None:
            now += self._baseline.regressions(snapshot, at_the_end=at_the_end)
        self._told &= {(kind, what) for kind, what, _, _ in now}
        new: dict[str, list[tuple[str, str, str]]] = {}
        for kind, what, lane, text in now:
            waits = time.monotonic() < self._latest_s.get(kind, float("-inf")) + EVERY_S
            if (kind, what) not in self._told and (at_the_end or not waits):
                new.setdefault(kind, []).append((what, lane, text))
        for kind, parts in new.items():
            self._told |= {(kind, what) for what, _, _ in parts}
            self._latest_s[kind] = time.monotonic()
        return [_notice(snapshot, kind, parts) for kind, parts in new.items()]


def _notice(snapshot: Snapshot, kind: str, parts: Iterable[tuple[str, str, str]]) -> Notice:
    texts = [f"{lane}: {text}" if lane else text for _, lane, text in parts]
    lanes = tuple(dict.fromkeys(lane for _, lane, _ in parts if lane))
    text = clean("; ".join(texts), LONGEST_TEXT)
    return Notice(kind, text, lanes, snapshot.race.scenario, snapshot.recording.path if snapshot.recording else "")


BELL, OSC_9, OSC_777 = "bell", "osc9", "osc777"
TERMINAL = (BELL, OSC_9, OSC_777)
"""What a terminal does; anything else is a command. iTerm2, kitty, WezTerm and Windows Terminal know OSC 9; foot,
Ghostty and urxvt know OSC 777."""


@contextlib.contextmanager
def in_terminal(session: Session, how: str, write: Callable[[str], object]) -> Iterator[None]:
    """Send a notice to the terminal; `how` is one of `TERMINAL`."""
    if how not in TERMINAL:
        yield
        return
    notifier = Notifier(session, lambda notice: write(sequence(how, notice)), lambda _: None)
    try:
        yield
    finally:
        notifier.close()


def sequence(how: str, notice: Notice) -> str:
    """Return the escape sequence of a bell or desktop notice, wrapped for tmux if necessary."""
    if how == BELL:
        return "\a"
    text = f"9;tfmon: {notice.text}" if how == OSC_9 else f"777;notify;tfmon;{notice.text.replace(';', ',')}"
    written = f"\x1b]{text}\a"
    return f"\x1bPtmux;\x1b{written}\x1b\\" if os.environ.get("TMUX") else written


def run_command(command: str, notice: Notice) -> None:
    """Run a shell command with the facts on standard input and in `TFMON_NOTIFY_…`; raises OSError."""
    facts = notice.facts()
    texts = {**facts, "lanes": ",".join(notice.lanes), "recording": notice.recording}
    more = {f"TFMON_NOTIFY_{name.upper()}": text for name, text in texts.items()}
    process = subprocess.Popen(
        command,
        shell=True,
        env={**os.environ, **more},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _, errors = process.communicate(json.dumps(facts).encode() + b"\n", PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise OSError(f"{command!r} took longer than {PATIENCE_S:.0f} s, and was killed") from None
    finally:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        last = clean(errors.decode(errors="replace").strip().rpartition("\n")[2], LONGEST_TEXT)
        raise OSError(f"{command!r} ended with {process.returncode}" + (f": {last}" if last else ""))
