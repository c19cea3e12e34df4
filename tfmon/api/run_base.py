"""Start, progress and end of everything with lanes."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import select
import signal
import stat
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import click

from tfmon import units
from tfmon.analysis.finish import ending_line
from tfmon.errors import TfmonError
from tfmon.lanes import script_input
from tfmon.lanes.suspend import Suspender, suspend_with
from tfmon.model.codec import clean
from tfmon.model.requests import Command
from tfmon.model.session import Session
from tfmon.system.threads import start_thread

POLL_S = 0.2
TERMINAL_S = 5
HANGUP = signal.SIGHUP
YOUNG_OBJECTS = 10_000
SIGNALS = (signal.SIGINT, signal.SIGTERM, HANGUP)
FOLDER_VARIABLE = "TFMON_STATE"
LOOK_EVERY_S = 0.1
REPORT_EVERY_S = 1.0
Tell = Callable[[str], object]
_IN_THIS_PROCESS = threading.Lock()


class Run(ABC):
    """A race, a series on its lanes, or a sweep, here or in another process."""

    session: Session
    beside = ""
    """Warning about another race."""
    disturbs = True
    alone = False
    """Whether a command continues without its terminal."""
    hint = ""
    """Hint for a new user."""
    tell: Tell | None = None
    is_series = False
    """Whether the run ends with a series, even with viewers."""

    @abstractmethod
    def begin(self) -> None:
        """Start the lanes."""

    @abstractmethod
    def join(self, timeout_s: float) -> bool:
        """Wait; return whether the run has ended."""

    @abstractmethod
    def line(self) -> str:
        """Return the progress in a line."""

    @abstractmethod
    def close(self, reason: str = "") -> None:
        """End everything, with the reason of an interruption."""

    @abstractmethod
    def outcome(self, interrupted: str, *, as_json: bool) -> tuple[object, int]:
        """Return the output and the exit code; may raise TfmonError."""

    def perform(self, command: Command) -> str:
        """Carry out a request; raises TfmonError. A viewer sends it to the runner, so it carries out none."""
        raise NotImplementedError

    def announce(self) -> None:
        """Announce the run to viewers."""

    @property
    def notes(self) -> Sequence[str]:
        """Lines about the plan; raises TfmonError."""
        return ()

    @property
    def trains_command(self) -> bool:
        """Whether a user's command trains or will train."""
        return False

    @property
    def suspenders(self) -> Sequence[Suspender]:
        """The owners of the lanes' processes."""
        return ()

    def suspend_lanes(self) -> None:
        """Suspend the lanes. Thread: also a signal's handler."""
        for suspender in self.suspenders:
            suspender.suspend_lanes()

    def continue_lanes(self) -> None:
        """Continue the lanes."""
        for suspender in self.suspenders:
            suspender.continue_lanes()

    def news(self) -> Iterable[str]:
        """Return new lines about the run."""
        return ()

    def ending_line(self) -> str:
        """Return a line about processes that delay the end."""
        return ending_line(self.session.snapshot())

    def end_now(self) -> None:
        """Kill the processes that delay the end."""

    def go_on_alone(self) -> bool:
        """Continue without the terminal, if possible."""
        return False


def follow(run: Run, stopped: Callable[[], bool], tell: Tell | None = None, say: Tell | None = None) -> None:
    """Wait for the end or stop of a run that has begun."""
    due_s, over = 0.0, False
    while not over:
        over = run.join(POLL_S) or stopped()
        if not over and time.monotonic() < due_s:
            continue
        due_s = time.monotonic() + REPORT_EVERY_S
        for line in run.news():
            if say is not None:
                say(line)
        if tell is not None and not over:
            tell(run.line())


def say(line: str) -> None:
    """Write a line to stderr."""
    show_progress("")
    click.echo(f"tfmon: {line}", err=True)


