"""The parts of a step's time.

An asynchronous device's call returns early, so sampled steps between barriers give the device's time.
"""

from __future__ import annotations

from dataclasses import replace

from tfmon.analysis.bottleneck_rules import FURTHER_PCT, Shares
from tfmon.analysis.run_account import account_of
from tfmon.model.account import BEFORE, BETWEEN, CALLBACKS, INPUT, SAVING, START, STEPS, SUSPENDED, VALIDATION
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.lane_events import CauseSeen
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import Missing, Reading, known
from tfmon.model.windows import WindowSums

ASYNCHRONOUS = 0.25
"""Minimum work of an asynchronous device after a call, as a share of the call."""

SPLIT_ERROR = 0.4
"""Error of dispatch less compute, on a CPU. Source: nine profiles on a busy machine."""
LEAST_TRACES = 3
"""TensorFlow lets sizes vary after the second trace."""

PAUSES = ("between epochs", "validation", "evaluate", "predict", "outside the steps")

NO_COPY = Missing("the batch is in the host's memory already")
COPY_IN_STEP = Missing("the step splits the batch over the devices and copies the parts itself")
NOT_SPLIT = Missing("no profile tells how the step's time splits")
NOT_APART = Missing("no profile tells the calls of a step from the Python around them")
HIDDEN = Missing("the device keeps up with the launches, so its work is hidden behind them")
NOT_SAMPLED = Missing("no step was sampled yet")
NEVER_SAMPLED = Missing("only steps of TensorFlow are sampled")


@dataclass(frozen=True, slots=True)
class Whole:
    """The denominator of shares in sentences about a lane.

    A script's run without suspensions, or the time from first to last step.
    """

    ns: int
    """0 if unknown."""
    name: str
    steps: float
    """Share of the training steps."""

    def share(self, seen: CauseSeen) -> float:
        """Return the share of an observed cause."""
        whole_ns = self.ns or seen.of_ns
        return min(1.0, seen.cost_ns / whole_ns) if whole_ns else 0.0


def whole_of(lane: LaneState) -> Whole:
    """Return the denominator of shares in sentences."""
    account = account_of(lane) if lane.script.command else None
    if account is None:
        shares = lane.discarded_shares.items()
        pauses = (share for name, share in shares if name in PAUSES or name.startswith("callback "))
        return Whole(0, "the time", max(0.01, 1 - sum(pauses)))
    run_s, steps_s = account.run_s, account.groups.get(STEPS, 0.0)
    return Whole(round(1e9 * run_s), "the run", steps_s / run_s if run_s > 0 else 0.0)


TRAINING, PAUSED_PARTS, REST = "training", "pauses", "other"
WALL_PARTS = {
    TRAINING: (STEPS,), "input": (INPUT,), VALIDATION: (VALIDATION, "evaluate", "predict"), BETWEEN: (BETWEEN,),
    CALLBACKS: (CALLBACKS,), SAVING: (SAVING,), "start": (START, BEFORE, "warm-up"),
    PAUSED_PARTS: (SUSPENDED, "pause"), REST: (),
}  # fmt: skip
"""Parts of the wall time, with their groups of the account and reasons for discarding."""


def wall_parts(lane: LaneState) -> tuple[tuple[str, int], ...]:
    """Return the parts of the wall time in percent, with the sum 100. Empty if unknown."""
    account, shares = account_of(lane), shares_of(lane)
    if account is not None:
        times = dict(account.groups)
        times[INPUT] = sum(row.seconds for row in account.rows if (row.group, row.part) == (STEPS, INPUT))
    elif shares is not None:
        times = dict(lane.discarded_shares)
        times[STEPS] = max(0.0, 1 - sum(times.values()))
        times[INPUT] = times[STEPS] * (known(shares.input_pct) or 0.0) / 100
    else:
        return ()
    times[STEPS] = times.get(STEPS, 0.0) - times[INPUT]
    sums = dict.fromkeys(WALL_PARTS, 0.0)
    for name, time in times.items():
        sums[next((part for part, names in WALL_PARTS.items() if name in names), REST)] += time
    total = sum(sums.values())
    exact = {part: 100 * time / total for part, time in sums.items()} if total > 0 else {}
    whole = {part: int(share) for part, share in exact.items()}
    for part in sorted(exact, key=lambda part: whole[part] - exact[part])[: 100 - sum(whole.values())]:
        whole[part] += 1
    return tuple((part, share) for part, share in whole.items() if share)


