"""Where the time of a step goes, the bottleneck that this shows, and what else slows a lane down. Pure.

Clocks run on every step, and barriers around sampled ones. On an asynchronous device a step call returns before
the work is done, and the host's waits hide behind the device. So the sampled steps, drained before and after, tell
how long the device takes; the rest of a step's time is divided by what the host did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tfmon import units
from tfmon.analysis.advice import Advice, advice_for
from tfmon.analysis.causes import Cause, causes_of
from tfmon.analysis.others import TOLD, contention, gpu_others
from tfmon.analysis.rules import Evidence, find_kinds, sentence
from tfmon.model.gpu_others import holders, process_text
from tfmon.model.hosts import own_pids
from tfmon.model.lane_state import LaneState
from tfmon.model.profile import BottleneckKind
from tfmon.model.readings import GpuSample, Missing, Reading, known
from tfmon.model.session import Snapshot
from tfmon.model.window_sums import WindowSums

ASYNCHRONOUS = 0.25
"""Work that is left after the call, as a share of the call, from which on the device runs behind the host."""

NO_COPY = Missing("the batch is in the host's memory already")
COPY_IN_STEP = Missing("the step splits the batch over the devices and copies the parts itself")
NOT_SPLIT = Missing("no profile tells how the step's time splits")
NOT_APART = Missing("no profile tells the calls of a step from the Python around them")
HIDDEN = Missing("the device keeps up with the launches, so its work is hidden behind them")
NOT_SAMPLED = Missing("no step was sampled yet")


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of step time in percent of it; those that are known add up to 100.

    Source: `events.Window`: sums over all steady steps, and over sampled steps for what the device does.
    """

    input_pct: Reading
    """Waiting for the next batch while the device is idle; part of the step where it cannot be known."""
    copy_pct: Reading
    """Copying the batch to the device, at most: a step that is not sampled overlaps some of it."""
    dispatch_pct: Reading
    """Starting the step's operations; on the CPU the part of a call in which none of them ran."""
    device_pct: Reading
    """The device computes."""
    step_pct: float
    """Dispatch and compute together, without tracing; for a script's own loop also Python, before a profile."""
    sync_pct: float
    """Reading the loss while the device does not compute."""
    report_pct: float
    """tfmon's own work in the lane."""
    other_pct: float
    """The rest: Python between the steps."""
    reading_pct: float = 0.0
    """Reading the loss, also while the device computes: overlaps with `device_pct`."""
    retrace_pct: float = 0.0
    """Calls in which a tf.function was traced, without their computing where that is known."""
    asynchronous: bool = False
    """True where the device works while the host goes on."""


def shares_of(lane: LaneState) -> Shares | None:
    """Return where the step time of a lane went since its knobs last changed; None before the first step."""
    tally = lane.steady
    if not tally.steps or tally.span_ns <= 0:
        return None
    if lane.calling_share is not None and lane.step:
        # A step of a script's own loop lasts from one update to the next.
        tally = replace(tally, call_ns=round(tally.call_ns * lane.calling_share))
    if lane.spec.kind == "gpu" or _runs_behind(tally):
        shares = _on_a_device(tally, NO_COPY if lane.spec.devices == 1 or lane.command else COPY_IN_STEP)
    else:
        shares = _on_the_host(lane, tally)
    if lane.calling_share is None and lane.step and not isinstance(shares.dispatch_pct, Missing):
        shares = replace(shares, dispatch_pct=NOT_APART)
    unknown = lane.not_measured.get("input")
    return replace(shares, input_pct=Missing(unknown)) if unknown else shares


def _runs_behind(tally: WindowSums) -> bool:
    return bool(tally.sampled) and tally.sampled_tail_ns > ASYNCHRONOUS * tally.sampled_call_ns


