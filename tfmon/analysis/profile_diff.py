"""Two profiles side by side: which operations, and which waiting, explain that a step takes longer. Pure.

Each profile splits the whole time of a step into parts that do not overlap, so the differences of the parts add up
to the difference of the step time. Several profiles of each side say how far each difference can be relied on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Literal, TypeAlias

from tfmon import units
from tfmon.analysis.intervals import ERROR, student
from tfmon.model.lane_state import LaneState
from tfmon.model.profile import Part, Profile

Grouping: TypeAlias = Literal["operation", "kind", "layer"]
GROUPINGS: tuple[Grouping, ...] = ("operation", "kind", "layer")
DASH = "–"
MOST_NAMED, ENOUGH = 5, 0.8
"""The sentence names at most so many parts, and no more than explain this share of the difference."""
_CALLS = re.compile(r"^(?:(?:Stateful)?PartitionedCall(?:_\d+)?/)+")
"""A function that a function calls; what is called belongs to the same step."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A time of the second side less that of the first, in ns, with its 95 % interval."""

    value: float
    low: float | None
    """None where a side has a single profile."""
    high: float | None

    @property
    def certain(self) -> bool:
        """Whether there is a difference: the interval excludes none, or there is no interval to ask."""
        return self.value != 0 if self.low is None or self.high is None else self.low > 0 or self.high < 0

    @property
    def text(self) -> str:
        """The difference in words: +1.20 ms."""
        return signed(self.value)

    @property
    def reach(self) -> str:
        """Half its interval in words: ±0.10 ms; empty where there is none."""
        return "" if self.high is None else f"±{time_text(self.high - self.value)}"


@dataclass(frozen=True, slots=True)
class Side:
    """What one side has of a part: means over its profiles, a step."""

    step_ns: float
    self_ns: float
    runs: float
    devices: tuple[str, ...]

    @property
    def parallelism(self) -> float | None:
        """How many of it and of what ran beside it ran at once; None where nothing ran."""
        return self.self_ns / self.step_ns if self.self_ns and self.step_ns else None


@dataclass(frozen=True, slots=True)
class DiffRow:
    """A part of the step time on both sides."""

    name: str
    kind: str
    """The type of the operation; empty for time in which none ran, and for a group of several types."""
    first: Side | None
    """None where the part is in no profile of that side."""
    second: Side | None
    change: Difference
    share: float | None
    """Of the difference of the step time; None where that is not certain."""

    def label(self, width: int) -> str:
        """Return its name, with both ends where it is cut in the middle: both are informative."""
        name = self.name.lstrip("_")
        if self.kind and self.name != self.kind:
            scope, _, last = name.rpartition("/")  # the last part tells no more than the type, but for a number
            name = f"{self.kind.lstrip('_')} {name if last[-1:].isdigit() else scope or name}"
        tail = (width - 1) // 2
        return name if len(name) <= width else f"{name[: width - 1 - tail]}…{name[-tail:]}"

    @property
    def share_text(self) -> str:
        """Its share in words; empty where it has none."""
        return "" if self.share is None else share_text(self.share)

    def both(self, write: Callable[[Side], str]) -> str:
        """Return what is written of both sides; once where it is the same."""
        values = [DASH if side is None else write(side) for side in (self.first, self.second)]
        return values[0] if values[0] == values[1] else " | ".join(values)

    @property
    def times(self) -> tuple[str, str]:
        """Its time on both sides, in words."""
        first, second = (DASH if side is None else time_text(side.step_ns) for side in (self.first, self.second))
        return first, second

    @property
    def runs(self) -> str:
        """How often it runs a step; empty where no operation ran."""
        return self.both(lambda side: f"{side.runs:.3g}" if side.runs else "")

    @property
    def devices(self) -> str:
        """Where it ran."""
        return self.both(lambda side: "+".join(side.devices))


