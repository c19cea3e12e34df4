"""A race or a sweep without a screen: waits for its end or a signal, and shows on a terminal how it goes."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, TextIO

import click

from tfmon import units
from tfmon.analysis.analysis import Analysis, analyse
from tfmon.analysis.finish import ending_line
from tfmon.analysis.series_tables import doing_text
from tfmon.analysis.tuning import news
from tfmon.analysis.verdict import FASTER, SAME
from tfmon.api.program import Program
from tfmon.catalog import ScenarioInfo
from tfmon.lanes.plan import RacePlan
from tfmon.lanes.suspend import Suspender, suspend_with
from tfmon.model.codec import clean
from tfmon.model.lane_state import PAUSED
from tfmon.model.series import Experiment, TuneState
from tfmon.model.session import Snapshot
from tfmon.reports.series import happened, progress_line

if TYPE_CHECKING:
    from tfmon.api.sweep import SweepProgram

POLL_S = 0.2
TOLD_EVERY_S = 1.0
HANGUP = getattr(signal, "SIGHUP", None)
SIGNALS = tuple(
    number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None
)


class Interruption:
    """Whether a signal that ends the program has come."""

    def __init__(self, react: Callable[[], None], hangup: Callable[[], bool]) -> None:
        """Call `react` at each signal, but at SIGHUP only where `hangup` does not return True."""
        self.signal = ""
        """Name of the first signal that came; empty if none did."""
        self.count = 0
        """How many have come."""
        self._react, self._hangup = react, hangup
        self._came = threading.Event()

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Remember the signal if it is the first, and react to it."""
        if number == HANGUP and self._hangup():
            return
        self.signal = self.signal or signal.Signals(number).name
        self.count += 1
        self._came.set()
        self._react()

    def wait(self) -> bool:
        """Wait a moment; return whether a signal has come."""
        return self._came.wait(POLL_S)

    @property
    def reason(self) -> str:
        """Why the race is interrupted; empty while no signal has come."""
        return f"interrupted by {self.signal}" if self.signal else ""


@contextlib.contextmanager
def interruption(
    react: Callable[[], None] = lambda: None, hangup: Callable[[], bool] = lambda: False
) -> Iterator[Interruption]:
    """Catch the signals that would end the program.

    Args:
        react: is called at each signal.
        hangup: is called at SIGHUP, and returns whether the program goes on.

    Thread: the main thread.
    """
    interrupted = Interruption(react, hangup)
    before = {number: signal.signal(number, interrupted.handle) for number in SIGNALS}
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def plan_race(program: Program, info: ScenarioInfo, lanes: Sequence[str]) -> RacePlan:
    """Plan a race, and say on a terminal while it connects to other machines. What was begun is ended on an error.

    Raises:
        TfmonError: it cannot be raced.
    """
    hosts = list(
        dict.fromkeys(filter(None, (lane.partition(",")[0].rpartition("/")[0].strip() for lane in lanes)))
    )
    try:
        if hosts:
            show_progress(clean(f"connecting to {' and '.join(hosts)}…"))
        return program.plan(info)
    except BaseException:
        program.close()
        raise
    finally:
        if hosts:
            show_progress("")


def run(program: Program, plan: RacePlan, *, quiet: bool = False) -> str:
    """Race until every lane has ended; return why it was interrupted, or "".

    Thread: the main thread, for the signals.
    """

    def again() -> None:
        if interrupted.count > 1:
            program.lanes.end_now()

    with interruption(again, lambda: go_on_alone(program)) as interrupted, ThreadPoolExecutor(1) as closing:
        forget = suspend_with(program.lanes.running.suspension)
        try:
            tell = show_progress if not quiet and sys.stderr.isatty() else None
            follow_race(program, plan, interrupted.wait, tell)
        finally:
            closed = closing.submit(program.close, interrupted.reason)
            while not wait([closed], POLL_S).done:
                if ending := ending_line(program.session.snapshot()):
                    show_progress(f"{ending}; Ctrl+C again ends it now")
            forget()
            if not quiet:
                show_progress("")
            closed.result()
    return interrupted.reason


def go_on_alone(program: Program) -> bool:
    """Let a user's command train on although the terminal is gone; return False where none trains.

    What is written to the terminal from now on is dropped, and lanes that a key had paused go on.
    """
    if not program.trains_command:
        return False
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        with contextlib.suppress(OSError):
            if os.isatty(fd) or os.fstat(fd).st_mode & stat.S_IFCHR:
                os.dup2(nowhere, fd)
    os.close(nowhere)
    lanes = program.session.snapshot().lanes
    program.lanes.resume([lane.spec.name for lane in lanes if lane.phase == PAUSED])
    return True


def pass_on(stream: TextIO) -> Callable[[bytes], None]:
    """Return a function that writes bytes to a stream until nobody reads it."""
    broken = False

    def write(chunk: bytes) -> None:
        nonlocal broken
        if not broken:
            try:
                stream.buffer.write(chunk)
                stream.flush()
            except (OSError, ValueError):
                broken = True

    return write


def pause() -> bool:
    """Wait a moment; return False: nothing is to end for it."""
    time.sleep(POLL_S)
    return False


