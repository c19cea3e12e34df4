"""Notices about a race."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import TYPE_CHECKING, TypeAlias

from tfmon.analysis.analysis import analyse
from tfmon.analysis.concern_ids import FAIL_ON
from tfmon.analysis.health import concerns
from tfmon.errors import UsageError
from tfmon.model.codec import clean
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.lane_state import ABSENT, FAILED
from tfmon.model.readings import ALWAYS_VALID
from tfmon.model.session import Session, Snapshot
from tfmon.system.threads import start_thread
from tfmon.version import __version__

if TYPE_CHECKING:
    from tfmon.analysis.result import RaceResult
    from tfmon.model.header import Header

LOOK_EVERY_S, EVERY_S = 1.0, 60.0
PATIENCE_S = 30.0
AT_THE_END_S = 5.0
LONGEST_TEXT = 300
COMPARED_EVERY_S = 10.0
Happening: TypeAlias = tuple[str, str, str, str]
"""Kind, identity, title, text."""
BELL, OSC_9, OSC_777 = "bell", "osc9", "osc777"
TERMINAL = (BELL, OSC_9, OSC_777)
"""OSC 9: iTerm2, kitty, WezTerm, Windows Terminal. OSC 777: foot, Ghostty, urxvt."""


@dataclass(frozen=True, slots=True)
class Notice:
    """New events of one kind."""

    kind: str
    text: str
    lanes: tuple[str, ...]
    scenario: str = ""
    recording: str = ""


@contextlib.contextmanager
def notices(
    session: Session,
    act: Callable[[Notice], object],
    tell: Callable[[str], object],
    baseline: Baseline | None = None,
) -> Iterator[None]:
    """Call `act` for new events, at most once in `EVERY_S` for each kind.

    Thread: `act` runs in a separate thread.
    """
    over, known, latest_s = threading.Event(), set[tuple[str, str]](), dict[str, float]()

    def work() -> None:
        at_the_end = fails = False
        while not at_the_end:
            at_the_end = over.wait(LOOK_EVERY_S)
            for notice in new_notices(session.snapshot(), at_the_end):
                try:
                    act(notice)
                    fails = False
                except OSError as error:
                    if not fails:
                        tell(f"--notify: {error.strerror or error}")
                    fails = True

    def new_notices(snapshot: Snapshot, at_the_end: bool) -> Iterator[Notice]:
        slower = baseline.regressions(snapshot, at_the_end) if baseline is not None else ()
        events = [*happening(snapshot), *slower]
        known.intersection_update({event[:2] for event in events})
        for kind in dict.fromkeys(event[0] for event in events):
            parts = [event for event in events if event[0] == kind and event[:2] not in known]
            if parts and (at_the_end or time.monotonic() >= latest_s.get(kind, float("-inf")) + EVERY_S):
                known.update(event[:2] for event in parts)
                latest_s[kind] = time.monotonic()
                text = "; ".join(f"{lane}: {text}" if lane else text for _, _, lane, text in parts)
                lanes = tuple(dict.fromkeys(lane for _, _, lane, _ in parts if lane))
                yield Notice(kind, clean(text, LONGEST_TEXT), lanes, snapshot.race.scenario, snapshot.recorded)

    thread = start_thread("tfmon-notify", work, lambda reason: tell(f"--notify: {reason}"))
    try:
        yield
    finally:
        over.set()
        thread.join(AT_THE_END_S)


def notices_in_terminal(
    session: Session, how: str, write: Callable[[str], object]
) -> contextlib.AbstractContextManager[None]:
    """Write notices to the terminal, unless `how` is a command."""
    if how not in TERMINAL:
        return contextlib.nullcontext()
    return notices(session, lambda notice: write(sequence(how, notice)), lambda _: None)


def sequence(how: str, notice: Notice) -> str:
    """Return the escape sequence, also for tmux."""
    if how == BELL:
        return "\a"
    text = f"9;tfmon: {notice.text}" if how == OSC_9 else f"777;notify;tfmon;{notice.text.replace(';', ',')}"
    return f"\x1bPtmux;\x1b\x1b]{text}\a\x1b\\" if os.environ.get("TMUX") else f"\x1b]{text}\a"


def run_command(command: str, notice: Notice) -> None:
    """Run a command with the facts of a notice; raises OSError."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    facts = {"tfmon": __version__, "time": now, **asdict(notice), "recording": notice.recording or None}
    texts = {**facts, "lanes": ",".join(notice.lanes), "recording": notice.recording}
    process = subprocess.Popen(
        ["sh", "-c", command],  # noqa: S607 - every system has sh
        env={**os.environ, **{f"TFMON_NOTIFY_{name.upper()}": text for name, text in texts.items()}},
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


def happening(snapshot: Snapshot) -> Iterator[Happening]:
    """Yield each present event."""
    names = {concern: name for name, concern in FAIL_ON.items()}
    for lane in snapshot.lanes:
        if lane.phase in (FAILED, ABSENT):
            why = lane.trouble.message if lane.trouble is not None else f"the lane is {lane.phase}"
            yield "failed", f"{lane.spec.name} {lane.phase_since_ns}", lane.title, why
        for concern in () if lane.over else concerns(snapshot, lane):
            if concern.is_fault:
                yield names[concern.id], lane.spec.name, lane.title, concern.text
    for gpu in (gpu for host in snapshot.hosts.values() for gpu in host.gpus):
        for fault in gpu.faults:
            yield "gpu", f"{gpu.key} {fault.at_ns}", "", f"{gpu.name}: {fault.text}"
    if snapshot.lanes and all(lane.over for lane in snapshot.lanes):
        outcome = analyse(snapshot).outcome
        yield "ended", str(snapshot.race.number), "", f"{snapshot.race.scenario} ended: {outcome}"


class Baseline:
    """The race of `--baseline`, with which each lane's speed is compared. Thread: a single one."""

    def __init__(self, race: RaceResult, limit: float, header: Callable[[], Header | None]) -> None:
        self._race, self._limit, self._header = race, limit, header
        self._slower: list[Happening] = []
        self._due_s = 0.0

    def regressions(self, snapshot: Snapshot, at_the_end: bool) -> Sequence[Happening]:
        """Return the slower lanes."""
        from tfmon.analysis.compare import compare  # late: few races need it
        from tfmon.analysis.gate import SLOWER, judge
        from tfmon.analysis.summarise import summarise

        header = self._header()
        if header is None or not (at_the_end or time.monotonic() >= self._due_s):
            return self._slower
        self._due_s = time.monotonic() + COMPARED_EVERY_S
        now = summarise(analyse(snapshot), header)
        try:
            lanes = judge([compare(self._race, now)], self._limit, kind=ALWAYS_VALID).lanes
        except UsageError:  # another scenario was chosen on the screen
            lanes = ()
        self._slower = [("regression", lane.lane, lane.lane, lane.reason) for lane in lanes if lane.kind == SLOWER]
        return self._slower
