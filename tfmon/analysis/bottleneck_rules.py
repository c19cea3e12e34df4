"""The rules that identify a bottleneck from the shares of step time, of a lane's windows or a profile.

The trainer's process imports this file, so it imports little of the model. The first applicable rule wins. A part
that is larger or hardly smaller is reported too, as `mixed`.

Source: `benchmarks/attribution.py` checks order and thresholds on lanes with known bottlenecks. The threshold for
input is TensorFlow's for "highly input-bound".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.profile import BottleneckKind
from tfmon.model.readings import Missing, Reading, known

RETRACED_STEPS_PCT = 2.0
SATURATED_PCT = 80.0
"""Removing all other parts would gain at most a quarter."""
INPUT_PCT = 40.0
SYNC_PCT = 30.0
COPY_PCT = 25.0
ALL_REDUCE_PCT = 25.0
OTHER_PCT = 40.0
FURTHER_PCT = 10.0
"""Minimum share for an experiment."""
DISPATCH_OF_STEP = 0.35
MIXED_POINTS = 10.0
"""Maximum distance of a second part that is reported."""


_PARTS: Mapping[BottleneckKind, str] = {
    "eager": "dispatch", "sync": "reading", "transfer": "copy", "compute": "device", "retracing": "retrace",
    "all-reduce": "all_reduce",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Shares of step time in percent; without `step_pct` and `reading_pct` they add up to 100."""

    input_pct: Reading
    """Waiting for input while the device is idle. If unknown, part of the step."""
    copy_pct: Reading
    """Upper bound for copying batches while nothing else runs."""
    dispatch_pct: Reading
    """Starting operations. On the CPU, the part of a call without operations."""
    device_pct: Reading
    """Computing, without the launches if `dispatch_pct` is known."""
    step_pct: float
    """Dispatch and computing. Before a profile, a script's own loop includes Python."""
    sync_pct: float = 0.0
    report_pct: float = 0.0
    other_pct: float
    reading_pct: float = 0.0
    """Waiting for a result in each step. It overlaps with `device_pct`."""
    retrace_pct: float = 0.0
    """Calls that trace, without their known computing."""
    all_reduce_pct: float = 0.0
    """All-reduce, with the wait for the slowest device."""
    retraced_steps_pct: float = 0.0
    """Share of the steps that trace, if tracing goes on."""
    eager: bool = False
    split_error: float = 0.0
    """Error of `dispatch_pct` less `device_pct`, in percentage points."""

    def share(self, kind: BottleneckKind) -> float:
        """Return the share of a kind of bottleneck, or 0 if unknown."""
        return known(getattr(self, f"{_PARTS.get(kind, kind)}_pct", 0.0)) or 0.0

    def of_time(self, steps_share: float) -> Shares:
        """Return the same parts in percent of all time."""
        names = [part.name for part in fields(self) if part.name.endswith("_pct")]
        parts: dict[str, Any] = {name: getattr(self, name) for name in names if name != "retraced_steps_pct"}
        known_parts = {name: part for name, part in parts.items() if known(part) is not None}
        return replace(self, **{name: part * steps_share for name, part in known_parts.items()})

    @property
    def largest(self) -> BottleneckKind:
        """The largest part. An unsplit step counts as two parts."""
        kinds: tuple[BottleneckKind, ...] = ("input", "transfer", "other", "dispatch", "compute", "all-reduce")
        parts = {kind: self.share(kind) for kind in kinds} | {"sync": self.sync_pct, "step": self.step_pct / 2}
        return max(parts, key=lambda kind: parts[kind])


_NEVER_MIXED: tuple[BottleneckKind, ...] = ("retracing", "step")


def _dispatch_limits(shares: Shares) -> bool:
    if isinstance(shares.dispatch_pct, Missing):
        return False
    hidden = isinstance(shares.device_pct, Missing)
    return hidden or shares.dispatch_pct > max(DISPATCH_OF_STEP * shares.step_pct, shares.share("input"))


def _first_kind(shares: Shares) -> BottleneckKind:
    share, retraced_pct = shares.share, shares.retraced_steps_pct
    largest = shares.largest if share(shares.largest) else None
    rules: tuple[tuple[BottleneckKind, bool], ...] = (
        ("retracing", retraced_pct > RETRACED_STEPS_PCT or (retraced_pct > 0 and shares.retrace_pct > INPUT_PCT)),
        ("compute", share("compute") >= SATURATED_PCT),
        ("input", share("input") > INPUT_PCT or largest == "input"),
        ("all-reduce", share("all-reduce") > ALL_REDUCE_PCT or largest == "all-reduce"),
        ("sync", share("sync") > SYNC_PCT),
        ("transfer", share("transfer") > COPY_PCT),
        ("other", share("other") > OTHER_PCT or largest == "other"),
        ("eager" if shares.eager else "dispatch", _dispatch_limits(shares)),
        ("step", isinstance(shares.dispatch_pct, Missing) and shares.step_pct > 2 * share("compute")),
    )
    return next((kind for kind, applies in rules if applies), "compute")


def find_kinds(shares: Shares) -> tuple[BottleneckKind, ...]:
    """Return the kind of the first applicable rule, and a second kind if mixed."""
    first = _first_kind(shares)
    if first in _NEVER_MIXED or shares.share("compute") >= SATURATED_PCT:
        return (first,)
    kinds: tuple[BottleneckKind, ...] = ("input", "transfer", "all-reduce", "dispatch", "compute", "other")
    sizes = {kind: shares.share(kind) for kind in kinds} | {"sync": shares.sync_pct}
    if first == "sync":
        sizes["compute"] = 0.0  # the device computes while a loop waits for a result
    part: BottleneckKind = "dispatch" if first == "eager" else first
    del sizes[part]
    doubt = dict.fromkeys(sizes, MIXED_POINTS)
    if part in ("dispatch", "compute"):
        doubt |= {kind: max(MIXED_POINTS, shares.split_error) for kind in ("dispatch", "compute")}
    rival = max(sizes, key=lambda kind: sizes[kind] + doubt[kind])
    return (first, rival) if sizes[rival] > shares.share(part) - doubt[rival] else (first,)


_NAMES: Mapping[BottleneckKind, str] = {"other": "loop", "eager": "eager execution"}


def sentence(
    kinds: tuple[BottleneckKind, ...],
    shares: Shares,
    phrases: Mapping[BottleneckKind, str],
    whole: str = "the time",
) -> str:
    """Return text such as "input-bound: waiting for batches takes 62 % of the time"."""
    first, *rest = kinds
    names = [_NAMES.get(kind, kind) for kind in kinds]
    takes = f"{phrases[first]} takes {shares.share(first):.0f} %"
    if not rest:
        return f"{names[0] if first == 'eager' else f'{names[0]}-bound'}: {takes} of {whole}"
    size = shares.sync_pct if rest[0] == "sync" else shares.share(rest[0])
    return f"{' and '.join(names)} alike: {takes} of {whole}, {phrases[rest[0]]} {size:.0f} %"