def follow(
    over: Callable[[], bool],
    wait: Callable[[], bool],
    line: Callable[[], str],
    tell: Callable[[str], None] | None,
) -> None:
    """Return when something is over, or `wait` says so.

    Args:
        over: Whether it is over.
        wait: Waits a moment, and returns whether it is to end now.
        line: Returns how it goes.
        tell: Gets that line once a second; None for nobody who would read it.

    Thread: any.
    """
    due_s = 0.0
    while not wait() and not over():
        if tell is not None and time.monotonic() >= due_s:
            due_s = time.monotonic() + TOLD_EVERY_S
            tell(line())


def follow_race(
    program: Program, plan: RacePlan, wait: Callable[[], bool], tell: Callable[[str], None] | None = None
) -> None:
    """Race until every lane has ended or `wait` says so, as `follow` does; the caller closes the program."""
    program.begin(plan)
    found = None

    def line() -> str:
        nonlocal found
        found = analyse(program.session.snapshot(), found)
        return f"{_speeds(found.snapshot)}{_outlook(found)}"

    follow(lambda: program.lanes.running.all_over, wait, line, tell)


def follow_sweep(program: SweepProgram, wait: Callable[[], bool], tell: Callable[[str], None] | None) -> None:
    """Measure until all is known or `wait` says so, as `follow` does; the caller closes the program."""
    program.sweep.start()
    follow(lambda: program.sweep.join(0), wait, lambda: progress_line(program.sweep.found), tell)


@contextlib.contextmanager
def _measuring(suspensions: Iterable[Suspender], close: Callable[[str], None]) -> Iterator[Interruption]:
    """Catch signals while a series is measured, and close it at the end.

    Args:
        suspensions: What suspends the lanes along with tfmon.
        close: Ends the lanes, for the reason that it is given; empty where no signal came.

    Thread: the main thread.
    """
    with interruption() as interrupted, contextlib.ExitStack() as undo:
        for suspension in suspensions:
            undo.callback(suspend_with(suspension))
        try:
            yield interrupted
        finally:
            close(interrupted.reason)
            show_progress("")


def run_sweep(program: SweepProgram) -> str:
    """Measure until all is known; return why it was interrupted, or "".

    Thread: the main thread, for the signals.
    """
    unsaved, known = "", program.sweep.found

    def tell(line: str) -> None:
        nonlocal unsaved, known
        before, known = known, program.sweep.found
        told = list(happened(before, known))
        if program.file is not None and program.file.failure != unsaved:
            unsaved = program.file.failure
            told.append(unsaved or f"{program.file.path} has all again")
        if told:
            show_progress("")
        for one in told:
            click.echo(f"tfmon: {one}", err=True)
        show_progress(line)

    def close(reason: str) -> None:
        program.close(reason or "stopped by the user")

    with _measuring(program.suspensions, close) as interrupted:
        follow_sweep(program, interrupted.wait, tell)
        tell("")  # what was settled last
    return interrupted.reason


def run_experiment(program: Program, plan: RacePlan, make: Callable[[], Experiment]) -> tuple[Snapshot, str]:
    """Measure a series on the lanes of a race; return the end of that, and why it was interrupted, or "".

    Args:
        program: What is closed at the end.
        plan: The race.
        make: Returns the series; raises TfmonError where it is not possible.

    Thread: the main thread, for the signals.
    """
    experiments, session = program.experiments, program.session

    def line() -> str:
        snapshot = session.snapshot()
        if not all(lane.points for lane in snapshot.lanes):
            return "the lanes get ready"
        return news(snapshot) or doing_text(snapshot)

    with _measuring([program.lanes.running.suspension], program.close) as interrupted:
        state = make()
        program.begin(plan)
        experiments.run(state)
        follow(lambda: bool(interrupted.signal), lambda: experiments.join(POLL_S), line, show_progress)
        while not experiments.join(0):
            experiments.stop()
        snapshot = session.snapshot()  # at once: the settings that the lanes get back begin another period
    snapshot = replace(snapshot, recording=session.snapshot().recording)  # it is compressed now
    if snapshot.experiment is None:  # a signal came before the series began
        tuned = state if isinstance(state, TuneState) else None
        snapshot = replace(snapshot, experiment=state, tuned=tuned)
    return snapshot, interrupted.reason


def show_progress(text: str) -> None:
    """Write one line over the one before, if stderr is a terminal; "" clears it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}"[:160])
        sys.stderr.flush()


def _outlook(found: Analysis) -> str:
    """Say how much longer the race lasts, and how much longer an answer takes; empty where neither is known."""
    race, told = found.snapshot.race, []
    if race.seconds is not None and race.started_ns is not None:
        left_s = race.seconds - (found.snapshot.at_ns - race.started_ns) / 1e9
        told.append(f"{units.clock(left_s)} left")
    if found.verdict.left_s is not None:
        what = f"±{100 * race.until_ci:g} %" if race.until_ci is not None else "an answer"
        told.append(f"{what} in about {units.about(found.verdict.left_s)}")
    elif found.verdict.kind in (FASTER, SAME):
        told.append("there is an answer")
    return "".join(f"   {one}" for one in told)


def _speeds(snapshot: Snapshot) -> str:
    words = []
    for lane in snapshot.lanes:
        speed = lane.recent().examples_per_s
        seconds = (snapshot.at_ns - lane.phase_since_ns) / 1e9
        what = f"{units.rate(speed)} examples/s" if speed is not None else f"{lane.phase} {seconds:.0f} s"
        words.append(f"{lane.spec.name}: {what}")
    return "   ".join(words)
