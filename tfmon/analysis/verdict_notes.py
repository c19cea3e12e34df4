"""Notes beside a verdict: limits of the figure, and other explanations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tfmon import units
from tfmon.analysis import statistics
from tfmon.analysis.finish import ALIKE
from tfmon.analysis.health import LESSER, concerns
from tfmon.analysis.others import contention
from tfmon.analysis.statistics import Throughput
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.host_states import GPU_THROTTLED, SWAPPING, THROTTLED
from tfmon.model.knobs import show
from tfmon.model.lane_relations import also_differing, contrast
from tfmon.model.lane_state import VERSIONS, LaneState
from tfmon.model.race import Machine
from tfmon.model.readings import Estimate, known
from tfmon.model.series import Pair
from tfmon.model.session import Snapshot

FALLEN = 0.75
"""Below this share of the highest, a GPU clock has fallen."""
MANY_OUTLIERS = 0.1
LATELY = 3
"""Outlying last pairs that indicate another phase of a script."""
_CONSTANT = {
    SWAPPING: ("this machine swaps", "{} swaps"),
    THROTTLED: ("the container's CPU quota is used up", "the CPU quota on {} is used up"),
    GPU_THROTTLED: ("the GPU is throttled", "the GPU of {} is throttled"),
}
"""Texts for the monitor's own machine, and for a host."""


def hung(snapshot: Snapshot) -> list[LaneState]:
    """Return the stalled lanes."""
    return [lane for lane in snapshot.lanes if lane.stalled_s(snapshot.at_ns) is not None]


def hangs(lane: LaneState, now_ns: int) -> str:
    """Return text about a stalled lane."""
    silent = units.seconds(lane.stalled_s(now_ns) or 0.0)
    return f"{lane.title} hangs, has sent nothing for {silent}, and is out of the race"


def concern_notes(snapshot: Snapshot) -> Iterator[str]:
    """Yield the concerns of each of several lanes."""
    for lane in snapshot.lanes if len(snapshot.lanes) > 1 else ():
        result = concerns(snapshot, lane) if lane not in hung(snapshot) else ()
        yield from (f"{lane.title}: {concern.text}" for concern in result if concern.id not in LESSER)


def unlike_phases(lanes: Sequence[LaneState]) -> str:
    """Return the phases of a script's lanes, if they differ."""
    now = {lane.script.places[-1] for lane in lanes if lane.script.places}
    before = {line for lane in lanes for line in lane.script.places[:-1]}
    if len(now) < 2 or not now & before:
        return ""
    where = ", ".join(f"{lane.spec.id} at {lane.script.places[-1]}" for lane in lanes if lane.script.places)
    return f"the lanes are in different phases of the script ({where})"


def note(
    snapshot: Snapshot, lanes: Sequence[tuple[LaneState, Throughput]], pairs: Sequence[Pair], *, undecided: bool
) -> str:
    """Return the limits of the figure. `pairs` compare the first lane with the last."""
    local = not any(lane.spec.host for lane, _ in lanes)
    took = contention([lanes[0][0].slices, lanes[-1][0].slices]).text(undecided=undecided, local=local)
    return "; ".join(text for text in (took, *_notes(lanes, pairs), *_fallen_clocks(snapshot)) if text)


def _notes(lanes: Sequence[tuple[LaneState, Throughput]], pairs: Sequence[Pair]) -> list[str]:
    notes = []
    for lane, throughput in lanes:
        if throughput.drift is not None:
            change = "sped up" if throughput.drift > 1 else "slowed"
            percent = 100 * abs(throughput.drift - 1)
            notes.append(f"{lane.title} {change} by {percent:.0f} % during this measurement")
    (fastest, _), outliers = lanes[0], statistics.outliers(pairs)
    done = [sum(part.examples for part in throughput.slices) for lane, throughput in lanes if lane.script.command]
    drifts = any(analysis.drift is not None and not lane.script.places for lane, analysis in lanes)
    changed = outliers[-LATELY:] == [True] * LATELY or drifts
    if done and max(done) > ALIKE * min(done) and changed:
        places = ", ".join(f"{lane.spec.id} after step {units.count(lane.totals.steps)}" for lane, _ in lanes)
        notes.insert(0, f"the ratio changed, and the script's phases may not be alike: {places}")
    elif sum(outliers) > max(1, MANY_OUTLIERS * len(fastest.slices)):
        notes.append(f"{sum(outliers)} outlying pairs: something else disturbs the lanes")
    reasons = sorted({(reason, lane.spec.host) for lane, _ in lanes for reason in lane.measurements.constant})
    disturbances = [(lane.title, lane.process.unlike) for lane, _ in lanes]
    notes += [f"{title} is disturbed: {', '.join(reasons)}" for title, reasons in disturbances if reasons]
    for reason, host in reasons:
        local, remote = _CONSTANT.get(reason, (reason, f"{reason} on {{}}"))
        subject = remote.format(host) if host else local
        notes.append(f"{subject} most of the time; the figures include that")
    return notes


