"""The rules that identify a bottleneck, for a lane's windows and for profiles.

The trainer's process imports this file, so it imports nothing of the model. The first rule that applies wins: an
earlier one explains a later one away. A part that is larger or hardly smaller is reported with it, as `mixed`.

Source: `benchmarks/attribution.py` checks order and thresholds on lanes with known bottlenecks. The threshold for
input is TensorFlow's for "highly input-bound".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from tfmon.model.profile import BottleneckKind

RETRACED_STEPS_PCT = 2.0
"""Percent of the steps that trace."""
SATURATED_PCT = 80.0
"""Hiding everything else would gain at most a quarter."""
INPUT_PCT = 40.0
SYNC_PCT = 30.0
COPY_PCT = 25.0
ALL_REDUCE_PCT = 25.0
OTHER_PCT = 40.0
DISPATCH_OF_STEP = 0.35
MIXED_POINTS = 10.0
"""Maximum distance of a part that is reported, too."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The parts of a step in percent; only `reading` overlaps."""

    retraced_steps: float
    """Units: percent of the steps."""
    eager: bool
    input: float
    """With an idle device."""
    transfer: float
    """While nothing else runs."""
    dispatch: float | None
    """While nothing computes. `None` if not separable."""
    compute: float | None
    """Behind the launches, if `dispatch` is known. `None` if not separable."""
    step: float
    reading: float
    """Waiting for a result in each step."""
    sync: float
    """Part of `reading` without computation."""
    other: float
    """Python between the steps."""
    retracing: float
    all_reduce: float = 0.0
    """While nothing computes, with the wait for the slowest device."""
    split_error: float = 0.0
    """Of `dispatch` less `compute`, in percentage points."""

    def share(self, kind: BottleneckKind) -> float:
        """Return the share behind a bottleneck, or 0."""
        match kind:
            case "eager" | "dispatch":
                return self.dispatch or 0.0
            case "sync":
                return self.reading
            case "mixed":
                return 0.0
            case _:
                return getattr(self, kind.replace("-", "_")) or 0.0

    def of_time(self, steps_share: float) -> Evidence:
        """Return the same parts in percent of all time."""
        parts: dict[str, Any] = {
            name: None if part is None else part * steps_share
            for name, part in asdict(self).items()
            if name not in ("retraced_steps", "eager")
        }
        return replace(self, **parts)

    def largest(self, part: float) -> bool:
        """Return whether a part is the largest; an unsplit step counts as two."""
        parts = [self.input, self.transfer, self.sync, self.other, self.dispatch or 0.0, self.compute or 0.0]
        parts += [self.all_reduce, self.step / 2]
        parts.remove(part)
        return part > max(parts)


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table."""

    kind: BottleneckKind
    applies: Callable[[Evidence], bool]
    decides: bool = False
    """Whether it is never mixed."""


def _dispatch_limits(evidence: Evidence) -> bool:
    if evidence.dispatch is None:
        return False
    hidden = evidence.compute is None
    return hidden or evidence.dispatch > max(DISPATCH_OF_STEP * evidence.step, evidence.input)


RULES: tuple[Rule, ...] = (
    Rule(
        "retracing", lambda one: one.retraced_steps > RETRACED_STEPS_PCT or one.retracing > INPUT_PCT, decides=True
    ),
    Rule("compute", lambda one: one.share("compute") >= SATURATED_PCT, decides=True),
    Rule("input", lambda one: one.input > INPUT_PCT or one.largest(one.input)),
    Rule("all-reduce", lambda one: one.all_reduce > ALL_REDUCE_PCT or one.largest(one.all_reduce)),
    Rule("sync", lambda one: one.reading > SYNC_PCT),
    Rule("transfer", lambda one: one.transfer > COPY_PCT),
    Rule("other", lambda one: one.other > OTHER_PCT or one.largest(one.other)),
    Rule("eager", lambda one: one.eager and _dispatch_limits(one)),
    Rule("dispatch", _dispatch_limits),
    Rule("step", lambda one: one.dispatch is None and one.step > 2 * (one.compute or 0.0), decides=True),
    Rule("compute", lambda _: True),
)


def find_kinds(evidence: Evidence) -> tuple[BottleneckKind, ...]:
    """Return one or two kinds, first the rule's."""
    rule = next(rule for rule in RULES if rule.applies(evidence))
    if rule.decides:
        return (rule.kind,)
    sizes: dict[BottleneckKind, float] = {
        "input": evidence.input,
        "transfer": evidence.transfer,
        "all-reduce": evidence.all_reduce,
        "dispatch": evidence.dispatch or 0.0,
        # The device computes while a loop waits for a result.
        "compute": 0.0 if rule.kind == "sync" else evidence.compute or 0.0,
        "sync": evidence.sync,
        "other": evidence.other,
    }
    own: BottleneckKind = "dispatch" if rule.kind == "eager" else rule.kind
    del sizes[own]
    doubt = dict.fromkeys(sizes, MIXED_POINTS)
    if own in ("dispatch", "compute"):
        doubt |= {kind: max(MIXED_POINTS, evidence.split_error) for kind in ("dispatch", "compute")}
    rival = max(sizes, key=lambda kind: sizes[kind] + doubt[kind])
    return (rule.kind, rival) if sizes[rival] > evidence.share(own) - doubt[rival] else (rule.kind,)


_NAMES: Mapping[BottleneckKind, str] = {"other": "loop", "eager": "eager execution"}


def sentence(
    kinds: tuple[BottleneckKind, ...],
    evidence: Evidence,
    phrases: Mapping[BottleneckKind, str],
    whole: str = "the time",
) -> str:
    """Return such as "input-bound: waiting for batches takes 62 % of the time"."""
    first, *others = kinds
    names, takes = (
        [_NAMES.get(kind, kind) for kind in kinds],
        f"{phrases[first]} takes {evidence.share(first):.0f} %",
    )
    if not others:
        return f"{names[0] if first == 'eager' else f'{names[0]}-bound'}: {takes} of {whole}"
    size = evidence.sync if others[0] == "sync" else evidence.share(others[0])
    return f"{' and '.join(names)} alike: {takes} of {whole}, {phrases[others[0]]} {size:.0f} %"
