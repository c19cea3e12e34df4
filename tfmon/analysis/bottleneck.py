"""The bottleneck of a lane: one table of rules for a lane's windows and for profiles, and a sentence. Pure.

The first rule that applies names the bottleneck. The order is such that an earlier one explains a later one away:
a step that is traced waits for nothing else, and where the device works nearly all the time, the host's waits are
hidden behind it. A part of step time that is larger or hardly smaller than the one named is named with it: a lane
that computes 54 % of the time and starts its steps in 30 % is `mixed`.

Source: order and thresholds go back to lanes whose bottleneck is known by how they are made, and
`tests/benchmarks/attribution.py` checks them on such lanes, by their windows and by their profiles. The threshold
for input is that of TensorFlow's profiler for "highly input-bound".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tfmon.analysis.advice import Advice, advice_for
from tfmon.analysis.attribution import Shares, shares_of
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import Missing, known
from tfmon.model.session import Snapshot

BottleneckKind: TypeAlias = Literal[
    "retracing", "compute", "input", "sync", "transfer", "other", "eager", "dispatch", "step", "mixed"
]
"""`other` is Python between the steps; `eager` is dispatch of single operations; `step` is dispatch or compute,
where they are not told apart; `mixed` is two of them."""

LEAST_WINDOWS = 3
BUSY_OTHERS_PCT = 50.0
"""Half a core that other programs keep busy is reported."""

# ---------------------------------------------------------------- the table of rules

RETRACED_STEPS_PCT = 2.0
"""Steps that trace, in percent of the steps; a loop whose arguments keep their types traces in none."""
SATURATED_PCT = 80.0
"""The device computes so much that hiding everything else would gain a quarter at most."""
INPUT_PCT = 40.0
SYNC_PCT = 30.0
COPY_PCT = 25.0
OTHER_PCT = 40.0
DISPATCH_OF_STEP = 0.35
"""Share of dispatch in the step itself: dispatch and compute."""
MIXED_POINTS = 10.0
"""A part that is smaller than the named one by less than this is named with it."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the time of a step is made of.

    Units: percent of step time, but for `retraced_steps`. Only `reading` overlaps with another share.
    """

    retraced_steps: float
    """Steps in which a function was traced or compiled. Units: percent of the steps."""
    eager: bool
    input: float
    """Waiting for the next batch, while the device is idle."""
    transfer: float
    """Copying between host and device while nothing else runs."""
    dispatch: float | None
    """Starting the step while nothing computes; None where it is not told from compute."""
    compute: float | None
    """None where it is not told from dispatch. With `dispatch` known, the device computes behind the launches."""
    step: float
    """Dispatch and compute together."""
    reading: float
    """The loop waits in each step to read a result, whether the device computes meanwhile or not."""
    sync: float
    """Part of `reading` in which the device does not compute."""
    other: float
    """Python between the steps."""
    retracing: float

    def share(self, kind: BottleneckKind) -> float:
        """Return the share that a bottleneck is about; 0 where it is not known."""
        match kind:
            case "eager" | "dispatch":
                return self.dispatch or 0.0
            case "sync":
                return self.reading
            case "mixed":
                return 0.0
            case _:
                return getattr(self, kind) or 0.0

    def largest(self, part: float) -> bool:
        """Return whether a part is larger than any other; a step that is not split counts as two halves."""
        parts = [self.input, self.transfer, self.sync, self.other, self.dispatch or 0.0, self.compute or 0.0]
        parts.append(self.step / 2)
        parts.remove(part)
        return part > max(parts)


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table."""

    kind: BottleneckKind
    applies: Callable[[Evidence], bool]
    decides: bool = False
    """True where no other part is named with it."""


def _dispatch_limits(evidence: Evidence) -> bool:
    if evidence.dispatch is None:
        return False
    hidden = evidence.compute is None
    return hidden or evidence.dispatch > max(DISPATCH_OF_STEP * evidence.step, evidence.input)


