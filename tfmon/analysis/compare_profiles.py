"""Compares two profiles by the parts of a step, which do not overlap."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, variance
from typing import Literal, TypeAlias

from tfmon import units
from tfmon.analysis.intervals import ERROR, student
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.lane_state import LaneState
from tfmon.model.profile import Part, Profile

Grouping: TypeAlias = Literal["operation", "kind", "layer"]
GROUPINGS: tuple[Grouping, ...] = ("operation", "kind", "layer")
DASH = "–"
MOST_NAMED, ENOUGH = 5, 0.8
"""Maximum parts, and sufficient share, of the explanation."""
_CALLS = re.compile(r"^(?:(?:Stateful)?PartitionedCall(?:_\d+)?/)+")
_JIT, _TRANSFORM = re.compile(r"\bp?jit\([^()]*\)"), re.compile(r"\b(?:transpose|jvp|vmap)\(([^()]*)\)")
"""Of JAX: compiled functions, and transforms (`transpose(jvp(x))` is a gradient)."""


@dataclass(frozen=True, slots=True)
class TimeDifference:
    """Second side less first, in ns."""

    value_ns: float
    ci95_ns: tuple[float, float] | None
    """`None` if a side has a single profile."""

    @property
    def certain(self) -> bool:
        """Whether the difference is certain."""
        if self.ci95_ns is None:
            return self.value_ns != 0
        return self.ci95_ns[0] > 0 or self.ci95_ns[1] < 0

    @property
    def texts(self) -> tuple[str, str]:
        """Texts such as +1.20 ms, ±0.10 ms."""
        reach = "" if self.ci95_ns is None else f"±{time_text(self.ci95_ns[1] - self.value_ns)}"
        return signed(self.value_ns), reach


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a part: means per step."""

    step_ns: float
    self_ns: float
    runs: float
    devices: tuple[str, ...]
    parallelism: float | None

    @classmethod
    def mean(cls, parts: Sequence[Sequence[Part]], steps: Sequence[int]) -> Side | None:
        """Return the means over profiles, if any has the part."""
        every = [part for side_parts in parts for part in side_parts]
        if not every:
            return None
        step_ns, self_ns = sum(part.step_ns for part in every), sum(part.self_ns for part in every)
        runs = sum(part.count / number for side, number in zip(parts, steps, strict=True) for part in side)
        devices = tuple(dict.fromkeys(part.device for part in every if part.device))
        at_once = self_ns / step_ns if self_ns and step_ns else None
        return cls(step_ns / len(parts), self_ns / len(parts), runs / len(parts), devices, at_once)


@dataclass(frozen=True, slots=True)
class DiffRow:
    """A part of the step time on both sides."""

    name: str
    kind: str
    first: Side | None
    second: Side | None
    difference: TimeDifference
    share: float | None

    def label(self, width: int) -> str:
        """Return the name, shortened in the middle."""
        name = self.name.lstrip("_")
        if self.kind and self.name != self.kind:
            scope, _, last = name.rpartition("/")  # a type and a number
            name = f"{self.kind.lstrip('_')} {name if last[-1:].isdigit() else scope or name}"
        return shortened(name, width)

    def cells(self, width: int) -> list[str]:
        """Return a table row, see `heads`."""
        sides = (self.first, self.second)
        runs = [DASH if side is None else f"{side.runs:.3g}" if side.runs else "" for side in sides]
        devices = [DASH if side is None else "+".join(side.devices) for side in sides]
        return [
            self.label(width),
            *(DASH if side is None else time_text(side.step_ns) for side in sides),
            *self.difference.texts,
            "" if self.share is None else share_text(self.share),
            *(" | ".join(dict.fromkeys(values)) for values in (runs, devices)),
        ]


def shortened(name: str, width: int) -> str:
    """Return a name without its middle, if it is wider."""
    tail = (width - 1) // 2
    return name if len(name) <= width else f"{name[: width - 1 - tail]}…{name[-tail:]}"


