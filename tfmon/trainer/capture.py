"""Profiles of training steps: requested ones, and short ones for the share of compute."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.knobs import KnobValue, Settings
from tfmon.model.readings import Missing
from tfmon.profile.trace import CALL, STEP

PROFILED_STEPS = 20
PROFILED_NS = 50_000_000
"""Maximum steps and time of a short profile."""
MOST_BYTES = 16 << 20
"""Maximum size of a profile. Reading a larger profile takes over half a second."""
UNLIKE, MOST_PROFILES = 1.5, 3
"""Change of the call duration that causes another profile, and maximum number of profiles."""
WINDOWS = 5
"""Steady windows that are compared with the profile."""
EVENT_BYTES = 40
"""Source: 35 MB with 880,000 events."""
MOST_EVENTS, LEAST_STEPS = 200_000, 4
"""Limits that make writing and reading take at most 2 s."""


class CaptureError(Exception):
    """No profile was taken. The text is for the user."""


class Capture:
    """A profile: call `start`, train inside of `step`, and call `stop`.

    The caller waits for the device before `start` and `stop`. Starting takes 0.3 ms, stopping 5 to 60 ms. A
    process can take one profile at a time.

    Thread: the training thread.
    """

    def __init__(self, folder: Path) -> None:
        self.steps = 0
        self._folder = folder
        self._before: set[tuple[Path, int]] = set()
        self._running = False

    def start(self) -> None:
        """Start to record. Raises CaptureError."""
        import tensorflow as tf

        self._before = self._files()
        try:
            tf.profiler.experimental.start(str(self._folder))
        except tf.errors.AlreadyExistsError as error:
            raise CaptureError("another profile is being taken in this process") from error
        except (tf.errors.OpError, OSError, RuntimeError) as error:
            raise CaptureError(f"TensorFlow's profiler does not start: {_message_of(error)}") from error
        self._running = True

    def step(self) -> AbstractContextManager[Any]:
        """Return the marker around the next step with input."""
        import tensorflow as tf

        marker: AbstractContextManager[Any] = tf.profiler.experimental.Trace(STEP, step_num=self.steps, _r=1)
        self.steps += 1
        return marker

    def call(self) -> AbstractContextManager[Any]:
        """Return the marker around the call of a step, after its input."""
        import tensorflow as tf

        marker: AbstractContextManager[Any] = tf.profiler.experimental.Trace(CALL)
        return marker

    def stop(self) -> Path:
        """Return the written `.xplane.pb` file. Raises CaptureError."""
        import tensorflow as tf

        if not self._running:
            raise CaptureError("no profile is being taken")
        self._running = False
        try:
            tf.profiler.experimental.stop()
        except (tf.errors.OpError, OSError, RuntimeError) as error:
            raise CaptureError(f"TensorFlow could not write the profile: {_message_of(error)}") from error
        written = sorted(self._files() - self._before, key=lambda file: file[1])
        if not written:
            raise CaptureError(f"TensorFlow wrote no profile into {self._folder}")
        return written[-1][0]

    def abandon(self) -> None:
        """Stop without writing anything."""
        import tensorflow as tf

        if self._running:
            self._running = False
            try:
                tf.profiler.experimental.stop(save=False)
            except tf.errors.UnavailableError:
                return

    def _files(self) -> set[tuple[Path, int]]:
        result = self._folder.glob("plugins/profile/*/*.xplane.pb")
        return {(path, path.stat().st_mtime_ns) for path in result}


def _message_of(error: Exception) -> str:
    return str(getattr(error, "message", None) or error) or type(error).__name__


@dataclass(frozen=True, slots=True)
class ShortProfile:
    """The result of a short profile."""

    computing_share: float | None = None
    """Share of the calls with an operation of the step, 0 to 1."""
    step_events: float = 0.0
    call_ns: float = 0.0
    """Duration of a call, or 0 if unknown."""
    taken: int = 1
    """Number of profiles under these settings."""


UNKNOWN = ShortProfile()


class ComputingShares:
    """The computing shares of calls, by settings. Thread: the training thread."""

    def __init__(self, device: str) -> None:
        self._on_cpu = device == "cpu"
        self._profiles: dict[tuple[tuple[str, KnobValue], ...], ShortProfile] = {}

    def needed(self, settings: Settings, calls_ns: Sequence[float] = ()) -> bool:
        """Return whether a profile is needed: on a CPU, if none exists or `calls_ns` differ."""
        result = self._profiles.get(_key(settings))
        if result is None or not self._on_cpu:
            return self._on_cpu
        if len(calls_ns) < WINDOWS or not result.call_ns or result.taken >= MOST_PROFILES:
            return False
        return not result.call_ns / UNLIKE <= sorted(calls_ns)[WINDOWS // 2] <= result.call_ns * UNLIKE

    def share(self, settings: Settings) -> float | None:
        """Return the computing share, if known."""
        return self._profiles.get(_key(settings), UNKNOWN).computing_share

    def record(self, settings: Settings, trace: Path | None, steps: int) -> None:
        """Record a profile, or `None` if it failed."""
        before = self._profiles.get(_key(settings))
        result = UNKNOWN if trace is None else read(trace, steps)
        self._profiles[_key(settings)] = replace(result, taken=before.taken + 1) if before is not None else result

    def shorten(self, settings: Settings, steps: int) -> tuple[int, str]:
        """Return the possible number of steps, and why it is smaller."""
        each = self._profiles.get(_key(settings), UNKNOWN).step_events
        fewer = max(LEAST_STEPS, int(MOST_EVENTS / each)) if each else steps
        if fewer >= steps:
            return steps, ""
        about = f"{float(f'{each:.2g}'):,.0f}"
        return fewer, f"Only {fewer} steps and not {steps}, for each leaves about {about} events in the trace."


def read(trace: Path, steps: int) -> ShortProfile:
    """Return the summary of a profile. TensorFlow does not record operations below 3 µs."""
    from tfmon.profile.breakdown import profile_of
    from tfmon.profile.trace import PIPELINE, TraceError, read_space

    try:
        size = trace.stat().st_size
        if size > MOST_BYTES:
            return ShortProfile(step_events=size / EVENT_BYTES / steps)
        space = read_space(trace, lambda line, *_: not line.startswith(PIPELINE))
        profile = profile_of(space)
    except (TraceError, OSError):
        return UNKNOWN
    call_ns = 0.0 if isinstance(profile.call, Missing) else profile.call.total_ns
    return ShortProfile(profile.computing_share, space.events / steps, call_ns)


def _key(settings: Settings) -> tuple[tuple[str, KnobValue], ...]:
    return tuple(sorted(settings.items()))