@dataclass(frozen=True, slots=True)
class Explained:
    """How much of the difference the largest parts explain."""

    names: tuple[str, ...]
    share: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class ProfileDiff:
    """Profiles of two sides, compared."""

    profiles: tuple[int, int]
    first_ns: float
    """The step time, as a mean over the profiles."""
    second_ns: float
    change: Difference
    rows: tuple[DiffRow, ...]
    """What explains most of the difference first; their changes add up to that of the step time."""
    explained: Explained | None
    """None where the step times are not certain to differ."""
    incomplete: tuple[bool, ...]
    """Whether a side's smaller operations are not told apart, so that one that it lacks may be among them."""


@dataclass(frozen=True, slots=True)
class ProfiledSide:
    """What is compared: a lane, or profiles that were kept."""

    id: str
    title: str
    profiles: tuple[Profile, ...]
    """Only those that tell all parts of a step."""
    step_ns: float | None = None
    """What a step takes by the clocks of the lane, without the profiler; None where not measured."""
    examples: float | None = None
    """Of a step; None where not known."""


def side_of(lane: LaneState) -> ProfiledSide:
    """Return a lane with its profiles under the settings in effect."""
    steady = lane.steady
    step_ns = steady.span_ns / steady.steps if steady.steps else None
    examples = steady.examples / steady.steps if steady.steps and steady.examples else None
    profiles = tuple(profile for profile in lane.step.profiles if profile.parts)
    return ProfiledSide(lane.spec.id or lane.spec.name, lane.title, profiles, step_ns, examples)


def profiled_pair(lanes: Sequence[LaneState]) -> tuple[ProfiledSide, ProfiledSide] | None:
    """Return the first two lanes that have profiles; None for fewer."""
    sides = [side for side in map(side_of, lanes) if side.profiles]
    return (sides[0], sides[1]) if len(sides) > 1 else None


def compare(first: Sequence[Profile], second: Sequence[Profile], by: Grouping = "operation") -> ProfileDiff:
    """Compare the profiles of two sides, at least one of each, all with their parts."""
    key = _KEYS[by]
    sides = [[_grouped(profile, key) for profile in profiles] for profiles in (first, second)]
    steps = [[profile.step_ns for profile in profiles] for profiles in (first, second)]
    change = _difference(*steps)
    keys = list(dict.fromkeys(key for side in sides for parts in side for key in parts))
    whole = change.value if change.certain else 0.0
    rows = []
    for name, kind in keys:
        times = [[parts[name, kind].step_ns if (name, kind) in parts else 0.0 for parts in side] for side in sides]
        row = _difference(*times)
        left, right = (_mean([parts.get((name, kind)) for parts in side]) for side in sides)
        rows.append(DiffRow(name, kind, left, right, row, row.value / whole if whole else None))
    rows.sort(key=lambda row: (-abs(row.change.value), row.name))
    return ProfileDiff(
        profiles=(len(first), len(second)),
        first_ns=fmean(steps[0]),
        second_ns=fmean(steps[1]),
        change=change,
        rows=tuple(rows),
        explained=_explained(rows, sides, steps, change) if whole else None,
        incomplete=tuple(any(part.kind == "…" for one in side for part in one.parts) for side in (first, second)),
    )


_Key: TypeAlias = Callable[[Part], tuple[str, str]]


def layer(name: str) -> str:
    """Return the layer that an operation belongs to, of its gradient as well: the name scope around it.

    `gradient_tape/sequential/dense_1/MatMul/MatMul_1` is of `sequential/dense_1`.
    """
    scopes = _CALLS.sub("", name).removeprefix("gradient_tape/").split("/")
    return "/".join(scopes[: max(1, min(2, len(scopes) - 1))])


_KEYS: dict[Grouping, _Key] = {
    "operation": lambda part: (_CALLS.sub("", part.name), part.kind),
    "kind": lambda part: (part.kind, part.kind) if part.runs else (part.name, ""),
    "layer": lambda part: (layer(part.name), "") if part.runs else (part.name, ""),
}


def _grouped(profile: Profile, key: _Key) -> dict[tuple[str, str], Side]:
    """Return the parts of a profile by their keys, added up."""
    groups: dict[tuple[str, str], list[Part]] = {}
    for part in profile.parts:
        groups.setdefault(key(part), []).append(part)
    return {
        name: Side(
            sum(part.step_ns for part in parts),
            sum(part.self_ns for part in parts),
            sum(part.count for part in parts) / profile.steps,
            tuple(dict.fromkeys(part.device for part in parts if part.device)),
        )
        for name, parts in groups.items()
    }


