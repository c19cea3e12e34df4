"""One child process and its pipes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

import tfmon
from tfmon.lanes.command import OWN_GROUP, Command, Guard, joining_environment, lock_file
from tfmon.lanes.output import Output
from tfmon.model.events import BadLine, Event, LaneEnded
from tfmon.model.lane_pipes import LanePipes
from tfmon.model.text import clean
from tfmon.model.wire import MAX_LINE_BYTES, Request, WireError, decode_event, encode

# ---------------- processes are started in one thread that keeps the priority the program was started with


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
YIELDING_NICE = 5
"""A lane gets three times the CPU of a thread with this that wants the same core."""


class ProcessLauncher:
    """Calls functions in its own thread.

    A child gets the nice value of the thread that starts it, and nobody but root may lower it again. So whoever
    yields to the lanes must not be the one to start them.

    Thread: any.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tfmon-starter")
        # The thread is made here, and not at the first start, when the caller may have yielded already.
        self._pool.submit(threading.get_native_id).result()

    def __call__(
        self, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Call a function and return what it returns.

        Errors: whatever it raises.
        """
        return self._pool.submit(function, *args, **kwargs).result()

    def close(self) -> None:
        """End the thread."""
        self._pool.shutdown(wait=True)


def yield_to_lanes() -> None:
    """Give the calling thread, and those it will make, a lower priority than the lanes have.

    Linux only, where a nice value belongs to a thread; elsewhere it belongs to the whole process, and the lanes
    would have it as well. Source: setpriority(2), "C library/kernel differences".
    """
    if sys.platform != "linux":
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, max(nice, min(19, nice + YIELDING_NICE)))


BOOTSTRAP = Path(tfmon.__file__).parent / "trainer" / "bootstrap.py"
CHUNK_BYTES = 65_536
AHEAD_NS = 1_000_000_000
"""All processes of a machine share one clock: an event that is further ahead of it cannot be."""
MOST_PROBLEMS = 8
"""Most that is told of the bad lines of one chunk that stand together; the rest is counted."""
LAST_CHUNKS = 32
"""Most that is read of a pipe after its child has ended; more than a pipe holds, so nothing is lost."""


class LaneProcess:
    """A child in its own process group, with its metric, knob and output pipes.

    Thread: `read_metrics`, `read_output` and `reap` are the pump's; the rest may be called from any thread.
    """

    def __init__(
        self,
        lane: str,
        python: Path,
        environment: dict[str, str | None],
        sink: Sink,
        script: Path = BOOTSTRAP,
        command: Command | None = None,
    ) -> None:
        metric_fd, child_metric_fd = os.pipe()
        child_knob_fd, knob_fd = os.pipe()
        os.set_blocking(metric_fd, False)
        os.set_blocking(knob_fd, False)
        merged = {**os.environ, **{key: value for key, value in environment.items() if value is not None}}
        for key in [key for key, value in environment.items() if value is None]:
            merged.pop(key, None)
        lock = None
        try:
            inherited = [child_metric_fd, child_knob_fd]
            if command is None:
                arguments = [str(python), str(script), str(child_metric_fd), str(child_knob_fd)]
            else:
                lock, token = lock_file()
                inherited.append(lock)
                arguments = list(command.words)
                pipes = LanePipes(child_metric_fd, child_knob_fd, lock, token, command.device)
                merged.update(joining_environment(merged, pipes, command.settings))
            self._popen = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=inherited,
                env=merged,
                # In the monitor's session: if the monitor dies while a child is frozen, the kernel then sends the
                # child SIGHUP and SIGCONT, as to every stopped process of a group that becomes orphaned (POSIX).
                **OWN_GROUP,
            )
        except OSError:
            os.close(metric_fd)
            os.close(knob_fd)
            raise
        finally:
            for fd in (child_metric_fd, child_knob_fd, lock):
                if fd is not None:
                    os.close(fd)
        assert self._popen.stdout is not None
        os.set_blocking(self._popen.stdout.fileno(), False)
        self.lane = lane
        self.pid = self._popen.pid
        self._guard = None if command is None else Guard(self.pid)
        self.metric_fd = metric_fd
        self.output_fd = self._popen.stdout.fileno()
        self._knob_fd = knob_fd
        self._sink = sink
        self._partial = b""
        self._skipping = False
        self._output = Output(lane)
        self._bad_lines: list[tuple[str, int]] = []
        self._frozen = False
        self._asked = False
        self._gate = threading.Lock()
        self._closed = False
        """True once descriptors and pid may belong to somebody else: nothing must be sent to them any more."""
        self.metrics_open = True
        """False once the child's end of the metric pipe is closed."""
        self.output_open = True
        self.ended = False
        """True once the child is reaped, its last words are read, and its end is told."""

    def send(self, request: Request) -> bool:
        """Send a request; return False when the child no longer listens."""
        with self._gate:
            if self._closed:
                return False
            try:
                os.write(self._knob_fd, encode(request))
            except OSError:
                return False
            return True

    def adopt(self, lane: str, sink: Sink) -> None:
        """Be that lane from now on."""
        self.lane = self._output.lane = lane
        self._sink = sink

    def mute(self) -> None:
        """Pass on nothing more of this child: another one is about to take its lane."""
        self._sink = _ignore

    def expect_end(self) -> None:
        """Note that the end of this child was asked for, so it is no failure."""
        self._asked = True

    def freeze(self) -> None:
        """Stop the child and its threads where they are: it uses no CPU, and its pipeline gets no further."""
        self._frozen = True
        self.kill(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen child go on as if no time had passed; without effect on one that is not frozen."""
        self._frozen = False
        self.kill(signal.SIGCONT)

    def suspend(self) -> None:
        """Stop the child for as long as the monitor stands still itself. Thread: also a signal's handler."""
        self._signal_group(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the child go on, unless it was frozen before. Thread: also a signal's handler."""
        if not self._frozen:
            self._signal_group(signal.SIGCONT)

    def signal_leader(self, number: signal.Signals) -> None:
        """Signal the child alone, unless it is reaped."""
        with self._gate, contextlib.suppress(ProcessLookupError, PermissionError):
            if not self._closed:
                os.kill(self.pid, number)

    def kill(self, number: signal.Signals) -> None:
        """Signal the child and everything it started in its process group, unless it is reaped."""
        with self._gate:
            self._signal_group(number)

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if not self._closed:
                os.killpg(self.pid, number)

    # ------------------------------------------------------------ the pump's side

    def read_metrics(self) -> bool:
        """Read one chunk from the metric pipe; return False when nothing lies in it or it has ended."""
        chunk = _read(self.metric_fd)
        if not chunk:
            self.metrics_open = self.metrics_open and chunk is None
            return False
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        if lines and self._skipping:
            self._skipping = False
            del lines[0]
        for line in lines:
            self._take(line)
        self._tell_bad_lines()
        if len(self._partial) > MAX_LINE_BYTES:
            if not self._skipping:
                self._bad(f"a line longer than {MAX_LINE_BYTES} bytes")
                self._tell_bad_lines()
            self._partial, self._skipping = b"", True
        return True

    def read_output(self) -> bool:
        """Read one chunk of what the child printed; return False when there is none or it has ended."""
        chunk = _read(self.output_fd)
        if not chunk:
            self.output_open = self.output_open and chunk is None
            return False
        self._output.take(chunk)
        return True

    def tell_output(self, *, last: bool = False) -> None:
        """Pass on what the child printed, a few times a second at most."""
        news = self._output.news(time.monotonic_ns(), last=last)
        if news is not None:
            self._sink(news)

    def poll(self) -> bool:
        """Return whether the child has ended."""
        return self._popen.poll() is not None

    def reap(self) -> None:
        """Take note of the child's end: its last words, its exit, and no leftovers in its group."""
        code = self._popen.wait()
        self.kill(signal.SIGKILL)
        if self._guard is not None:
            self._guard.dismiss()
        for read in (self.read_metrics, self.read_output):
            for _ in range(LAST_CHUNKS):
                if not read():
                    break
        if self._partial:
            self._bad("the last line was cut off")
            self._tell_bad_lines()
        with self._gate:
            self._closed = True
            os.close(self.metric_fd)
            os.close(self._knob_fd)
        assert self._popen.stdout is not None
        self._popen.stdout.close()
        self.tell_output(last=True)
        self._sink(
            LaneEnded(
                lane=self.lane,
                at_ns=time.monotonic_ns(),
                exit_code=code if code >= 0 else None,
                signal=_signal_name(-code) if code < 0 else None,
                requested=self._asked,
                output_tail=self._output.tail(),
            )
        )
        # Last: whoever waits for the end of all lanes reads next how they ended.
        self.ended = True

    @property
    def printed_bytes(self) -> int:
        """How much the child has written to stdout and stderr. Thread: any."""
        return self._output.printed_bytes

    def printed_since(self, before: int) -> tuple[str, ...]:
        """Return the last lines of what the child printed after so many bytes, safe to show. Thread: any."""
        return self._output.since(before)

    def _take(self, line: bytes) -> None:
        try:
            event = decode_event(line, self.lane)
        except WireError as error:
            self._bad(str(error))
            return
        if event.at_ns > time.monotonic_ns() + AHEAD_NS:
            self._bad(f"{type(event).__name__}.at_ns lies in the future")
            return
        self._tell_bad_lines()
        try:
            self._sink(event)
        except Exception as error:  # noqa: BLE001 - the thread serves all lanes, so no event of one may end it
            self._bad(f"tfmon could not take in a {type(event).__name__}: {type(error).__name__}: {error}")

    def _bad(self, problem: str) -> None:
        """Count a bad line with those before it, if it is like them: a child may write nothing else."""
        last, lines = self._bad_lines[-1] if self._bad_lines else ("", 0)
        if lines and (problem == last or len(self._bad_lines) >= MOST_PROBLEMS):
            self._bad_lines[-1] = (problem, lines + 1)
        else:
            self._bad_lines.append((problem, 1))

    def _tell_bad_lines(self) -> None:
        told, self._bad_lines = self._bad_lines, []
        for problem, lines in told:
            at_ns = time.monotonic_ns()
            self._sink(BadLine(lane=self.lane, at_ns=at_ns, problem=clean(problem, 200), lines=lines))


Sink = Callable[[Event], None]


def _ignore(_event: Event) -> None:
    pass


def _read(fd: int) -> bytes | None:
    """Return a chunk, b"" at the end of the pipe, or None when nothing lies in it."""
    try:
        return os.read(fd, CHUNK_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