def _fallen_clocks(snapshot: Snapshot) -> list[str]:
    notes = []
    for lane, gpu in ((state, gpu) for state in snapshot.lanes for gpu in snapshot.gpus_of(state)):
        history = snapshot.place_of(lane).gpu_history.get(gpu.key, ())
        # An idle GPU has low clocks before the race.
        samples = [sample for sample in history if lane.slices and sample.at_ns >= lane.slices[0].at_ns]
        clocks = [clock for clock in (known(sample.clocks.sm_clock_mhz) for sample in samples) if clock]
        if len(clocks) > 1 and min(clocks) < FALLEN * max(clocks):
            span = f"{min(clocks):.0f} to {max(clocks):.0f} MHz"
            which = lane.title if lane.spec.devices == 1 else f"gpu:{gpu.index} in {lane.title}"
            notes.append(f"the GPU clock of {which} falls between slices ({span}); a longer --slice hides it")
    return notes


AUTO = 'jit_compile="auto" of Keras 3 compiles only where there is a GPU'
EQUAL = {
    "xla": (AUTO, "--set xla=off"),
    "mixed_precision": ("some compute in 16 bits", "--set mixed_precision=off"),
    "threads of an operation": ("TensorFlow uses different numbers of threads", "--set threads=4"),
    "operations at a time": ("TensorFlow uses different numbers of threads", "--set inter_threads=4"),
    "TF32": (
        "matrix products are rounded differently",
        "tf.config.experimental.enable_tensor_float_32_execution(False)",
    ),
    "op determinism": ("it also turns XLA off", "the same call in both"),
    "TF_ENABLE_ONEDNN_OPTS": ("the CPU uses different kernels", "the same value in both"),
}
"""Why resolved values differ, and how to make them equal."""


_LEVERS = {"threads of an operation": "threads", "operations at a time": "inter_threads"}


def resolved_notes(snapshot: Snapshot) -> Iterator[str]:
    """Yield defaults that were resolved differently between lanes."""
    offered = {knob.name for knob in snapshot.race.knobs}
    settings = [name for name in also_differing(snapshot.lanes) if name in EQUAL and name not in offered]
    values = {name: [show(lane.in_effect.get(name, "?")) for lane in snapshot.lanes] for name in settings}
    started = contrast([lane.spec for lane in snapshot.lanes])
    for name in snapshot.lanes[0].script.resolved if snapshot.lanes else ():
        if _LEVERS.get(name) in started:
            continue
        values[name] = [lane.script.resolved.get(name, "?") for lane in snapshot.lanes]
    machines = {snapshot.machine_key(lane) for lane in snapshot.lanes}
    if len(machines) == 1:  # else `machine_differences` reports versions
        for name in VERSIONS:
            versions = [lane.process.versions[name] or "?" for lane in snapshot.lanes]
            if "?" not in versions and len(set(versions)) > 1:
                yield f"{name} is {_where(snapshot.lanes, versions)}"
    for name, each in values.items():
        if "?" not in each and len(set(each)) > 1 and name in EQUAL:
            why, helps = EQUAL[name]
            if why == AUTO and len({lane.spec.kind for lane in snapshot.lanes}) == 1:
                why = "the script or its machine compiles them differently"
            yield f"{name} is {_where(snapshot.lanes, each)}: {why}; {helps} makes them equal"


def _where(lanes: Sequence[LaneState], values: Sequence[str]) -> str:
    where: dict[str, list[str]] = {}
    for lane, value in zip(lanes, values, strict=True):
        where.setdefault(value, []).append(lane.spec.id)
    return ", ".join(f"{value} in {' and '.join(ids)}" for value, ids in where.items())


HERE = "here"


@dataclass(frozen=True, slots=True)
class MachineDifference:
    """A fact that differs between machines."""

    what: str
    values: tuple[tuple[str, str], ...]
    """Values by host, "" for the monitor's own machine."""

    @property
    def text(self) -> str:
        """Text such as "cores: 2 here, 16 on gpu2"."""
        values = (f"{value} {f'on {host}' if host else HERE}" for host, value in self.values)
        return f"{self.what}: {', '.join(values)}"