def _mean(sides: Sequence[Side | None]) -> Side | None:
    """Return the mean over profiles, in which a part may be missing; None where it is in none."""
    known = [side for side in sides if side is not None]
    if not known:
        return None
    return Side(
        sum(side.step_ns for side in known) / len(sides),
        sum(side.self_ns for side in known) / len(sides),
        sum(side.runs for side in known) / len(sides),
        tuple(dict.fromkeys(device for side in known for device in side.devices)),
    )


def _difference(first: Sequence[float], second: Sequence[float]) -> Difference:
    value, reach = fmean(second) - fmean(first), _reach(first, second)
    return Difference(value, None, None) if reach is None else Difference(value, value - reach, value + reach)


def _reach(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return half the 95 % interval of the difference of two means, by Welch; None from a single value."""
    if min(len(first), len(second)) < 2:
        return None
    parts = [variance(values) / len(values) for values in (first, second)]
    total = sum(parts)
    if not total:
        return 0.0
    weights = zip(parts, (first, second), strict=True)
    degrees = total**2 / sum(part**2 / (len(values) - 1) for part, values in weights)
    return student(ERROR, degrees) * math.sqrt(total)


def _explained(
    rows: Sequence[DiffRow],
    sides: Sequence[Sequence[dict[tuple[str, str], Side]]],
    steps: Sequence[Sequence[float]],
    change: Difference,
) -> Explained:
    """Return how much the largest parts explain that differ in the direction of the step time.

    The interval is that of the mean by which these parts miss their share of the step time in each profile.
    """
    named: list[DiffRow] = []
    share = 0.0
    for row in rows:
        if share >= ENOUGH or len(named) == MOST_NAMED:
            break
        if row.share is not None and row.share > 0:
            named.append(row)
            share += row.share
    keys = [(row.name, row.kind) for row in named]
    apart = [
        [
            sum(parts[key].step_ns for key in keys if key in parts) - share * step
            for parts, step in zip(side, times, strict=True)
        ]
        for side, times in zip(sides, steps, strict=True)
    ]
    reach = _reach(*apart)
    names = tuple(row.name for row in named)
    if reach is None:
        return Explained(names, share, None, None)
    reach /= abs(change.value)
    return Explained(names, share, share - reach, share + reach)


# ---------------------------------------------------------------- in words


def sentences(diff: ProfileDiff, first: str, second: str) -> list[str]:
    """Return what the comparison comes to: how much longer a step takes, and what explains it."""
    change, time = diff.change, time_text
    sides = f"{first} takes {time(diff.first_ns)} a step, {second} {time(diff.second_ns)}"
    if diff.explained is None:
        return [f"{sides}: no difference is certain ({_between(change)})"]
    more = "more" if change.value > 0 else "less"
    sides += f": {time(abs(change.value))} {more}"
    if change.low is not None and change.high is not None:
        low, high = sorted((abs(change.low), abs(change.high)))
        sides += f" ({time(low)} to {time(high)})"
    one = diff.explained
    what = "this" if len(one.names) == 1 else f"these {len(one.names)}"
    verb = "explains" if len(one.names) == 1 else "explain"
    sure = "" if one.low is None else f" ({100 * one.low:.0f} to {100 * one.high:.0f})" if one.high else ""
    return [sides, f"{what} {verb} {100 * one.share:.0f} % of it{sure}: {', '.join(one.names)}"]


def _between(change: Difference) -> str:
    if change.low is None or change.high is None:
        return "a single profile"
    return f"{signed(change.low)} to {signed(change.high)}"


def signed(value_ns: float) -> str:
    """Write a difference of times: +1.20 ms."""
    return f"{'-' if value_ns < 0 else '+'}{time_text(abs(value_ns))}"


def share_text(share: float) -> str:
    """Write a share: 83 %."""
    return units.percent(100 * share).replace("-0 %", "0 %")


def time_text(value_ns: float) -> str:
    """Write a time."""
    return units.milliseconds(value_ns / 1e6)
