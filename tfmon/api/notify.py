"""Notices about a race."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone

from tfmon.api.occasions import Baseline, happening
from tfmon.model.codec import clean
from tfmon.model.session import Session, Snapshot
from tfmon.system.threads import start_thread
from tfmon.version import __version__

LOOK_EVERY_S, EVERY_S = 1.0, 60.0
PATIENCE_S = 30.0
AT_THE_END_S = 5.0
LONGEST_TEXT = 300
BELL, OSC_9, OSC_777 = "bell", "osc9", "osc777"
TERMINAL = (BELL, OSC_9, OSC_777)
"""iTerm2, kitty, WezTerm and Windows Terminal know OSC 9; foot, Ghostty and urxvt know OSC 777."""


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
    """Call `act` for new events, once in `EVERY_S` for each kind; an event that ends can be reported again.

    Thread: `act` runs in a separate one.
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
        events = [
            *happening(snapshot),
            *(baseline.regressions(snapshot, at_the_end) if baseline is not None else ()),
        ]
        known.intersection_update({event[:2] for event in events})
        recording = snapshot.recording.path if snapshot.recording is not None else ""
        for kind in dict.fromkeys(event[0] for event in events):
            parts = [event for event in events if event[0] == kind and event[:2] not in known]
            if parts and (at_the_end or time.monotonic() >= latest_s.get(kind, float("-inf")) + EVERY_S):
                known.update(event[:2] for event in parts)
                latest_s[kind] = time.monotonic()
                text = "; ".join(f"{lane}: {text}" if lane else text for _, _, lane, text in parts)
                lanes = tuple(dict.fromkeys(lane for _, _, lane, _ in parts if lane))
                yield Notice(kind, clean(text, LONGEST_TEXT), lanes, snapshot.race.scenario, recording)

    thread = start_thread("tfmon-notify", work, lambda reason: tell(f"--notify: {reason}"))
    try:
        yield
    finally:
        over.set()
        thread.join(AT_THE_END_S)


def notices_in_terminal(
    session: Session, how: str, write: Callable[[str], object]
) -> contextlib.AbstractContextManager[None]:
    """Write notices, unless `how` is a command."""
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
    """Run a command with the facts on stdin; raises OSError."""
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