def collect_rarely() -> None:
    """Collect garbage rarely: the state is immutable."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)


def run_until_over(run: Run, *, quiet: bool = False) -> str:
    """Follow a run and close it; return the interruption.

    `quiet`: the output is a command's, which gets stdin unchanged. Thread: the main thread.
    """
    script_input.pass_on(single=quiet)
    tell = show_progress if not quiet and sys.stderr.isatty() else None
    with ended(run, quiet=quiet) as interrupted:
        if run.beside:
            say(run.beside)
        run.begin()
        follow(run, lambda: bool(interrupted.signal), tell, None if quiet else say)
    return interrupted.reason


class Interruption:
    """Whether an ending signal has arrived."""

    def __init__(self, react: Callable[[], None], hangup: Callable[[], bool]) -> None:
        """Call `react` at each signal. At SIGHUP, a thread calls `hangup`, which returns True to prevent that."""
        self.signal = ""
        self.count = 0
        self._react, self._hangup, self._hung_up = react, hangup, False
        self._came = threading.Event()

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Keep the first signal."""
        end = partial(self.take, signal.Signals(number).name)
        if number != HANGUP:
            end()
            return
        if self._hung_up:
            return
        self._hung_up = True
        # `hangup` takes locks, whose owner may be interrupted.
        start_thread("tfmon-hangup", lambda: self._hangup() or end(), lambda _reason: end())

    def take(self, name: str = "") -> None:
        """End the run."""
        self.signal = self.signal or name
        self.count += 1
        self._came.set()
        self._react()

    def wait(self, timeout_s: float) -> bool:
        """Wait; return whether the run must end."""
        return self._came.wait(timeout_s)

    @property
    def reason(self) -> str:
        """The reason of an interruption, or ""."""
        return f"interrupted by {self.signal}" if self.signal else ""


@contextlib.contextmanager
def ended(
    run: Run,
    leave: Callable[[Interruption], None] | None = None,
    hangup: Callable[[], bool] | None = None,
    *,
    quiet: bool = False,
) -> Iterator[Interruption]:
    """Catch the signals that would end the program, and close a run at the end.

    A second signal kills the processes that delay the end. `leave` closes the screen and the run. `hangup`, called
    at SIGHUP, returns whether the program continues. Thread: the main thread.
    """

    def react() -> None:
        if interrupted.count > 1:
            run.end_now()
        elif leave is not None:
            leave(interrupted)

    interrupted = Interruption(react, hangup or run.go_on_alone)
    before = {number: signal.signal(number, interrupted.handle) for number in SIGNALS}
    at_hangup = partial(interrupted.handle, HANGUP, None)
    with contextlib.ExitStack() as undo, ThreadPoolExecutor(1) as closing, closed_terminal(at_hangup):
        run.beside = undo.enter_context(beside()) if run.disturbs else ""
        for number, handler in before.items():
            undo.callback(signal.signal, number, handler)
        if leave is None:
            undo.callback(suspend_with(run.suspend_lanes, run.continue_lanes))
        try:
            yield interrupted
        finally:
            closed = closing.submit(run.close, interrupted.reason if leave is None else "")
            while not wait([closed], POLL_S).done:
                if leave is None and (ending := run.ending_line()):
                    show_progress(f"{ending}; Ctrl+C again ends it now")
            if not quiet:
                show_progress("")
            closed.result()