def shares_of(lane: LaneState) -> Shares | None:
    """Return the shares since the last knob change."""
    tally = lane.steady
    if not tally.steps or tally.span_ns <= 0:
        return None
    if lane.step.calling_share is not None and lane.script.step:
        # A step lasts from one update to the next.
        tally = replace(tally, call_ns=round(tally.call_ns * lane.step.calling_share))
    asynchronous = lane.spec.kind == "gpu" or _runs_behind(tally)
    if asynchronous:
        is_script = bool(lane.script.command)
        unsampled = NEVER_SAMPLED if is_script and not lane.process.versions["tensorflow"] else NOT_SAMPLED
        shares = _on_a_device(tally, NO_COPY if lane.spec.devices == 1 or is_script else COPY_IN_STEP, unsampled)
    else:
        shares = _on_the_host(lane, tally)
    goes_on = tally.traced_steps >= LEAST_TRACES and shares.retrace_pct >= FURTHER_PCT
    shares = replace(
        shares,
        eager=not lane.settings.get("graph", True),
        retraced_steps_pct=100 * tally.traced_steps / tally.steps if goes_on else 0.0,
        # A single read waits for queued work: no stall.
        reading_pct=shares.reading_pct if lane.settings.get("sync_every_step", False) else 0.0,
    )
    if lane.step.calling_share is None and lane.script.step and not isinstance(shares.dispatch_pct, Missing):
        shares = replace(shares, dispatch_pct=NOT_APART)
    unknown = lane.script.not_measured.get("input")
    if not unknown:
        return shares
    missing = Missing(unknown)
    if asynchronous:  # the device's work includes its waits
        shares = replace(shares, dispatch_pct=missing, device_pct=missing)
    return replace(shares, input_pct=missing)


def _runs_behind(tally: WindowSums) -> bool:
    return bool(tally.sampled) and tally.sampled_tail_ns > ASYNCHRONOUS * tally.sampled_call_ns


def _on_the_host(lane: LaneState, tally: WindowSums) -> Shares:
    span = tally.span_ns
    step = 100 * tally.call_ns / span
    traced = min(100 * tally.traced_ns / span, step)
    dispatch: Reading = NOT_SPLIT
    device: Reading = NOT_SPLIT
    if lane.step.computing_share is not None:
        device = step * min(1.0, lane.step.computing_share)
        traced = min(traced, step - device)
        dispatch = step - device - traced
    rest = span - tally.input_ns - tally.call_ns - tally.sync_ns - tally.report_ns
    return Shares(
        input_pct=100 * tally.input_ns / span,
        copy_pct=NO_COPY,
        dispatch_pct=dispatch,
        device_pct=device,
        step_pct=step - traced,
        sync_pct=100 * tally.sync_ns / span,
        report_pct=100 * tally.report_ns / span,
        other_pct=100 * max(0, rest) / span,
        retrace_pct=traced,
        split_error=SPLIT_ERROR * (step - traced),
    )


def _on_a_device(tally: WindowSums, no_copy: Missing, unsampled: Missing) -> Shares:
    span, sampled_ns = tally.span_ns, tally.sampled * tally.span_ns / tally.steps
    report, reading = tally.report_ns / span, tally.sync_ns / span
    host = {"input": tally.input_ns / span, "call": tally.call_ns / span}
    host["other"] = max(0.0, 1 - (tally.input_ns + tally.call_ns + tally.sync_ns + tally.report_ns) / span)
    behind, copy = _runs_behind(tally), None
    if sampled_ns and tally.sampled_copy_ns is not None:
        copy = min(1.0, tally.sampled_copy_ns / sampled_ns)
    device = (tally.sampled_call_ns + tally.sampled_tail_ns) / sampled_ns if behind else 0.0
    busy = min(1.0 - report, device)
    # The device works while the host reads the loss.
    sync = max(0.0, reading - busy)
    left = max(0.0, 1 - busy - report - sync)
    total = sum(host.values()) or 1.0
    part = {name: share / total * left for name, share in host.items()}
    copied = min(copy or 0.0, part["input"] + part["call"])
    from_call = min(copied, part["call"])
    part["call"] -= from_call
    part["input"] -= copied - from_call
    traced = min(tally.traced_ns / span, part["call"])
    part["call"] -= traced
    return Shares(
        input_pct=100 * part["input"],
        copy_pct=unsampled if not tally.sampled else no_copy if copy is None else 100 * copied,
        dispatch_pct=100 * part["call"] if tally.sampled else unsampled,
        device_pct=unsampled if not tally.sampled else 100 * busy if behind else HIDDEN,
        step_pct=100 * (part["call"] + busy),
        sync_pct=100 * sync,
        reading_pct=100 * reading,
        report_pct=100 * report,
        other_pct=100 * part["other"],
        retrace_pct=100 * traced,
    )
