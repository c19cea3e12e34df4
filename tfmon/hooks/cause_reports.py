"""Adds up the causes of a slow script."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.lane_events import MOST_CAUSES, CauseSeen
from tfmon.system.lane_clock import lane_clock
from tfmon.trainer.channel import Reporter

EVERY_NS, EVERY_SHARE = 1_000_000_000, 0.05
"""Minimum interval between reports of a cause, in ns and as a share of the run."""
STALE_SHARE = 0.25
"""An unchanged cause is reported again after this share of the run."""
MOST_TEXT = 200


@dataclass(slots=True)
class Observation:
    """One cause at one line. Code that modifies an observation sets `changed`."""

    cause: str
    line: str
    subject: str = ""
    what: str = ""
    count: int = 0
    cost_ns: int = 0
    figures: dict[str, float] = field(default_factory=dict)
    changed: bool = True
    kept: bool = False
    """Whether costs before the first step count."""
    next_ns: int = 0
    reported_ns: int = 0


class Causes:
    """The causes of this process. Thread: any; concurrent writes may lose a count."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget all causes, and restart the clock."""
        self._began_ns = lane_clock.now_ns()
        self.named_ns = 0
        self._seen: dict[tuple[str, str, str], Observation] = {}
        self._first_ns = 0

    def training_begins(self, at_ns: int) -> None:
        """Record the first step."""
        if self._first_ns:
            return
        self._first_ns = at_ns
        for seen in self._seen.values():
            if not seen.kept:
                seen.count = seen.cost_ns = 0

    @property
    def unnamed_ns(self) -> int:
        """Time of the run that no cause explains, in ns."""
        return self.passed_ns - self.named_ns

    @property
    def passed_ns(self) -> int:
        """Time of the run without suspensions, in ns."""
        return lane_clock.now_ns() - self._began_ns

    def saw(
        self, cause: str, line: str, *, subject: str = "", what: str = "", count: int = 1, cost_ns: int = 0
    ) -> Observation:
        """Add to a cause's sums, and return them."""
        seen = self._seen.get((cause, line, subject))
        if seen is None:
            seen = Observation(cause, line, subject)
            if len(self._seen) < MOST_CAUSES:
                self._seen[cause, line, subject] = seen
        seen.what = what or seen.what
        seen.count += count
        self.add(seen, cost_ns)
        return seen

    def record(self, observed: Observation) -> Observation:
        """Record a cause whose time is not known yet, and return its sums."""
        seen = self.saw(observed.cause, observed.line, subject=observed.subject, what=observed.what, count=0)
        seen.figures |= observed.figures
        return seen

    def add(self, seen: Observation, cost_ns: int) -> None:
        """Add to a cause's time."""
        seen.cost_ns += cost_ns
        self.named_ns += cost_ns
        seen.changed = True

    def news(self, *, all_of_them: bool = False) -> Iterator[CauseSeen]:
        """Yield the causes that are due."""
        now_ns = lane_clock.now_ns()
        passed_ns = now_ns - self._first_ns if self._first_ns else 0
        for seen in list(self._seen.values()):
            changed = seen.changed and now_ns >= seen.next_ns
            if not (changed or all_of_them or passed_ns > (1 + STALE_SHARE) * seen.reported_ns):
                continue
            seen.changed, seen.reported_ns = False, passed_ns
            seen.next_ns = now_ns + max(EVERY_NS, round(EVERY_SHARE * passed_ns))
            yield CauseSeen(
                at_ns=lane_clock.stamp(now_ns),
                cause=seen.cause,
                place=seen.line[:MOST_TEXT],
                subject=seen.subject[:MOST_TEXT],
                what=seen.what[:MOST_TEXT],
                count=seen.count,
                cost_ns=seen.cost_ns,
                of_ns=passed_ns,
                figures=dict(seen.figures),
            )

    def report(self, reporter: Reporter, *, all_of_them: bool = False) -> None:
        """Send the causes that are due."""
        for event in self.news(all_of_them=all_of_them) if self._seen else ():
            reporter.send(event)


causes = Causes()
