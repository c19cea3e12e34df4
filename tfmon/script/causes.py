"""What slows the script down, as hooks observed it: added up here, and told to the lane now and then.

Nothing here is called in every step. A hook that sees a cause calls `causes.saw` with the cause's id, which
`analysis.causes` lists with its sentence and what mends it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tfmon.model.lane_clock import lane_clock
from tfmon.model.script_events import MOST_CAUSES, CauseSeen
from tfmon.script.reporting import ScriptReporter

EVERY_NS, EVERY_SHARE = 1_000_000_000, 0.05
"""A cause is told again after a second, or later: after this share of the time since TensorFlow was loaded."""
STALE_SHARE = 0.25
"""One that has not changed is told again after this share of the time, so that its own share holds."""
MOST_TEXT = 200
"""Characters of a text that are told."""


@dataclass(slots=True)
class Observation:
    """What was seen of one cause at one place; whoever changes it sets `changed`."""

    cause: str
    place: str
    subject: str = ""
    what: str = ""
    count: int = 0
    cost_ns: int = 0
    figures: dict[str, float] = field(default_factory=dict)
    changed: bool = True
    next_ns: int = 0
    """When it may be told again."""
    told_ns: int = 0
    """The time that had passed when it was told."""


class Causes:
    """The causes that were seen in this process. Thread: any; a figure that two write at once may lose one."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Know none yet."""
        self._began_ns = lane_clock.now_ns()
        self.named_ns = 0
        """What all that was seen took."""
        self._seen: dict[tuple[str, str, str], Observation] = {}
        self._first_ns = 0
        """When the first step began; 0 before."""

    def training_begins(self, at_ns: int) -> None:
        """Record when the first step began: counts and times are told from then on."""
        if self._first_ns:
            return
        self._first_ns = at_ns
        for seen in self._seen.values():
            seen.count = seen.cost_ns = 0

    @property
    def unnamed_ns(self) -> int:
        """The time since TensorFlow was loaded, without pauses and without what causes took."""
        return self.passed_ns - self.named_ns

    @property
    def passed_ns(self) -> int:
        """The time since TensorFlow was loaded, without pauses and suspension."""
        return lane_clock.now_ns() - self._began_ns

    def saw(
        self, cause: str, place: str, *, subject: str = "", what: str = "", count: int = 1, cost_ns: int = 0
    ) -> Observation:
        """Add what was seen of a cause at the user's instruction `place`; return its sums."""
        seen = self._seen.get((cause, place, subject))
        if seen is None:
            seen = Observation(cause, place, subject)
            if len(self._seen) < MOST_CAUSES:
                self._seen[cause, place, subject] = seen
        seen.what = what or seen.what
        seen.count += count
        self.add(seen, cost_ns)
        return seen

    def add(self, seen: Observation, cost_ns: int) -> None:
        """Add to what a cause took."""
        seen.cost_ns += cost_ns
        self.named_ns += cost_ns
        seen.changed = True

    def news(self, *, all_of_them: bool = False) -> Iterable[CauseSeen]:
        """Return the causes that are due to be told."""
        now_ns = lane_clock.now_ns()
        passed_ns = now_ns - self._first_ns if self._first_ns else 0
        for seen in list(self._seen.values()):
            changed = seen.changed and now_ns >= seen.next_ns
            if not (changed or all_of_them or passed_ns > (1 + STALE_SHARE) * seen.told_ns):
                continue
            seen.changed, seen.told_ns = False, passed_ns
            seen.next_ns = now_ns + max(EVERY_NS, round(EVERY_SHARE * passed_ns))
            yield CauseSeen(
                at_ns=lane_clock.stamp(now_ns),
                cause=seen.cause,
                place=seen.place[:MOST_TEXT],
                subject=seen.subject[:MOST_TEXT],
                what=seen.what[:MOST_TEXT],
                count=seen.count,
                cost_ns=seen.cost_ns,
                of_ns=passed_ns,
                figures=dict(seen.figures),
            )

    def tell(self, reporter: ScriptReporter, *, all_of_them: bool = False) -> None:
        """Send what is to be told now."""
        for event in self.news(all_of_them=all_of_them) if self._seen else ():
            reporter.send(event)


causes = Causes()
"""Those of this process."""
