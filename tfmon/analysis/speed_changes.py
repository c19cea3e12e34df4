"""Measures and explains the changes of speed that `model.speed` finds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from statistics import fmean

from tfmon import units
from tfmon.analysis.intervals import AT_ANY_TIME, trimmed_in_time
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import ALWAYS_VALID, Estimate
from tfmon.model.speed import Level, StepBlock

NEAR_NS = 3_000_000_000
MOST_OF = 0.5
"""Minimum share of a cause."""
CORES, CLOCK = 0.25, 0.93
"""Minimum cores of others, and maximum share of a GPU's clock."""
LEAST_RATIO = 1.04


@dataclass(frozen=True, slots=True)
class SpeedChange:
    """A change of step time that no request made."""

    at_ns: int
    step: int
    """The first step at the new speed, to within half a second."""
    ratio: Estimate
    cause: str
    """`input`, `step`, `cores` (used by others) or `waits`."""
    beside: tuple[str, ...]
    machine_known: bool

    @property
    def brief(self) -> str:
        """Text such as "2.9 times slower"."""
        return f"{self._texts[0]} times {'slower' if self.ratio.value >= 1 else 'faster'}"

    @property
    def text(self) -> str:
        """The change with its interval and first step."""
        return f"{self.brief} (95 % CI {self._texts[1]}) since step {units.count(self.step)}"

    @property
    def _texts(self) -> tuple[str, str]:
        more = self.ratio if self.ratio.value >= 1 else self.ratio.inverse
        factor, interval = units.ratio_in(more.value, more.low, more.high)
        return factor.removesuffix("×"), interval

    @property
    def why(self) -> str:
        """The cause and the simultaneous changes."""
        less = " less" if self.ratio.value < 1 else ""
        causes = {
            "input": f"it waits{less} for its input",
            "step": "the step itself, not the input",
            "waits": f"it waits{less}, and neither computes nor waits for a core",
            "cores": f"it waits{less} for cores that others have",
        }
        nothing = ("nothing else on the machine changed",) if self.machine_known and self.cause != "cores" else ()
        return "; ".join(filter(None, (causes.get(self.cause, ""), *(self.beside or nothing))))


def _levels_of(lane: LaneState) -> tuple[Level, ...]:
    watch = lane.speed
    return (*watch.levels, Level(watch.since_ns, watch.step, watch.blocks)) if watch.levels else ()


def changes_of(lane: LaneState) -> tuple[SpeedChange, ...]:
    """Return the changes since the settings last changed."""
    return tuple(_change(lane, earlier, later, later) for earlier, later in itertools.pairwise(_levels_of(lane)))


def slowdown_of(lane: LaneState) -> SpeedChange | None:
    """Return a lane's slowdown from its fastest speed."""
    levels = _levels_of(lane)
    fastest = min(range(len(levels)), key=lambda index: _per_step_ns(levels[index].blocks), default=0)
    if fastest >= len(levels) - 1:
        return None
    change = _change(lane, levels[fastest], levels[-1], levels[fastest + 1])
    return change if change.ratio.value >= LEAST_RATIO and change.ratio.low > 1 else None


def _change(lane: LaneState, earlier: Level, later: Level, began: Level) -> SpeedChange:
    differences: list[tuple[float, float]] = []
    for which in (0, 1):  # of means, and of medians
        logs = [[block.logs[which] for block in level.blocks] for level in (earlier, later)]
        first, second = (trimmed_in_time(log, few=True) for log in logs)
        assert first is not None and second is not None, "a level has LEAST_SIDE blocks"
        reach = math.hypot(first.reach(AT_ANY_TIME), second.reach(AT_ANY_TIME))
        differences.append((second.value - first.value, reach))
    log, reach = min(differences, key=lambda difference: difference[1])
    ratio = Estimate(math.exp(log), math.exp(log - reach), math.exp(log + reach), len(later.blocks), ALWAYS_VALID)
    cause, beside = _cause(lane, earlier, later), tuple(_beside(lane, earlier, later, began.since_ns))
    machine_known = _means("others_pct", earlier, later) is not None
    return SpeedChange(began.since_ns, began.step, ratio, cause, beside, machine_known)


def _per_step_ns(blocks: Sequence[StepBlock], name: str = "span_ns") -> float:
    total_ns: int = sum(getattr(block, name) for block in blocks)
    return total_ns / sum(block.steps for block in blocks)


def _means(name: str, *levels: Level) -> list[float] | None:
    values = [[block.readings[name] for block in level.blocks if name in block.readings] for level in levels]
    return [fmean(value) for value in values] if all(values) else None


def _cause(lane: LaneState, earlier: Level, later: Level) -> str:
    paces_ns = [_per_step_ns(level.blocks) for level in (earlier, later)]
    more_ns, log = paces_ns[1] - paces_ns[0], math.log(paces_ns[1] / paces_ns[0])
    if abs(log) < math.log(LEAST_RATIO):
        return ""  # its median changed, and its mean did not
    first, second = (_per_step_ns(level.blocks, "input_ns") for level in (earlier, later))
    observed = "input" not in lane.script.not_measured
    if observed and (second - first) / more_ns >= MOST_OF:
        return "input"
    cpu, waited = (_means(name, earlier, later) for name in ("cpu_pct", "waited_pct"))
    if lane.spec.kind != "cpu" or cpu is None or waited is None or not all(cpu):
        return "step" if observed else ""

    def more(percents: Sequence[float]) -> float:
        return (percents[1] * paces_ns[1] - percents[0] * paces_ns[0]) / 100

    if 1 + math.log(cpu[1] / cpu[0]) / log >= MOST_OF:
        return "step"
    waited_ns = more(waited) + more(_means("stolen_pct", earlier, later) or (0.0, 0.0))
    return "cores" if waited_ns / more_ns >= MOST_OF else "waits"


def _beside(lane: LaneState, earlier: Level, later: Level, at_ns: int) -> Iterator[str]:
    near = [text for noted_ns, text in lane.speed.notes if abs(noted_ns - at_ns) <= NEAR_NS]
    yield from (f"{text} just then" for text in dict.fromkeys(near[-2:]))
    slower = _per_step_ns(later.blocks) > _per_step_ns(earlier.blocks)
    for name, who in (("others_pct", "other programs take"), ("stolen_pct", "the hypervisor takes")):
        first, second = _means(name, earlier, later) or (0.0, 0.0)
        cores = (second - first) / 100 if slower else (first - second) / 100
        if cores >= CORES:
            yield f"{who} {cores:.1f} cores {'more' if slower else 'less'}"
    first, second = _means("clock_mhz", earlier, later) or (0.0, 0.0)
    if first and second and second < CLOCK * first:
        yield f"the GPU's clock fell from {first:.0f} to {second:.0f} MHz"