RULES: tuple[Rule, ...] = (
    Rule("retracing", lambda one: one.retraced_steps > RETRACED_STEPS_PCT, decides=True),
    Rule("compute", lambda one: one.share("compute") >= SATURATED_PCT, decides=True),
    Rule("input", lambda one: one.input > INPUT_PCT or one.largest(one.input)),
    Rule("sync", lambda one: one.reading > SYNC_PCT),
    Rule("transfer", lambda one: one.transfer > COPY_PCT),
    Rule("other", lambda one: one.other > OTHER_PCT or one.largest(one.other)),
    Rule("eager", lambda one: one.eager and _dispatch_limits(one)),
    Rule("dispatch", _dispatch_limits),
    Rule("step", lambda one: one.dispatch is None and one.compute is None, decides=True),
    Rule("compute", lambda _: True),
)


def find_kinds(evidence: Evidence) -> tuple[BottleneckKind, ...]:
    """Return what limits a lane: one kind, or the two of a mixed bottleneck, that of the rule first."""
    rule = next(rule for rule in RULES if rule.applies(evidence))
    if rule.decides:
        return (rule.kind,)
    sizes: dict[BottleneckKind, float] = {
        "input": evidence.input,
        "transfer": evidence.transfer,
        "dispatch": evidence.dispatch or 0.0,
        # A loop that waits to read a result does so while the device computes: it is the same time.
        "compute": 0.0 if rule.kind == "sync" else evidence.compute or 0.0,
        "sync": evidence.sync,
        "other": evidence.other,
    }
    own: BottleneckKind = "dispatch" if rule.kind == "eager" else rule.kind
    del sizes[own]
    rival = max(sizes, key=lambda kind: sizes[kind])
    return (rule.kind, rival) if sizes[rival] > evidence.share(own) - MIXED_POINTS else (rule.kind,)


_LABELS: Mapping[BottleneckKind, str] = {
    "compute": "compute-bound",
    "input": "input-bound",
    "sync": "sync-bound",
    "transfer": "transfer-bound",
    "other": "loop-bound",
    "eager": "eager execution",
    "dispatch": "dispatch-bound",
}


def sentence(kinds: tuple[BottleneckKind, ...], evidence: Evidence, phrases: Mapping[BottleneckKind, str]) -> str:
    """Write a bottleneck: "input-bound: waiting for batches takes 62 % of the time".

    `phrases` name what takes the time, such as "waiting for batches".
    """
    first, *others = kinds
    if not others:
        return f"{_LABELS[first]}: {phrases[first]} takes {evidence.share(first):.0f} % of the time"
    rival = others[0]
    size = evidence.sync if rival == "sync" else evidence.share(rival)
    return (
        f"mixed: {phrases[first]} takes {evidence.share(first):.0f} % of the time, {phrases[rival]} {size:.0f} %"
    )


# ---------------------------------------------------------------- the bottleneck of a lane, by its windows

_PHRASES: Mapping[BottleneckKind, str] = {
    "compute": "computing",
    "input": "waiting for batches",
    "sync": "reading each loss",
    "transfer": "copying to the device",
    "other": "Python between the steps",
    "eager": "starting operations one by one",
    "dispatch": "starting the step",
}


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """What limits a lane."""

    kind: BottleneckKind
    text: str
    """One sentence with the number behind it."""
    shares: Shares
    advice: tuple[Advice, ...]
    """What may help, the likeliest first."""
    also: tuple[str, ...] = ()
    """What else slows the lane down or disturbs the figures."""