def heads(by: Grouping, first: str, second: str) -> list[str]:
    """Return the headers of the table."""
    return [by, first, second, "difference", "±", "share", "runs a step", "device"]


@dataclass(frozen=True, slots=True)
class Explained:
    """The share of the difference that the largest parts explain."""

    names: tuple[str, ...]
    share: float
    share_ci95: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class ProfileDiff:
    """The comparison of the profiles of two sides."""

    first_ns: float
    second_ns: float
    difference: TimeDifference
    rows: tuple[DiffRow, ...]
    explained: Explained | None
    """`None` unless the step times certainly differ."""
    incomplete: tuple[bool, ...]
    """Whether a side's smaller operations are grouped."""


@dataclass(frozen=True, slots=True)
class ProfiledSide:
    """A lane or folder with profiles."""

    id: str
    title: str
    profiles: tuple[Profile, ...]
    step_ns: float | None = None
    """Step time without the profiler."""
    examples: float | None = None


def side_of(lane: LaneState) -> ProfiledSide:
    """Return a lane with its profiles."""
    steady = lane.steady
    step_ns = steady.span_ns / steady.steps if steady.steps else None
    examples = steady.examples / steady.steps if steady.steps and steady.examples else None
    profiles = tuple(profile for profile in lane.step.profiles if profile.parts)
    return ProfiledSide(lane.spec.id or lane.spec.name, lane.title, profiles, step_ns, examples)


def profiled_pair(lanes: Sequence[LaneState]) -> tuple[ProfiledSide, ProfiledSide] | None:
    """Return the first two lanes with profiles."""
    sides = [side for side in map(side_of, lanes) if side.profiles]
    return (sides[0], sides[1]) if len(sides) > 1 else None


def compare(first: Sequence[Profile], second: Sequence[Profile], by: Grouping = "operation") -> ProfileDiff:
    """Compare the profiles of two sides."""
    groups = [_grouped(profiles, _KEYS[by]) for profiles in (first, second)]
    steps = [[profile.step_ns for profile in profiles] for profiles in (first, second)]
    numbers = [[profile.steps for profile in profiles] for profiles in (first, second)]
    nothing: list[list[list[Part]]] = [[[] for _ in profiles] for profiles in (first, second)]
    difference = _difference(*steps)
    whole = difference.value_ns if difference.certain else 0.0
    rows = []
    times: dict[tuple[str, str], list[list[float]]] = {}
    for key in dict.fromkeys(key for side in groups for key in side):
        parts = [side.get(key, none) for side, none in zip(groups, nothing, strict=True)]
        times[key] = [[sum(part.step_ns for part in profile_parts) for profile_parts in side] for side in parts]
        row_difference = _difference(*times[key])
        left, right = (Side.mean(side, number) for side, number in zip(parts, numbers, strict=True))
        rows.append(DiffRow(*key, left, right, row_difference, row_difference.value_ns / whole if whole else None))
    rows.sort(key=lambda row: (-abs(row.difference.value_ns), row.name))
    return ProfileDiff(
        first_ns=fmean(steps[0]),
        second_ns=fmean(steps[1]),
        difference=difference,
        rows=tuple(rows),
        explained=_explained(rows, times, steps, whole) if whole else None,
        incomplete=tuple(
            any(part.kind == "…" for profile in side for part in profile.parts) for side in (first, second)
        ),
    )


_Key: TypeAlias = Callable[[Part], tuple[str, str]]


def layer(name: str) -> str:
    """Return the layer of an operation or its gradient.

    `gradient_tape/sequential/dense_1/MatMul/MatMul_1` is of `sequential/dense_1`, and
    `jit(train)/transpose(jvp(Net))/Conv_0/conv` of `Net/Conv_0`.
    """
    plain = _JIT.sub("", _CALLS.sub("", name).removeprefix("gradient_tape/"))
    while _TRANSFORM.search(plain):
        plain = _TRANSFORM.sub(r"\1", plain)
    scopes = list(filter(None, plain.split("/"))) or [name]
    return "/".join(scopes[: max(1, min(2, len(scopes) - 1))])


