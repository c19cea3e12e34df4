"""The bottleneck of a lane, and other causes of slowness.

The activity of a busy GPU is the limit that it is near. Its shares are of the time in which kernels ran. Sources:
Nsight Compute (a limit from 60 % of the peak on), DCGM's manual (less than half of the multiprocessors is
ineffective use).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tfmon import units
from tfmon.analysis.bottleneck_rules import FURTHER_PCT, Shares, find_kinds, sentence
from tfmon.analysis.causes import Cause, causes_of, explains
from tfmon.analysis.health import retraces_of
from tfmon.analysis.others import REPORTED_SHARE, contention, gpu_others
from tfmon.analysis.run_account import account_of
from tfmon.analysis.shares import PAUSES, shares_of, whole_of
from tfmon.model.account import OUTSIDE
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.gpu_samples import ALARM, WARNING, GpuSample, holders, process_text
from tfmon.model.host_states import own_pids
from tfmon.model.lane_events import EAGER
from tfmon.model.lane_state import LaneState
from tfmon.model.lane_use import GpuUse
from tfmon.model.profile import BottleneckKind
from tfmon.model.race import CONCURRENT
from tfmon.model.readings import Missing, known
from tfmon.model.session import Snapshot
from tfmon.model.windows import Mean

LEAST_WINDOWS = 3
BUSY_OTHERS_PCT = 50.0
MACHINE_BUSY = "machine busy"

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
LARGE_CAUSE_PCT, LARGE_PART_PCT = 20.0, 25.0
"""Minimum reported shares of a cause or pause, and of a part of step time."""

LIMIT_PCT = 60.0
SMALL_PCT, IDLE_PCT = 50.0, 50.0
"""Maximum use of the multiprocessors by small kernels, and maximum time of kernels of a waiting GPU."""
LEAST_SAMPLES, LEAST_KERNELS_PCT, LEAST_BUSY_PCT = 3, 2.0, 20.0
NO_TENSOR_PCT = 1.0

LARGER = "a larger batch, or fused operations, give each more to do"
TENSOR = "16 bits, or TF32, use them where dimensions are multiples of 8"
FEWER_BYTES = "fused operations, or 16 bits, move fewer bytes"


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The limit of a lane's speed."""

    kind: BottleneckKind
    limit: str
    shares: Shares
    causes: tuple[Cause, ...] = ()
    """Observed causes, the costliest first, then suggestions."""
    also: tuple[str, ...] = ()
    size_pct: float = 100.0
    taken_by_others: str = ""
    """Short text about use by other processes."""

    @property
    def text(self) -> str:
        """The limit, with the use by other processes."""
        return f"{self.limit} ({self.taken_by_others})" if self.taken_by_others else self.limit

    @property
    def line(self) -> str:
        """The text with the first cause."""
        return "; ".join(filter(None, (self.text, self.cause)))

    @property
    def cause(self) -> str:
        """The first cause in a few words."""
        return next((cause.brief for cause in self.causes[:1]), "")

    @property
    def help(self) -> str:
        """A remedy, or ""."""
        first = self.supposed or next(iter(self.causes), None)
        if first is None or not first.code:
            return "" if first is None else first.advice
        return f"may help: {first.remedy}"

    @property
    def notes(self) -> tuple[str, ...]:
        """Other reasons for slowness, and the likeliest remedy."""
        return (*self.also, self.help) if self.supposed is not None else self.also

    @property
    def supposed(self) -> Cause | None:
        """The likeliest remedy, unless observed causes suffice."""
        if any(cause.count for cause in self.causes) and explains(self.causes, self.size_pct):
            return None
        return next((cause for cause in self.causes if not cause.count), None)


