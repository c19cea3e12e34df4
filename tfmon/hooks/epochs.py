"""Measures epochs and the time between them."""

from __future__ import annotations

from collections.abc import Callable

from tfmon.hooks.cause_reports import Observation, causes
from tfmon.model.lane_events import SHORT, SPARE

FIRST, LATER, BATCH = "epoch_first", "epoch_later", "epoch_batch"
VALIDATION, CALLBACK, PAUSE, SMALL = "epoch_validation", "epoch_callback", "epoch_pause", "steps_small"
SLOW_FIRST = 1.5
SLOW_LATER, LEAST_LATER, LEAST_STEPS = 1.3, 3, 8
"""Factor, number of epochs and number of steps."""
LEAST_WAIT, OUTGROWS = 0.5, 1.5
"""Minimum share of the slowdown, and relative growth, of the input wait."""
ALL_EPOCHS, LONG_NS = 20, 200_000_000
"""After so many epochs, only long waits are read. Reading takes 0.1 ms."""
SMALL_NS = 10_000_000
SHORT_NS = 200_000_000
"""A shorter wait may be the start of an iterator."""
_lines: set[str] = set()


def _s(time_ns: float) -> str:
    return f"{time_ns / 1e9:.1f} s"


class Epochs:
    """The epochs of a training. Thread: the training thread. Units: ns without other causes."""

    def __init__(self, line: str = "") -> None:
        self.line, self._again = line, line in _lines
        if line:
            _lines.add(line)
        self._began_ns = self._first_step_ns = self._first_wait_ns = self._waited_ns = 0
        self._ended_ns = self._own_ns = 0
        self._first: tuple[float, float] | None = None
        self._first_took_ns = self._first_batch_ns = self._first_steps = 0
        self._later = self._later_ns = self._later_steps = self._later_waits_ns = 0
        self._later_firsts_ns = self._later_batches_ns = 0
        self._least = 0.0
        self._reported_ns: dict[str, int] = {}

    @property
    def _now_ns(self) -> int:
        return causes.unnamed_ns + self._own_ns

    @property
    def _read(self) -> bool:
        return self._later < ALL_EPOCHS or self._later_ns > LONG_NS * self._later

    def begins(self, waited_ns: Callable[[], int], ago_ns: int = 0) -> None:
        """Record the start of an epoch."""
        self._began_ns, self._first_step_ns = self._now_ns - ago_ns, 0
        if self._read:
            self._waited_ns = waited_ns()
        if self._ended_ns:
            self._report(PAUSE, self._began_ns - self._ended_ns, count=1)
            self._ended_ns = 0

    def first_step(self, waited_ns: Callable[[], int]) -> None:
        """Record the end of the first step."""
        self._first_step_ns = max(1, self._now_ns - self._began_ns)
        if not self._read:
            return
        self._first_wait_ns = max(0, waited_ns() - self._waited_ns)
        if self._first is not None:
            self._report(BATCH, self._first_wait_ns, count=1)

    def ends(self, steps: int, waited_ns: Callable[[], int], called_ns: int | None = None) -> None:
        """Record the last step. `called_ns`: time of all calls of Keras but the first."""
        self._ended_ns = self._now_ns
        took_ns = self._ended_ns - self._began_ns
        if steps < LEAST_STEPS or not self._first_step_ns:
            return
        step_ns = max(0, took_ns - self._first_step_ns) / (steps - 1)
        if called_ns is not None and step_ns < SMALL_NS:
            outside_ns = took_ns - self._first_step_ns - called_ns
            self._report(SMALL, outside_ns, what=f"{step_ns / 1e6:.2f} ms a step", count=steps - 1)
        if not self._read:
            return
        waits_ns = max(0, waited_ns() - self._waited_ns)
        wait_ns = (waits_ns - self._first_wait_ns) / (steps - 1)
        if self._first is None:
            self._first = step_ns, wait_ns
            self._first_took_ns, self._first_steps, self._first_batch_ns = took_ns, steps, self._first_wait_ns
            return
        self._later += 1
        self._later_ns += took_ns
        self._later_steps += steps
        self._later_waits_ns += waits_ns
        self._later_firsts_ns += self._first_step_ns
        self._later_batches_ns += self._first_wait_ns
        self._least = min(self._least or step_ns, step_ns)
        self._compare()

    def _compare(self) -> None:
        assert self._first is not None
        first_ns, first_wait_ns = self._first
        each_ns, wait_ns = self._later_ns / self._later_steps, self._later_waits_ns / self._later_steps
        more_ns = self._first_took_ns - each_ns * self._first_steps
        if self._first_took_ns > SLOW_FIRST * each_ns * self._first_steps and not self._again:
            # The account already contains the time of traces.
            parts = {
                "first batch": self._first_batch_ns - wait_ns,
                "other batches": (first_wait_ns - wait_ns) * (self._first_steps - 1),
            }
            parts = {name: min(part_ns, more_ns) for name, part_ns in parts.items() if part_ns > 0.1 * more_ns}
            parts_text = ", ".join(f"{_s(part_ns)} more for its {name}" for name, part_ns in parts.items())
            self._report(FIRST, round(min(more_ns, sum(parts.values()))), what=parts_text, total=True)
        batches = self._report(BATCH, 0)
        spare_ns = self._later_ns - self._later_waits_ns
        batches.figures = {
            SHORT: float(self._later_batches_ns < SHORT_NS * self._later),
            SPARE: float(spare_ns > self._later_batches_ns),
        }
        steps = self._later_steps - self._later
        each_ns = (self._later_ns - self._later_firsts_ns) / steps
        wait_ns = (self._later_waits_ns - self._later_batches_ns) / steps
        slower_ns = each_ns - first_ns
        if self._later >= LEAST_LATER and self._least > SLOW_LATER * first_ns:
            waits = (wait_ns - first_wait_ns) / slower_ns
            alike = wait_ns * (first_ns - first_wait_ns) < OUTGROWS * first_wait_ns * (each_ns - wait_ns)
            if waits >= LEAST_WAIT and not alike:
                what = f"{each_ns / first_ns:.1f} times as long, {100 * min(1.0, waits):.0f} % of it for input"
                self._report(LATER, round(slower_ns * steps), what=what, total=True)

    def _report(
        self, cause: str, cost_ns: int, *, what: str = "", count: int = 0, total: bool = False
    ) -> Observation:
        reported_ns = self._reported_ns.get(cause, 0) if total else 0
        self._reported_ns[cause] = cost_ns = max(0, cost_ns)
        self._own_ns += cost_ns - reported_ns
        count = count or int(total and not reported_ns)
        return causes.saw(cause, self.line, what=what, count=count, cost_ns=cost_ns - reported_ns)