_KEYS: dict[Grouping, _Key] = {
    "operation": lambda part: (_CALLS.sub("", part.name), part.kind),
    "kind": lambda part: (part.kind, part.kind) if part.runs else (part.name, ""),
    "layer": lambda part: (layer(part.name), "") if part.runs else (part.name, ""),
}


def _grouped(profiles: Sequence[Profile], key: _Key) -> dict[tuple[str, str], list[list[Part]]]:
    groups: dict[tuple[str, str], list[list[Part]]] = {}
    for index, profile in enumerate(profiles):
        for part in profile.parts:
            groups.setdefault(key(part), [[] for _ in profiles])[index].append(part)
    return groups


def _difference(first: Sequence[float], second: Sequence[float]) -> TimeDifference:
    value, reach = fmean(second) - fmean(first), _reach(first, second)
    return TimeDifference(value, None if reach is None else (value - reach, value + reach))


def _reach(first: Sequence[float], second: Sequence[float]) -> float | None:
    if min(len(first), len(second)) < 2:
        return None
    parts = [variance(values) / len(values) for values in (first, second)]
    total = sum(parts)
    if not total:
        return 0.0
    weights = zip(parts, (first, second), strict=True)
    # Source: Welch (1947), Biometrika 34.
    degrees = total**2 / sum(part**2 / (len(values) - 1) for part, values in weights)
    return student(ERROR, degrees) * math.sqrt(total)


def _explained(
    rows: Sequence[DiffRow],
    times: Mapping[tuple[str, str], Sequence[Sequence[float]]],
    steps: Sequence[Sequence[float]],
    whole: float,
) -> Explained:
    largest: list[DiffRow] = []
    share = 0.0
    for row in rows:
        if share >= ENOUGH or len(largest) == MOST_NAMED:
            break
        if row.share is not None and row.share > 0:
            largest.append(row)
            share += row.share
    missed: list[list[float]] = []
    for side, step_times in enumerate(steps):
        parts = [times[row.name, row.kind][side] for row in largest]
        missed.append([sum(part[at] for part in parts) - share * step for at, step in enumerate(step_times)])
    reach = _reach(*missed)
    ends = None if reach is None else (share - reach / abs(whole), share + reach / abs(whole))
    return Explained(tuple(row.name for row in largest), share, ends)


def sentences(diff: ProfileDiff, first: str, second: str) -> list[str]:
    """Return the difference and its explanation."""
    value_ns, ends, explained = diff.difference.value_ns, diff.difference.ci95_ns, diff.explained
    sides = f"{first} takes {time_text(diff.first_ns)} a step, {second} {time_text(diff.second_ns)}"
    if explained is None:
        between = "equal profiles" if ends is None else " to ".join(map(signed, ends))
        return [f"{sides}: no difference is certain ({between})"]
    sides += f": {time_text(abs(value_ns))} {'more' if value_ns > 0 else 'less'}"
    if ends is not None:
        sides += f" ({' to '.join(map(time_text, sorted(map(abs, ends))))})"
    what = "this explains" if len(explained.names) == 1 else f"these {len(explained.names)} explain"
    sure = ""
    if explained.share_ci95 is not None:
        sure = " ({:.0f} to {:.0f})".format(*(100 * end for end in explained.share_ci95))
    return [sides, f"{what} {100 * explained.share:.0f} % of it{sure}: {', '.join(explained.names)}"]


def signed(value_ns: float) -> str:
    """Return a difference as text such as +1.20 ms."""
    return f"{'-' if value_ns < 0 else '+'}{time_text(abs(value_ns))}"


def share_text(share: float) -> str:
    """Return a share as text such as 83 %."""
    return units.percent(100 * share).replace("-0 %", "0 %")


def time_text(value_ns: float) -> str:
    """Return a time as text."""
    return units.milliseconds(value_ns / 1e6)