def find_bottleneck(snapshot: Snapshot, lane: LaneState) -> Bottleneck | None:
    """Return what limits a lane under the settings in effect; None before enough is measured."""
    shares = shares_of(lane)
    if shares is None or lane.steady.windows < LEAST_WINDOWS:
        return None
    evidence = evidence_of(lane, shares)
    kinds = find_kinds(evidence)
    match kinds[0]:
        case "retracing":
            text = _retracing_text(lane, evidence)
        case "step":
            text = f"{evidence.step:.0f} % of the time is spent in the step; a profile tells on what"
        case _:
            text = sentence(kinds, evidence, _PHRASES)
    advice = tuple(one for kind in kinds for one in advice_for(kind, lane, snapshot.race.knobs))
    return Bottleneck(kinds[0] if len(kinds) == 1 else "mixed", text, shares, advice, _also(snapshot, lane))


def evidence_of(lane: LaneState, shares: Shares) -> Evidence:
    """Return what the windows of a lane say of its step time."""
    steady = lane.steady
    # Without a read in every step, the one read at the end of a window waits for work that is queued: no stall.
    reads = shares.asynchronous and lane.settings.get("sync_every_step", False)
    return Evidence(
        retraced_steps=100 * steady.traced_steps / steady.steps,
        eager=not lane.settings.get("graph", True),
        input=shares.input_pct,
        transfer=known(shares.copy_pct) or 0.0,
        dispatch=known(shares.dispatch_pct),
        compute=known(shares.device_pct),
        step=shares.step_pct,
        reading=shares.reading_pct if reads else 0.0,
        sync=shares.sync_pct,
        other=shares.other_pct,
        retracing=shares.retrace_pct,
    )


def _retracing_text(lane: LaneState, evidence: Evidence) -> str:
    share = evidence.retraced_steps
    often = "every step" if share > 95 else f"{share:.0f} % of the steps"
    cause = f" ({lane.traced})" if lane.traced else ""
    return f"retracing: {often}, {evidence.retracing:.0f} % of the time{cause}"


# ---------------------------------------------------------------- what else slows it down


def _also(snapshot: Snapshot, lane: LaneState) -> tuple[str, ...]:
    """Return what the machine adds to it: one line for each unusual reading."""
    return tuple(line for line in (*_of_the_host(snapshot, lane), *_of_the_gpu(snapshot, lane)) if line)


def _of_the_host(snapshot: Snapshot, lane: LaneState) -> list[str]:
    host, lines = snapshot.host, []
    if host is None:
        return []
    if (swapped := known(host.swap_in_bytes_per_s)) is not None and swapped > 1e6:
        lines.append(f"the machine swaps ({swapped / 2**20:.0f} MiB/s read back): it is short of memory")
    if (throttled := known(host.throttled_pct)) is not None and throttled > 5:
        lines.append(f"the container's CPU quota is used up in {throttled:.0f} % of its periods")
    if (others := known(host.others_cpu_pct)) is not None and others > BUSY_OTHERS_PCT:
        lines.append(f"other programs keep {others / 100:.1f} cores busy")
    if (stolen := known(host.steal_pct)) is not None and stolen > 5:
        lines.append(f"the hypervisor gives {stolen:.0f} % of a core to other machines")
    threads = lane.settings.get("threads")
    if isinstance(threads, int) and lane.spec.kind == "cpu" and threads < snapshot.machine.usable_cores:
        lines.append(f"threads={threads} leaves cores idle: {snapshot.machine.usable_cores:g} may be used")
    return lines


def _of_the_gpu(snapshot: Snapshot, lane: LaneState) -> list[str]:
    gpu = snapshot.gpu_of(lane)
    if gpu is None:
        return []
    reasons = () if isinstance(gpu.clock_reasons, Missing) else gpu.clock_reasons
    lines = [f"the GPU runs below full clocks: {one.text}" for one in reasons if one.level != "info"]
    if gpu.pcie_warning:
        lines.append(f"the GPU's link is narrow: {gpu.pcie_warning}")
    strangers = [pid for pid in gpu.used_by_pid if pid not in {p for one in snapshot.lanes for p in one.pids}]
    if strangers and not gpu.foreign_pids:
        lines.append(f"{len(strangers)} other programs hold memory of this GPU")
    return lines
