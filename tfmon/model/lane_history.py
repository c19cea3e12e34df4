"""What the charts show of a lane's last half hour: a few figures for each second, and for each five seconds.

Windows and samples are added up as they come, so that memory is bounded and a replay fills the same history. A
finished stretch never changes. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tfmon.model.lane_events import Window
from tfmon.model.readings import Missing, Reading
from tfmon.model.records import replace
from tfmon.model.window_sums import Mean, WindowSums

FINE_NS = 1_000_000_000
COARSE_NS = 5 * FINE_NS
MOST_FINE = 301
"""Five minutes, and the second that is cut at their beginning."""
MOST_COARSE = 361
"""Thirty minutes, likewise."""
NEVER_NS = 1 - 2**63
"""Before any event, also of a machine whose clock began later than this one's."""
NO_SAMPLE = Missing("not sampled")
MOST_POINTS = 256
"""Losses of a lane that are kept."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """What the windows and samples of one second came to, or of five."""

    start_ns: int
    length_ns: int
    since_ns: int = 0
    """Beginning of the first window that ended in the stretch; it may lie before `start_ns`."""
    until_ns: int = 0
    """End of the last one; 0 where no window ended."""
    in_slice: bool = False
    """True if the first of them lies in a slice: another lane trained in the gap before it."""
    examples_per_s: float | None = None
    """Over the wall time of the windows, the discarded ones included; None where no examples are reported."""
    p50_ms: float | None = None
    """Quantiles of the time from step end to step end, to within 0.55 %."""
    p95_ms: float | None = None
    input_pct: float | None = None
    """Waiting for the next batch, in percent of the windows' time."""
    loss: float | None = None
    """Of the last window that has one."""
    cpu_pct: float | None = None
    """Means of the samples, as for the fields of `LaneState`; None without one."""
    private_bytes: float | None = None
    gpu_busy_pct: float | None = None


@dataclass(frozen=True, slots=True)
class _Sums:
    """The stretch that is under way."""

    start_ns: int = NEVER_NS
    since_ns: int = 0
    until_ns: int = 0
    in_slice: bool = False
    windows: WindowSums = field(default_factory=WindowSums)
    loss: float | None = None
    cpu_pct: Mean = field(default_factory=Mean)
    private_bytes: Mean = field(default_factory=Mean)
    gpu_busy_pct: Mean = field(default_factory=Mean)

    def with_window(self, window: Window) -> _Sums:
        first = not self.until_ns
        return replace(
            self,
            since_ns=window.at_ns - window.span_ns if first else self.since_ns,
            until_ns=window.at_ns,
            in_slice=window.round is not None if first else self.in_slice,
            windows=self.windows.plus(window),
            loss=self.loss if window.loss is None else window.loss,
        )

    def joined(self, later: _Sums) -> _Sums:
        first = not self.until_ns
        return _Sums(
            start_ns=self.start_ns,
            since_ns=later.since_ns if first else self.since_ns,
            until_ns=later.until_ns or self.until_ns,
            in_slice=later.in_slice if first else self.in_slice,
            windows=self.windows.plus(later.windows),
            loss=self.loss if later.loss is None else later.loss,
            cpu_pct=self.cpu_pct.joined(later.cpu_pct),
            private_bytes=self.private_bytes.joined(later.private_bytes),
            gpu_busy_pct=self.gpu_busy_pct.joined(later.gpu_busy_pct),
        )

    def stretch(self, length_ns: int) -> Stretch:
        sums = self.windows
        return Stretch(
            start_ns=self.start_ns,
            length_ns=length_ns,
            since_ns=self.since_ns,
            until_ns=self.until_ns,
            in_slice=self.in_slice,
            examples_per_s=sums.examples_per_s,
            p50_ms=sums.step_ms(0.5),
            p95_ms=sums.step_ms(0.95),
            input_pct=100 * sums.input_ns / sums.span_ns if sums.span_ns else None,
            loss=self.loss,
            cpu_pct=self.cpu_pct.value,
            private_bytes=self.private_bytes.value,
            gpu_busy_pct=self.gpu_busy_pct.value,
        )


@dataclass(frozen=True, slots=True)
class History:
    """The last half hour of a lane; stretches without any event are not there."""

    fine: tuple[Stretch, ...] = ()
    """Finished seconds, oldest first."""
    coarse: tuple[Stretch, ...] = ()
    """Finished stretches of five seconds, oldest first; the last one may reach as far as `fine`."""
    second: _Sums = field(default_factory=_Sums)
    five: _Sums = field(default_factory=_Sums)
    """The finished seconds of the five seconds that are under way."""
    kept: bool = True
    """False where nobody looks at the charts: nothing is added up."""

    def with_window(self, window: Window) -> History:
        """Return the history with one more window; it counts where it ends."""
        if not self.kept:
            return self
        now = self._at(window.at_ns)
        return replace(now, second=now.second.with_window(window))

    def with_sample(
        self,
        at_ns: int,
        cpu_pct: Reading = NO_SAMPLE,
        private_bytes: Reading = NO_SAMPLE,
        gpu_busy_pct: Reading = NO_SAMPLE,
    ) -> History:
        """Return the history with a sample of the lane's processes or of its GPU."""
        if not self.kept:
            return self
        now = self._at(at_ns)
        second = replace(
            now.second,
            cpu_pct=now.second.cpu_pct.plus(cpu_pct),
            private_bytes=now.second.private_bytes.plus(private_bytes),
            gpu_busy_pct=now.second.gpu_busy_pct.plus(gpu_busy_pct),
        )
        return replace(now, second=second)

    def _at(self, at_ns: int) -> History:
        """Return the history with the second of that moment under way; what comes late counts for the latest."""
        start_ns = at_ns // FINE_NS * FINE_NS
        if start_ns <= self.second.start_ns:
            return self
        new = _Sums(start_ns)
        if self.second.start_ns == NEVER_NS:
            return replace(self, second=new)
        fine = (*self.fine[1 - MOST_FINE :], self.second.stretch(FINE_NS))
        coarse, five = self.coarse, self.five
        since_ns = self.second.start_ns // COARSE_NS * COARSE_NS
        if since_ns > five.start_ns:
            if five.start_ns > NEVER_NS:
                coarse = (*coarse[1 - MOST_COARSE :], five.stretch(COARSE_NS))
            five = replace(self.second, start_ns=since_ns)
        else:
            five = five.joined(self.second)
        return History(fine, coarse, new, five)


@dataclass(frozen=True, slots=True)
class LossCurve:
    """Losses that windows reported; when there are too many, every second one is dropped, and so on from then."""

    points: tuple[tuple[int, float], ...] = ()
    """Steps and losses, in the order of the steps."""
    every: int = 1
    """One of so many losses is kept."""
    seen: int = 0
    first: float | None = None
    last: float | None = None

    def plus(self, step: int, loss: float | None) -> LossCurve:
        """Return the curve with the loss of a step; the same one for None."""
        if loss is None:
            return self
        first, points, every = loss if self.first is None else self.first, self.points, self.every
        if not self.seen % every:
            points = (*points, (step, loss))
        if len(points) >= MOST_POINTS:
            points, every = points[::2], 2 * every
        return LossCurve(points, every, self.seen + 1, first, loss)
