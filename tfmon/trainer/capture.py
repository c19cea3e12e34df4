"""A profile of some training steps, written by TensorFlow's own profiler."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tfmon.model.knobs import KnobValue, Settings
from tfmon.model.readings import Missing
from tfmon.profile.trace import CALL, STEP


class CaptureError(Exception):
    """Why no profile was taken, in a user's words."""


class Capture:
    """One profile: start it, train steps with what `follow` returns, then stop it.

    The caller waits for the device before `start` and before `stop`, so that the work of the captured steps and
    no other is in it. Starting takes some 0.3 ms, stopping 5 to 60 ms; the first time on a GPU, its profiling
    library is loaded.

    Thread: the one that trains. A process can take one profile at a time.
    Source: `tf.profiler.experimental`.
    """

    def __init__(self, folder: Path) -> None:
        self.steps = 0
        """Steps that were begun."""
        self._folder = folder
        self._before: set[tuple[Path, int]] = set()
        self._running = False

    def start(self) -> None:
        """Begin to record.

        Errors: CaptureError; nothing is recorded then.
        """
        import tensorflow as tf

        self._before = self._files()
        try:
            tf.profiler.experimental.start(str(self._folder))
        except tf.errors.AlreadyExistsError as error:
            raise CaptureError("another profile is being taken in this process") from error
        except (tf.errors.OpError, OSError, RuntimeError) as error:
            raise CaptureError(f"TensorFlow's profiler does not start: {_words(error)}") from error
        self._running = True

    def step(self) -> AbstractContextManager[Any]:
        """Return the marker that the next step is trained in: from taking its batch to reading its result."""
        import tensorflow as tf

        marker: AbstractContextManager[Any] = tf.profiler.experimental.Trace(STEP, step_num=self.steps, _r=1)
        self.steps += 1
        return marker

    def follow(
        self, batches: Iterator[Any], step: Callable[..., Any]
    ) -> tuple[Generator[Any, None, None], Callable[..., Any]]:
        """Return the batches and the step with markers around each step and around its call.

        A step lasts until the next one's batch is asked for; close the generator after the last one.
        """
        import tensorflow as tf

        trace = tf.profiler.experimental.Trace

        def marked() -> Generator[Any, None, None]:
            while True:
                with self.step():
                    batch = next(batches, None)
                    if batch is None:
                        return
                    yield batch

        def call(*batch: Any) -> Any:  # noqa: ANN401
            with trace(CALL):
                return step(*batch)

        return marked(), call

    def stop(self) -> Path:
        """Write the profile, and return the path of its `.xplane.pb` file.

        Errors: CaptureError; the profiler is free again then.
        """
        import tensorflow as tf

        if not self._running:
            raise CaptureError("no profile is being taken")
        self._running = False
        try:
            tf.profiler.experimental.stop()
        except (tf.errors.OpError, OSError, RuntimeError) as error:
            raise CaptureError(f"TensorFlow could not write the profile: {_words(error)}") from error
        written = sorted(self._files() - self._before, key=lambda file: file[1])
        if not written:
            raise CaptureError(f"TensorFlow wrote no profile into {self._folder}")
        return written[-1][0]

    def abandon(self) -> None:
        """Stop without writing anything; harmless when nothing is being recorded."""
        import tensorflow as tf

        if self._running:
            self._running = False
            try:
                tf.profiler.experimental.stop(save=False)
            except tf.errors.UnavailableError:
                return

    def _files(self) -> set[tuple[Path, int]]:
        """Return the profiles in the folder, and when each was written."""
        found = self._folder.glob("plugins/profile/*/*.xplane.pb")
        return {(path, path.stat().st_mtime_ns) for path in found}


def _words(error: Exception) -> str:
    return str(getattr(error, "message", None) or error) or type(error).__name__


# ---------------- how a step's call splits into computing and all that is needed to get there, on the CPU


