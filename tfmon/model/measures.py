"""What is kept of a lane's windows and samples: sums, means, and points of its history."""

from __future__ import annotations

from dataclasses import dataclass, field

from tfmon.model import histogram
from tfmon.model.lane_events import Window
from tfmon.model.readings import Missing, Reading

_SUMS = (
    "steps", "examples", "span_ns", "input_ns", "call_ns", "sync_ns", "report_ns", "traced_steps", "traced_ns",
    "sampled", "sampled_input_ns", "sampled_call_ns", "sampled_tail_ns",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums over steady windows: those without a mark. What the sums are of, `events.Window` says."""

    windows: int = 0
    steps: int = 0
    examples: int = 0
    span_ns: int = 0
    input_ns: int = 0
    call_ns: int = 0
    sync_ns: int = 0
    report_ns: int = 0
    traced_steps: int = 0
    traced_ns: int = 0
    sampled: int = 0
    sampled_input_ns: int = 0
    sampled_copy_ns: int | None = None
    sampled_call_ns: int = 0
    sampled_tail_ns: int = 0
    histogram: dict[int, int] = field(default_factory=dict)

    def plus(self, window: Window) -> Tally:
        """Return the sums with one more window."""
        copied_ns = self.sampled_copy_ns
        if window.sampled_copy_ns is not None:
            copied_ns = (copied_ns or 0) + window.sampled_copy_ns
        return Tally(
            windows=self.windows + 1,
            sampled_copy_ns=copied_ns,
            histogram=histogram.add(self.histogram, window.histogram),
            **{name: getattr(self, name) + getattr(window, name) for name in _SUMS},
        )

    def minus(self, window: Window) -> Tally:
        """Return the sums without a window that is in them."""
        copied_ns = self.sampled_copy_ns
        if copied_ns is not None and window.sampled_copy_ns is not None:
            copied_ns -= window.sampled_copy_ns
        return Tally(
            windows=self.windows - 1,
            sampled_copy_ns=copied_ns,
            histogram=histogram.subtract(self.histogram, window.histogram),
            **{name: getattr(self, name) - getattr(window, name) for name in _SUMS},
        )

    @property
    def examples_per_s(self) -> float | None:
        """Examples over the wall time of the windows; None before the first, and where nobody told of examples."""
        return self.examples / self.span_ns * 1e9 if self.span_ns and (self.examples or not self.steps) else None

    @property
    def steps_per_s(self) -> float | None:
        """Steps over the wall time of the windows; None before the first."""
        return self.steps / self.span_ns * 1e9 if self.span_ns else None

    def step_ms(self, fraction: float) -> float | None:
        """Return a quantile of the time from step end to step end, in milliseconds, to within 0.55 %."""
        quantile = histogram.quantile_ns(self.histogram, fraction)
        return None if quantile is None else quantile / 1e6


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of samples taken at even intervals."""

    total: float = 0.0
    samples: int = 0

    def plus(self, reading: Reading) -> Mean:
        """Return the mean with one more sample; one without a value changes nothing."""
        return self if isinstance(reading, Missing) else Mean(self.total + reading, self.samples + 1)

    @property
    def value(self) -> float | None:
        """The mean, None before the first sample."""
        return self.total / self.samples if self.samples else None


@dataclass(frozen=True, slots=True)
class Point:
    """One window in the history of a lane's throughput."""

    at_ns: int
    """End of the window."""
    span_ns: int
    examples: int
    steps: int
    steady: bool
    in_turn: bool = False
    """True for a window of a slice: the rest before it was another lane's turn."""


@dataclass(frozen=True, slots=True)
class TurnSpeed:
    """What a lane did in the steady part of one slice."""

    turn: int
    """The round the slice belongs to."""
    at_ns: int
    examples: int
    span_ns: int

    @property
    def examples_per_s(self) -> float:
        """Examples over wall time."""
        return self.examples / self.span_ns * 1e9


@dataclass(frozen=True, slots=True)
class KnobMark:
    """A change of a knob, for the charts."""

    at_ns: int
    text: str
    """Such as "prefetch auto"."""
    gap_ns: int