def find_bottleneck(snapshot: Snapshot, lane: LaneState, *, everything: bool = False) -> Bottleneck | None:
    """Return the bottleneck, if enough is measured. `everything` adds further advice."""
    shares = shares_of(lane)
    if shares is None or lane.steady.windows < LEAST_WINDOWS:
        return None
    kinds, whole = find_kinds(shares), whole_of(lane)
    of_time = shares.of_time(whole.steps)
    match kinds[0]:
        case "retracing":
            traces, share = retraces_of(lane, whole)
            always = shares.retraced_steps_pct > 95 and not lane.script.causes
            often = "every step" if always else units.several(traces, "trace")
            cause = f" ({lane.step.traced})" if lane.step.traced and not lane.script.causes else ""
            text = f"retracing: {often}, {100 * share:.0f} % of {whole.name}{cause}"
        case "step":
            eager = "eager " if EAGER in lane.script.step_traits else ""
            part = f"{eager}step and the Python around it" if lane.script.step else "training step"
            text = f"{of_time.step_pct:.0f} %{f' of {whole.name}' if whole.ns else ''} in the {part}"
            by_tensorflow = not lane.script.command or lane.process.versions["tensorflow"]
            if by_tensorflow and not lane.over:
                text = f"{text}; a profile (P) breaks it down"
        case _:
            text = sentence(kinds, of_time, _PHRASES, whole.name)
    also = [
        *_of_the_host(snapshot, lane),
        *(line for gpu in snapshot.gpus_of(lane) for line in _of_one_gpu(snapshot, lane, gpu)),
    ]
    others = gpu_others(lane)
    taken = others.short if others is not None and others.shown else ""
    if not taken:
        all_the_time = len(snapshot.lanes) == 1 or snapshot.race.mode == CONCURRENT
        also += filter(None, [activity_text(lane.gpu_use, all_the_time=all_the_time)])
        busy = (known(contention([lane.slices]).slices_share) or 0.0) > REPORTED_SHARE
        taken = MACHINE_BUSY if busy else ""
    if lane.spec.devices > 1 and not lane.script.command:
        counts = "computing; a profile separates it" if lane.spec.kind == "gpu" else "starting the step"
        also.append(f"all-reduce of the gradients counts as {counts}")
    small = lane.over and bool(whole.ns) and of_time.share(kinds[0]) < FURTHER_PCT
    wanted = [] if small and not everything else [*kinds]
    if everything:
        hidden: list[BottleneckKind] = ["step"] if isinstance(of_time.device_pct, Missing) else []
        parts: list[BottleneckKind] = ["input", "transfer", "dispatch", "compute", *hidden]
        large = [part for part in parts if of_time.share(part) >= FURTHER_PCT]
        wanted += sorted(large, key=of_time.share, reverse=True)
    causes = causes_of(lane, wanted, snapshot.race.knobs)
    causes = tuple(cause for cause in causes if cause.id not in snapshot.race.ignored_causes)
    kind: BottleneckKind = kinds[0] if len(kinds) == 1 else "mixed"
    return Bottleneck(kind, text, shares, causes, tuple(also), of_time.share(kinds[0]), taken)


def loss_text(lane: LaneState, bottleneck: Bottleneck | None) -> str:
    """Return the largest avoidable loss besides traces, or ""."""
    causes: Iterable[Cause] = causes_of(lane) if bottleneck is None else bottleneck.causes
    causes = [cause for cause in causes if not cause.id.startswith("retrace_")]
    losses = [(cause.share_pct, cause.brief) for cause in causes if cause.share_pct]
    whole, account = whole_of(lane), account_of(lane)
    shares = lane.discarded_shares
    if whole.ns and account is not None:
        shares = {reason: 1e9 * seconds / whole.ns for reason, seconds in account.groups.items()}
    left_out = ((reason, 100 * share) for reason, share in shares.items() if reason in (*PAUSES, OUTSIDE))
    losses += [(share, f"{units.percent(share)} of {whole.name} is {reason}") for reason, share in left_out]
    if bottleneck is not None:
        kinds, of_time = find_kinds(bottleneck.shares), bottleneck.shares.of_time(whole.steps)
        counted: list[BottleneckKind] = ["input", "transfer", "other"]
        counted += kinds[:1] if kinds[0] in ("dispatch", "eager") and "compute" not in kinds else ()
        parts = {kind: of_time.share(kind) for kind in counted} | {"sync": of_time.sync_pct}
        kind = max(parts, key=lambda kind: parts[kind])
        text = bottleneck.line if kind in kinds else f"{_PHRASES[kind]} takes {parts[kind]:.0f} % of {whole.name}"
        losses += [(parts[kind], text)] if parts[kind] >= LARGE_PART_PCT else []
    return max((loss for loss in losses if loss[0] >= LARGE_CAUSE_PCT), default=(0.0, ""))[1]