def _on_the_host(lane: LaneState, tally: WindowSums) -> Shares:
    """Return the shares where a call returns when its work is done; a short profile tells how the call splits."""
    span = tally.span_ns
    step = 100 * tally.call_ns / span
    traced = min(100 * tally.traced_ns / span, step)
    dispatch: Reading = NOT_SPLIT
    device: Reading = NOT_SPLIT
    if lane.computing_share is not None:
        device = step * min(1.0, lane.computing_share)
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
        reading_pct=100 * tally.sync_ns / span,
        report_pct=100 * tally.report_ns / span,
        other_pct=100 * max(0, rest) / span,
        retrace_pct=traced,
    )


def _on_a_device(tally: WindowSums, no_copy: Missing) -> Shares:
    """Return the shares on an asynchronous device: its own first, the rest by what the host did."""
    span, period = tally.span_ns, tally.span_ns / tally.steps
    report = tally.report_ns / span
    host = {
        "input": tally.input_ns / span,
        "call": tally.call_ns / span,
        "sync": tally.sync_ns / span,
        "other": max(0.0, 1 - (tally.input_ns + tally.call_ns + tally.sync_ns + tally.report_ns) / span),
    }
    if not tally.sampled:
        device, launches = None, None
    else:
        device = (tally.sampled_call_ns + tally.sampled_tail_ns) / tally.sampled / period
        launches = tally.sampled_call_ns / tally.sampled / period
    behind = _runs_behind(tally)
    copy = None
    if tally.sampled and tally.sampled_copy_ns is not None:
        copy = min(1.0, tally.sampled_copy_ns / tally.sampled / period)
    busy = min(1.0 - report, device) if device is not None and behind else 0.0
    # While the host reads the loss, the device works as long as it has work.
    sync = max(0.0, host["sync"] - busy)
    left = max(0.0, 1 - busy - report - sync)
    total = host["input"] + host["call"] + host["other"] or 1.0
    part = {name: host[name] / total * left for name in ("input", "call", "other")}
    copied = min(copy or 0.0, part["input"] + part["call"])
    from_call = min(copied, part["call"])
    part["call"] -= from_call
    part["input"] -= copied - from_call
    traced = min(tally.traced_ns / span, part["call"])
    part["call"] -= traced
    return Shares(
        input_pct=100 * part["input"],
        copy_pct=NOT_SAMPLED if not tally.sampled else no_copy if copy is None else 100 * copied,
        dispatch_pct=NOT_SAMPLED if launches is None else 100 * part["call"],
        device_pct=NOT_SAMPLED if device is None else 100 * busy if behind else HIDDEN,
        step_pct=100 * (part["call"] + busy),
        sync_pct=100 * sync,
        reading_pct=100 * host["sync"],
        report_pct=100 * report,
        other_pct=100 * part["other"],
        retrace_pct=100 * traced,
        asynchronous=True,
    )


LEAST_WINDOWS = 3
BUSY_OTHERS_PCT = 50.0
"""Half a core that other programs keep busy is reported."""