STEPS = 20
MOST_NS = 50_000_000
"""So many steps are profiled, or so many as fit into this time, but one at least."""
MOST_BYTES = 16 << 20
"""A larger trace is not read: it would take more than half a second of the lane's time."""
UNLIKE, MOST_TAKES = 1.5, 3
"""By which factor calls differ from those of the profile that another one is taken, up to so many."""
WINDOWS = 5
"""Steady windows in a row whose calls are compared with the profile's: the odd one may be disturbed."""
EVENT_BYTES = 40
"""What an event takes in a trace, about: 35 MB held 880,000 of them."""
MOST_EVENTS, LEAST_STEPS = 200_000, 4
"""A profile holds so many events at most, or so many steps at least: writing and reading it takes 2 s then."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a profile of a few steps said."""

    computing_share: float | None = None
    """Share of the calls' time in which an operation of the step ran, 0 to 1; None if the trace says none."""
    step_events: float = 0.0
    """Events that a step leaves in a trace."""
    call_ns: float = 0.0
    """What a call took in it; 0 if it does not tell."""
    takes: int = 1
    """So many profiles were taken under these settings."""


NOTHING = Found()


class Splits:
    """The splits of one lane by the settings they were found under.

    Thread: the one that trains.
    """

    def __init__(self, kind: str) -> None:
        self._on_cpu = kind == "cpu"
        self._found: dict[tuple[tuple[str, KnobValue], ...], Found] = {}

    def wanted(self, settings: Settings, calls_ns: Sequence[float] = ()) -> bool:
        """Return whether the CPU computes, and no profile was taken under these settings or calls differ from it.

        `calls_ns` is what a call took in each of the latest steady windows.
        """
        found = self._found.get(_key(settings))
        if found is None or not self._on_cpu:
            return self._on_cpu
        if len(calls_ns) < WINDOWS or not found.call_ns or found.takes >= MOST_TAKES:
            return False
        return not found.call_ns / UNLIKE <= statistics.median(calls_ns) <= found.call_ns * UNLIKE

    def of(self, settings: Settings) -> float | None:
        """Return the share of a call's time in which an operation ran, 0 to 1; None where it is not known."""
        return self._found.get(_key(settings), NOTHING).computing_share

    def note(self, settings: Settings, trace: Path | None, steps: int) -> None:
        """Take over what a profile of so many steps under these settings says; None if none could be taken."""
        before = self._found.get(_key(settings))
        found = NOTHING if trace is None else read(trace, steps)
        self._found[_key(settings)] = replace(found, takes=before.takes + 1) if before is not None else found

    def shorten(self, settings: Settings, steps: int) -> tuple[int, str]:
        """Return for how many of these steps a profile is to be taken, and why for fewer, in a user's words."""
        each = self._found.get(_key(settings), NOTHING).step_events
        fewer = max(LEAST_STEPS, int(MOST_EVENTS / each)) if each else steps
        if fewer >= steps:
            return steps, ""
        about = f"{float(f'{each:.2g}'):,.0f}"
        return fewer, f"Only {fewer} steps and not {steps}, for each leaves about {about} events in the trace."


def read(trace: Path, steps: int) -> Found:
    """Return what a profile of so many steps says.

    TensorFlow does not record operations that take less than some 3 µs, so these are no part of what computes.
    Whatever runs on the pipeline's own threads is none of the step's.
    """
    from tfmon.profile.breakdown import analyse
    from tfmon.profile.trace import PIPELINE, TraceError
    from tfmon.profile.xspace import read_space

    try:
        size = trace.stat().st_size
        if size > MOST_BYTES:
            return Found(step_events=size / EVENT_BYTES / steps)
        space = read_space(trace, lambda line, *_: not line.startswith(PIPELINE))
        call = analyse(space).call
    except (TraceError, OSError):
        return NOTHING
    each = space.events / steps
    if isinstance(call, Missing) or isinstance(call.compute_ns, Missing) or not call.total_ns:
        return Found(step_events=each)
    return Found(call.compute_ns / call.total_ns, each, call.total_ns)


def _key(settings: Settings) -> tuple[tuple[str, KnobValue], ...]:
    return tuple(sorted(settings.items()))
