"""The rules that identify a bottleneck, by the shares of step time from a lane's windows or a profile.

The trainer's process imports this file, so it imports little of the model. The first rule that applies wins: an
earlier one explains a later one away. A part that is larger or hardly smaller is reported with it, as `mixed`.

Source: `benchmarks/attribution.py` checks order and thresholds on lanes with known bottlenecks. The threshold for
input is TensorFlow's for "highly input-bound".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from tfmon.model.profile import BottleneckKind
from tfmon.model.readings import Missing, Reading, known

RETRACED_STEPS_PCT = 2.0
"""Percent of the steps that trace."""
SATURATED_PCT = 80.0
"""Hiding everything else would gain at most a quarter."""
INPUT_PCT = 40.0
SYNC_PCT = 30.0
COPY_PCT = 25.0
ALL_REDUCE_PCT = 25.0
OTHER_PCT = 40.0
FURTHER_PCT = 10.0
"""Minimum share that is worth an experiment."""
DISPATCH_OF_STEP = 0.35
MIXED_POINTS = 10.0
"""Maximum distance of a part that is reported, too."""


_PARTS: Mapping[BottleneckKind, str] = {
    "eager": "dispatch", "sync": "reading", "transfer": "copy", "compute": "device", "retracing": "retrace",
    "all-reduce": "all_reduce",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Shares of step time in percent; without `step_pct` and `reading_pct` they add up to 100."""

    input_pct: Reading
    """With an idle device; part of the step if unknown."""
    copy_pct: Reading
    """Upper bound of copying the batch while nothing else runs."""
    dispatch_pct: Reading
    """While nothing computes; on the CPU the part of a call without operations."""
    device_pct: Reading
    """Behind the launches, if `dispatch_pct` is known."""
    step_pct: float
    """Dispatch and compute; in a script's own loop with Python, before a profile."""
    sync_pct: float = 0.0
    """Reading the loss while nothing computes."""
    report_pct: float = 0.0
    other_pct: float
    """Python between the steps."""
    reading_pct: float = 0.0
    """Waiting for a result in each step: overlaps with `device_pct`."""
    retrace_pct: float = 0.0
    """Calls with a trace, without known computing."""
    all_reduce_pct: float = 0.0
    """While nothing computes, with the wait for the slowest device."""
    retraced_steps_pct: float = 0.0
    """Of the steps, if functions are traced again and again."""
    eager: bool = False
    split_error: float = 0.0
    """Of `dispatch_pct` less `device_pct`, in percentage points."""

    def share(self, kind: BottleneckKind) -> float:
        """Return the known share behind a bottleneck, or 0."""
        return known(getattr(self, f"{_PARTS.get(kind, kind)}_pct", 0.0)) or 0.0

    def of_time(self, steps_share: float) -> Shares:
        """Return the same parts in percent of all time."""
        names = (part.name for part in fields(self) if part.name.endswith("_pct"))
        parts: dict[str, Any] = {name: getattr(self, name) for name in names if name != "retraced_steps_pct"}
        return replace(
            self, **{name: part * steps_share for name, part in parts.items() if known(part) is not None}
        )

    @property
    def largest(self) -> BottleneckKind:
        """The largest part; an unsplit step counts as two."""
        kinds: tuple[BottleneckKind, ...] = ("input", "transfer", "other", "dispatch", "compute", "all-reduce")
        parts = {kind: self.share(kind) for kind in kinds} | {"sync": self.sync_pct, "step": self.step_pct / 2}
        return max(parts, key=lambda kind: parts[kind])


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table."""

    kind: BottleneckKind
    applies: Callable[[Shares], bool]
    decides: bool = False
    """Whether it is never mixed."""


def _retraces(shares: Shares) -> bool:
    if shares.retraced_steps_pct <= 0:
        return False
    return shares.retraced_steps_pct > RETRACED_STEPS_PCT or shares.retrace_pct > INPUT_PCT


def _dispatch_limits(shares: Shares) -> bool:
    if isinstance(shares.dispatch_pct, Missing):
        return False
    hidden = isinstance(shares.device_pct, Missing)
    return hidden or shares.dispatch_pct > max(DISPATCH_OF_STEP * shares.step_pct, shares.share("input"))


def _is_step(shares: Shares) -> bool:
    return isinstance(shares.dispatch_pct, Missing) and shares.step_pct > 2 * shares.share("compute")


def _over(kind: BottleneckKind, least_pct: float, *, or_largest: bool = False) -> Callable[[Shares], bool]:
    def applies(shares: Shares) -> bool:
        return shares.share(kind) > least_pct or (or_largest and shares.share(kind) > 0 and shares.largest == kind)

    return applies


RULES: tuple[Rule, ...] = (
    Rule("retracing", _retraces, decides=True),
    Rule("compute", lambda shares: shares.share("compute") >= SATURATED_PCT, decides=True),
    Rule("input", _over("input", INPUT_PCT, or_largest=True)),
    Rule("all-reduce", _over("all-reduce", ALL_REDUCE_PCT, or_largest=True)),
    Rule("sync", _over("sync", SYNC_PCT)),
    Rule("transfer", _over("transfer", COPY_PCT)),
    Rule("other", _over("other", OTHER_PCT, or_largest=True)),
    Rule("eager", lambda shares: shares.eager and _dispatch_limits(shares)),
    Rule("dispatch", _dispatch_limits),
    Rule("step", _is_step, decides=True),
    Rule("compute", lambda _: True),
)


def find_kinds(shares: Shares) -> tuple[BottleneckKind, ...]:
    """Return one or two kinds, first the rule's."""
    rule = next(rule for rule in RULES if rule.applies(shares))
    if rule.decides:
        return (rule.kind,)
    kinds: tuple[BottleneckKind, ...] = ("input", "transfer", "all-reduce", "dispatch", "compute", "other")
    sizes = {kind: shares.share(kind) for kind in kinds} | {"sync": shares.sync_pct}
    if rule.kind == "sync":
        sizes["compute"] = 0.0  # the device computes while a loop waits for a result
    own: BottleneckKind = "dispatch" if rule.kind == "eager" else rule.kind
    del sizes[own]
    doubt = dict.fromkeys(sizes, MIXED_POINTS)
    if own in ("dispatch", "compute"):
        doubt |= {kind: max(MIXED_POINTS, shares.split_error) for kind in ("dispatch", "compute")}
    rival = max(sizes, key=lambda kind: sizes[kind] + doubt[kind])
    return (rule.kind, rival) if sizes[rival] > shares.share(own) - doubt[rival] else (rule.kind,)


_NAMES: Mapping[BottleneckKind, str] = {"other": "loop", "eager": "eager execution"}


def sentence(
    kinds: tuple[BottleneckKind, ...],
    shares: Shares,
    phrases: Mapping[BottleneckKind, str],
    whole: str = "the time",
) -> str:
    """Return such as "input-bound: waiting for batches takes 62 % of the time"."""
    first, *others = kinds
    names, takes = (
        [_NAMES.get(kind, kind) for kind in kinds],
        f"{phrases[first]} takes {shares.share(first):.0f} %",
    )
    if not others:
        return f"{names[0] if first == 'eager' else f'{names[0]}-bound'}: {takes} of {whole}"
    size = shares.sync_pct if others[0] == "sync" else shares.share(others[0])
    return f"{' and '.join(names)} alike: {takes} of {whole}, {phrases[others[0]]} {size:.0f} %"
