"""Measures and explains the changes of speed that `model.speed` finds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from tfmon import units
from tfmon.analysis.intervals import Looks, trimmed_in_time
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import ALWAYS_VALID, Estimate
from tfmon.model.speed import Level, StepBlock

NEAR_NS = 3_000_000_000
MOST_OF = 0.5
"""Minimum share of a cause."""
CORES, CLOCK = 0.25, 0.93
"""Reported cores of others, and share of a GPU's clock."""
LEAST_RATIO = 1.04
LOOKS = Looks(ALWAYS_VALID)


@dataclass(frozen=True, slots=True)
class SpeedChange:
    """A change of step time that no request made."""

    at_ns: int
    step: int
    """The first at the new speed, to within half a second."""
    ratio: Estimate
    """New step time over old."""
    cause: str
    """`input`, `step`, `cores` (used by others) or `waits`."""
    beside: tuple[str, ...]
    machine_known: bool

    @property
    def brief(self) -> str:
        """Such as "2.9 times slower"."""
        return f"{self._factor[0]} times {'slower' if self.ratio.value >= 1 else 'faster'}"

    @property
    def text(self) -> str:
        """Such as "2.9 times slower (95 % CI 2.7 to 3.1) since step 401"."""
        interval = f" (95 % CI {self._factor[1]})" if self.ratio.low > 0 else ""
        return f"{self.brief}{interval} since step {units.count(self.step)}"

    @property
    def _factor(self) -> tuple[str, str]:
        value, low, high = self.ratio.value, self.ratio.low, self.ratio.high
        if low <= 0:
            return f"{max(value, 1 / value):.2g}", ""
        written = units.ratio_in(value, low, high) if value >= 1 else units.ratio_in(1 / value, 1 / high, 1 / low)
        return written[0].removesuffix("×"), written[1]

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
    if not watch.levels:
        return ()
    levels = (*watch.levels, Level(watch.since_ns, watch.step, watch.blocks))
    return tuple(level for level in levels if level.blocks)


def changes_of(lane: LaneState) -> tuple[SpeedChange, ...]:
    """Return the changes since the settings last changed."""
    pairs = itertools.pairwise(_levels_of(lane))
    return tuple(_change(lane, before, after, after) for before, after in pairs)


def slowdown_of(lane: LaneState) -> SpeedChange | None:
    """Return a lane's slowdown from its fastest speed."""
    levels = _levels_of(lane)
    if len(levels) < 2:
        return None
    place = min(range(len(levels)), key=lambda place: _pace_ns(levels[place].blocks))
    if place == len(levels) - 1:
        return None
    change = _change(lane, levels[place], levels[-1], levels[place + 1])
    unsure = 0 < change.ratio.low <= 1  # 0 if the interval is not known
    return change if change.ratio.value >= LEAST_RATIO and not unsure else None


def _pace_ns(blocks: Sequence[StepBlock]) -> float:
    return sum(block.span_ns for block in blocks) / sum(block.steps for block in blocks)


def _change(lane: LaneState, before: Level, after: Level, began: Level) -> SpeedChange:
    log, reach = min((_difference(before.blocks, after.blocks, which) for which in (0, 1)), key=lambda one: one[1])
    ends = (math.exp(log - reach), math.exp(log + reach)) if reach < math.inf else (0.0, math.inf)
    ratio = Estimate(math.exp(log), *ends, len(after.blocks), ALWAYS_VALID)
    beside = tuple(_beside(lane, before.blocks, after.blocks, began.since_ns))
    read = _mean(before.blocks, "others_pct") is not None and _mean(after.blocks, "others_pct") is not None
    cause = _cause(lane, before.blocks, after.blocks)
    return SpeedChange(began.since_ns, began.step, ratio, cause, beside, read)


def _difference(before: Sequence[StepBlock], after: Sequence[StepBlock], which: int) -> tuple[float, float]:
    first, second = (
        trimmed_in_time([block.logs[which] for block in blocks], few=True) for blocks in (before, after)
    )
    if first is None or second is None:
        return math.log(_pace_ns(after) / _pace_ns(before)), math.inf
    return second.value - first.value, math.hypot(first.reach(LOOKS), second.reach(LOOKS))


def _mean(blocks: Sequence[StepBlock], name: str) -> float | None:
    values = [block.readings[name] for block in blocks if name in block.readings]
    return fmean(values) if values else None


def _per_step_ns(blocks: Sequence[StepBlock], name: str) -> float | None:
    share = _mean(blocks, name)
    return None if share is None else share / 100 * _pace_ns(blocks)


def _cause(lane: LaneState, before: Sequence[StepBlock], after: Sequence[StepBlock]) -> str:
    more_ns, log = _pace_ns(after) - _pace_ns(before), math.log(_pace_ns(after) / _pace_ns(before))
    if abs(log) < math.log(LEAST_RATIO):
        return ""  # its median changed, and its mean did not
    inputs = [
        sum(block.input_ns for block in blocks) / sum(block.steps for block in blocks)
        for blocks in (before, after)
    ]
    if "input" not in lane.script.not_measured and (inputs[1] - inputs[0]) / more_ns >= MOST_OF:
        return "input"
    cpu = [_per_step_ns(blocks, "cpu_pct") for blocks in (before, after)]
    waits = [_per_step_ns(blocks, "waited_pct") for blocks in (before, after)]
    stolen = [_per_step_ns(blocks, "stolen_pct") or 0.0 for blocks in (before, after)]
    if lane.spec.kind != "cpu" or not (cpu[0] and cpu[1]) or waits[0] is None or waits[1] is None:
        return "step" if "input" not in lane.script.not_measured else ""
    if math.log(cpu[1] / cpu[0]) / log >= MOST_OF:
        return "step"
    return "cores" if (waits[1] - waits[0] + stolen[1] - stolen[0]) / more_ns >= MOST_OF else "waits"


def _beside(lane: LaneState, before: Sequence[StepBlock], after: Sequence[StepBlock], at_ns: int) -> Iterator[str]:
    near = [text for noted_ns, text in lane.speed.notes if abs(noted_ns - at_ns) <= NEAR_NS]
    yield from (f"{text} just then" for text in dict.fromkeys(near[-2:]))
    means = {name: (_mean(before, name), _mean(after, name)) for name in ("others_pct", "stolen_pct", "clock_mhz")}
    for name, who in (("others_pct", "other programs take"), ("stolen_pct", "the hypervisor takes")):
        first, second = means[name]
        if first is None or second is None:
            continue
        cores, slower = (second - first) / 100, _pace_ns(after) > _pace_ns(before)
        if (cores if slower else -cores) >= CORES:
            yield f"{who} {abs(cores):.1f} cores {'more' if slower else 'less'}"
    first, second = means["clock_mhz"]
    if first and second and second < CLOCK * first:
        yield f"the GPU's clock fell from {first:.0f} to {second:.0f} MHz"