_PHRASES: Mapping[BottleneckKind, str] = {
    "compute": "computing",
    "input": "waiting for batches",
    "sync": "reading each loss",
    "transfer": "copying to the device",
    "all-reduce": "adding gradients up over the devices",
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
    causes: tuple[Cause, ...] = ()
    """Why, as the script's process observed it, the costliest first."""

    @property
    def line(self) -> str:
        """The sentence with the costliest cause, for a pane."""
        return "; ".join((self.text, *(one.brief for one in self.causes[:1])))


def find_bottleneck(snapshot: Snapshot, lane: LaneState) -> Bottleneck | None:
    """Return the bottleneck of a lane under the settings in effect; None before enough is measured."""
    shares = shares_of(lane)
    if shares is None or lane.steady.windows < LEAST_WINDOWS:
        return None
    evidence = evidence_of(lane, shares)
    kinds = find_kinds(evidence)
    match kinds[0]:
        case "retracing":
            share = evidence.retraced_steps
            often = "every step" if share > 95 else f"{share:.0f} % of the steps"
            cause = f" ({lane.traced})" if lane.traced and not lane.causes else ""
            text = f"retracing: {often}, {evidence.retracing:.0f} % of the time{cause}"
        case "step":
            what = "step and the Python around it" if lane.step else "training step"
            text = f"{evidence.step:.0f} % in the {what}"
            if not lane.command or lane.versions["tensorflow"]:  # a profile is taken by TensorFlow
                text = f"{text}; a profile (P) breaks it down"
        case _:
            text = sentence(kinds, evidence, _PHRASES)
    if shared := _shared(lane):
        text = f"{text} ({shared})"
    advice = tuple(one for kind in kinds for one in advice_for(kind, lane, snapshot.race.knobs))
    also = (
        *_of_the_host(snapshot, lane),
        *(line for gpu in snapshot.gpus_of(lane) for line in _of_one_gpu(snapshot, lane, gpu)),
    )
    if lane.spec.devices > 1 and not lane.command:  # the windows do not tell it apart
        counts = "computing; a profile tells it apart" if lane.spec.kind == "gpu" else "starting the step"
        also = (*also, f"all-reduce of the gradients counts as {counts}")
    return Bottleneck(kinds[0] if len(kinds) == 1 else "mixed", text, shares, advice, also, causes_of(lane))


def _shared(lane: LaneState) -> str:
    """Say what others took of the lane's GPU or cores, so that the figures are not blamed on its model alone."""
    others, took = gpu_others(lane), contention([lane.slices])
    if others is not None and others.shown:
        return others.short
    if not isinstance(took.slices_share, Missing) and took.slices_share > TOLD:
        return "machine busy"
    return ""


def evidence_of(lane: LaneState, shares: Shares) -> Evidence:
    """Return the bottleneck that the windows of a lane show."""
    steady = lane.steady
    # Without a read in every step, the one read at the end of a window waits for work that is queued: no stall.
    reads = shares.asynchronous and lane.settings.get("sync_every_step", False)
    return Evidence(
        retraced_steps=100 * steady.traced_steps / steady.steps,
        eager=not lane.settings.get("graph", True),
        input=known(shares.input_pct) or 0.0,
        transfer=known(shares.copy_pct) or 0.0,
        dispatch=known(shares.dispatch_pct),
        compute=known(shares.device_pct),
        step=shares.step_pct,
        reading=shares.reading_pct if reads else 0.0,
        sync=shares.sync_pct,
        other=shares.other_pct,
        retracing=shares.retrace_pct,
    )


def _of_the_host(snapshot: Snapshot, lane: LaneState) -> list[str]:
    host, lines = snapshot.place_of(lane).sample, []
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
    threads, cores = lane.settings.get("threads"), snapshot.machine_of(lane).usable_cores
    if isinstance(threads, int) and lane.spec.kind == "cpu" and threads < cores:
        lines.append(f"threads={threads} leaves cores idle: {cores:g} may be used")
    return lines


def _of_one_gpu(snapshot: Snapshot, lane: LaneState, gpu: GpuSample) -> list[str]:
    which = "the GPU" if lane.spec.devices == 1 else f"gpu:{gpu.index}"
    reasons = () if isinstance(gpu.clock_reasons, Missing) else gpu.clock_reasons
    lines = [f"{which} runs below full clocks: {one.text}" for one in reasons if one.level != "info"]
    if gpu.pcie_warning:
        lines.append(f"{which}'s link is narrow: {gpu.pcie_warning}")
    if (others := gpu_others(lane, gpu.index)) is not None and others.shown:
        lines.append(f"{others.text}: what may help is best tried when they are gone")
    held = [] if gpu.foreign_pids else holders(gpu, own_pids(snapshot.hosts, snapshot.lanes, lane.spec.host))
    if held:
        most = f", {'the most ' if len(held) > 1 else ''}by {process_text(held[0].name)}" if held[0].name else ""
        used = units.memory(sum(one.used_bytes for one in held))
        whose = "this GPU's memory" if lane.spec.devices == 1 else f"the memory of {which}"
        lines.append(f"others hold {used} of {whose}{most}")
    return lines