@contextlib.contextmanager
def closed_terminal(call: Callable[[], object]) -> Iterator[None]:
    """Call a function if the terminal is closed. Only its session's leader gets SIGHUP."""
    over, poll = threading.Event(), select.poll()
    for fd in (0, 1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISCHR(os.fstat(fd).st_mode):
                poll.register(fd, 0)

    def watch() -> None:
        while not over.is_set() and not (events := poll.poll(1_000 * TERMINAL_S)):
            pass
        if not over.is_set() and any(event & select.POLLHUP for _, event in events):
            call()

    start_thread("tfmon-terminal", watch, lambda _reason: None)
    try:
        yield
    finally:
        over.set()


def show_progress(text: str) -> None:
    """Replace the previous line on a terminal."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}"[:160])
        sys.stderr.flush()


@contextlib.contextmanager
def connecting(lanes: Sequence[str]) -> Iterator[None]:
    """Display that tfmon connects to other machines."""
    names = (lane.partition(",")[0].rpartition("/")[0].strip() for lane in lanes)
    hosts = list(dict.fromkeys(filter(None, names)))
    try:
        if hosts:
            show_progress(clean(f"connecting to {' and '.join(hosts)}…"))
        yield
    finally:
        if hosts:
            show_progress("")


@contextlib.contextmanager
def teller(progress: bool | Tell) -> Iterator[Tell | None]:
    """Return the function that displays the progress."""
    if progress is False:
        yield None
    elif callable(progress):
        yield progress
    elif (display := notebook_display()) is not None:
        handle = display({"text/plain": "the race begins …"}, raw=True, display_id=True)
        try:
            yield lambda text: handle.update({"text/plain": text}, raw=True)
        finally:
            handle.update({"text/plain": ""}, raw=True)
    else:
        try:
            yield show_progress if sys.stderr is not None and sys.stderr.isatty() else None
        finally:
            show_progress("")


def notebook_display() -> Any:  # noqa: ANN401 - IPython need not be there
    """Return IPython's display in a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None or getattr(shell, "kernel", None) is None:
        return None
    import IPython.display

    return IPython.display.display


def tell_changes() -> Tell:
    """Return the function that displays or writes changes."""
    last = [""]

    def tell(line: str) -> None:
        if sys.stderr.isatty():
            show_progress(line)
            return
        change = line.partition("): ")[2]
        if line and change != last[0]:
            last[0] = change
            click.echo(f"tfmon: {line}", err=True)

    return tell


def state_folder() -> Path:
    """Return the folder for persistent data."""
    from platformdirs import user_state_path

    folder = os.environ.get(FOLDER_VARIABLE)
    return Path(folder) if folder else user_state_path("tfmon", appauthor=False)


@contextlib.contextmanager
def alone(wait: bool, tell: Tell | None) -> Iterator[None]:
    """Wait for the end of another race of Python, or raise TfmonError."""
    since_s, reported_s, looks = time.monotonic(), -REPORT_EVERY_S, 0
    with contextlib.ExitStack() as entered:
        while other := _enter(entered):
            looks += 1
            if not wait and looks > 1:  # a race on a terminal locks it for a moment
                raise TfmonError(f"another race is under way{other}", "wait=True waits until it is over")
            now_s = time.monotonic()
            if tell is not None and now_s >= reported_s + REPORT_EVERY_S:
                reported_s = now_s
                tell(f"another race is under way{other}; waiting for its end: {units.clock(now_s - since_s)}")
            time.sleep(LOOK_EVERY_S)
        yield


@contextlib.contextmanager
def beside() -> Iterator[str]:
    """Announce a race; return a text about another race."""
    with contextlib.ExitStack() as entered:
        with contextlib.ExitStack() as looked:
            other = _enter(looked)
        other = other or _enter(entered, "terminal.lock")
        warning = f"another race is under way{other}: the lanes of each disturb the figures of the other"
        yield warning if other else ""


def _enter(entered: contextlib.ExitStack, name: str = "race.lock") -> str:
    """Lock a file, or return a text about the owner of the lock."""
    if not _IN_THIS_PROCESS.acquire(blocking=False):
        return " in this process"
    with contextlib.ExitStack() as mine:
        mine.callback(_IN_THIS_PROCESS.release)
        with contextlib.suppress(OSError):  # without the file, other processes are not detected
            path = state_folder() / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            mine.callback(os.close, fd)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return f" (process {os.read(fd, 20).decode('ascii', 'replace')})"
            os.ftruncate(fd, 0)
            os.write(fd, str(os.getpid()).encode())
        entered.push(mine.pop_all())
    return ""