def machine_differences(snapshot: Snapshot, lanes: Sequence[LaneState]) -> tuple[MachineDifference, ...]:
    """Return the known differences between the lanes' machines."""
    if len({snapshot.machine_key(lane) for lane in lanes}) < 2:
        return ()
    on_gpus = [lane for lane in lanes if lane.spec.kind == "gpu"]
    same_model = len({snapshot.device_name(lane) for lane in on_gpus}) == 1
    facts: tuple[tuple[str, Sequence[LaneState], Callable[[LaneState, Machine], str]], ...] = (
        ("TensorFlow", lanes, lambda lane, machine: lane.process.versions["tensorflow"] or machine.tensorflow),
        ("driver", on_gpus, lambda lane, machine: machine.driver),
        ("cores", lanes, lambda lane, machine: str(machine.cores or "")),
        ("quota", lanes, lambda lane, machine: _quota(machine)),
        ("nice", lanes, lambda lane, machine: "" if machine.nice is None else str(machine.nice)),
        ("power limit", on_gpus if same_model else (), lambda lane, machine: _power_limit(snapshot, lane)),
    )
    result = []
    for what, concerned, value_of in facts:
        values = {lane.spec.host: value_of(lane, snapshot.machine_of(lane)) for lane in concerned}
        if all(values.values()) and len(set(values.values())) > 1:
            result.append(MachineDifference(what, tuple(values.items())))
    return tuple(result)


def _quota(machine: Machine) -> str:
    if machine.quota_cores is not None:
        return f"{machine.quota_cores:g} cores"
    return "none" if machine.cores else ""


def _power_limit(snapshot: Snapshot, lane: LaneState) -> str:
    gpu, limits = next(iter(snapshot.gpus_of(lane)), None), snapshot.machine_of(lane).power_limits_w
    limit = known(gpu.power.power_limit_w) if gpu is not None else None
    if limit is None and lane.spec.index < len(limits) and not lane.spec.is_instance:
        limit = limits[lane.spec.index]
    return "" if limit is None else f"{limit:.0f} W"


Ratio = Callable[[LaneState, LaneState], Estimate | None]
_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")


@dataclass(frozen=True, slots=True)
class Scaling:
    """The throughput over the lane with the fewest devices."""

    lane: str
    devices: int
    over: int
    kind: str
    ratio: Estimate
    of_linear: float
    """`ratio` over the ratio of devices."""

    def text(self, more: str = "") -> str:
        """Return text such as "2 GPUs are 1.71× one (86 % of linear)"."""
        factor, interval = units.ratio_in(self.ratio.value, self.ratio.low, self.ratio.high)
        fewer = _COUNTS[self.over] if self.over < len(_COUNTS) else str(self.over)
        linear = units.percent(100 * self.of_linear)
        return f"{self.devices} {self.what} are {factor} {fewer} ({linear} of linear; 95 % CI {interval}{more})"

    @property
    def what(self) -> str:
        """The devices. Logical CPUs share cores."""
        return "GPUs" if self.kind == "gpu" else "logical CPUs"


def scaling(lane: str, devices: tuple[int, int], kind: str, ratio: Estimate) -> Scaling:
    """Return the scaling of two numbers of devices."""
    more, fewer = devices
    return Scaling(lane, more, fewer, kind, ratio, ratio.value * fewer / more)


def scaling_of(snapshot: Snapshot, lanes: Sequence[LaneState], ratio: Ratio) -> tuple[Scaling, ...]:
    """Return the scaling, if only the number of devices differs."""
    ordered = sorted(lanes, key=lambda lane: lane.spec.devices)
    counts = [lane.spec.devices for lane in ordered]
    alike = {(lane.spec.host, lane.spec.kind) for lane in lanes}
    models = {gpu.name for lane in lanes for gpu in snapshot.gpus_of(lane)}
    if len(set(counts)) < len(counts) or len(alike) != 1 or snapshot.differing or len(models) > 1:
        return ()
    fewest, result = ordered[0], []
    for lane in ordered[1:]:
        devices = (lane.spec.devices, fewest.spec.devices)
        if (estimate := ratio(lane, fewest)) is not None:
            result.append(scaling(lane.spec.id, devices, lane.spec.kind, estimate))
    return tuple(result)