def activity_text(use: GpuUse, *, all_the_time: bool = False) -> str:
    """Return the activity as text. With `all_the_time`, an idle GPU waits for its lane."""
    busy, kernels = use.racing_busy_pct.value or 0.0, use.racing_activity.get("kernels_pct", Mean()).value
    sampled = ((name, mean) for name, mean in use.racing_activity.items() if mean.samples >= LEAST_SAMPLES)
    means = {name: mean.value for name, mean in sampled if mean.value is not None}
    if kernels is not None and busy >= LEAST_BUSY_PCT and kernels < busy / 10:
        return f"the GPU copies more than it computes: busy {busy:.0f} %, kernels run {kernels:.0f} % of the time"
    kernels = means.get("kernels_pct", 0.0)
    if kernels < LEAST_KERNELS_PCT:
        return ""
    shares = {name: 100 * value / kernels for name, value in means.items()}
    sm, tensor, memory = (shares.get(name, 0.0) for name in ("sm_pct", "tensor_pct", "memory_pct"))
    busiest, bits = max((shares.get(f"fp{bits}_pct", 0.0), bits) for bits in (64, 32, 16))
    rest = f"; tensor cores are idle: {TENSOR}" if tensor < NO_TENSOR_PCT else ""
    if memory >= LIMIT_PCT:
        return f"kernels use {memory:.0f} % of the GPU memory's bandwidth, which limits them: {FEWER_BYTES}"
    if tensor >= LIMIT_PCT:
        return f"the tensor cores work {tensor:.0f} % of the time of kernels: near the GPU's peak"
    if busiest >= LIMIT_PCT:
        return f"the units for {bits} bits work {busiest:.0f} % of the time of kernels: near their peak{rest}"
    if sm < SMALL_PCT:
        waits = all_the_time and kernels < IDLE_PCT
        run = f"run {_share(kernels)} of the time, and are small" if waits else "run, but small ones"
        return f"kernels {run}: they fill {_share(sm)} of the multiprocessors; {LARGER}"
    figures = f"multiprocessors {sm:.0f} %, memory {memory:.0f} %, tensor cores {tensor:.0f} %"
    return f"kernels are near no limit of the GPU ({figures}){rest}"


def _share(percent: float) -> str:
    return f"{percent:.0f} %" if percent >= 1 else "less than 1 %"


def _of_the_host(snapshot: Snapshot, lane: LaneState) -> list[str]:
    host, lines = snapshot.place_of(lane).sample, []
    if host is None:
        return []
    if (swapped := known(host.swap_in_bytes_per_s)) is not None and swapped > 1e6:
        lines.append(f"the machine swaps ({swapped / 2**20:.0f} MiB/s read back): it is short of memory")
    if (throttled := known(host.throttled_pct)) is not None and throttled > 5:
        lines.append(f"the container's CPU quota is used up in {throttled:.0f} % of its periods")
    if (others_pct := known(host.others_cpu_pct)) is not None and others_pct > BUSY_OTHERS_PCT:
        lines.append(f"other programs keep {others_pct / 100:.1f} cores busy")
    if (stolen := known(host.steal_pct)) is not None and stolen > 5:
        lines.append(f"the hypervisor gives {stolen:.0f} % of a core to other machines")
    threads, cores = lane.settings.get("threads"), snapshot.machine_of(lane).usable_cores
    if isinstance(threads, int) and lane.spec.kind == "cpu" and threads < cores:
        lines.append(f"threads={threads} leaves cores idle: {cores:g} may be used")
    return lines


def _of_one_gpu(snapshot: Snapshot, lane: LaneState, gpu: GpuSample) -> list[str]:
    which = "the GPU" if lane.spec.devices == 1 else f"gpu:{gpu.index}"
    lines = [f"{which} runs below full clocks: {text}" for text in gpu.clocks.lowered_by(WARNING, ALARM)]
    if gpu.link.warning:
        lines.append(f"{which}'s link is narrow: {gpu.link.warning}")
    if (use := gpu_others(lane, gpu.index)) is not None and use.shown:
        lines.append(f"{use.text}: try changes after those processes have ended")
    lane_pids = own_pids(snapshot.hosts, snapshot.lanes, lane.spec.host)
    held = {} if gpu.processes.foreign_pids else holders(gpu.processes, lane_pids)
    if held:
        name = gpu.processes.names.get(next(iter(held)))
        most = f", {'the most ' if len(held) > 1 else ''}by {process_text(name)}" if name else ""
        used = units.memory(sum(held.values()))
        whose = "this GPU's memory" if lane.spec.devices == 1 else f"the memory of {which}"
        lines.append(f"others hold {used} of {whose}{most}")
    return lines
