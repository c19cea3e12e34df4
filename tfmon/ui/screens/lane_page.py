"""The page of a lane."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import ClassVar

from rich.cells import cell_len
from textual.binding import BindingType

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.analysis.batch_memory import BatchMemory, batch_memory
from tfmon.analysis.bottleneck import Bottleneck
from tfmon.analysis.causes import Cause, code_to_keep, setting_text
from tfmon.analysis.health import concerns
from tfmon.analysis.memory_peak import latest_peaks, memory_sentence
from tfmon.analysis.others import gpu_others, windows_with_others
from tfmon.analysis.run_account import account_lines, account_of
from tfmon.model.gpu_samples import GpuActivity, GpuSample
from tfmon.model.host_states import HISTORY_SAMPLES
from tfmon.model.lane_state import VERSIONS, LaneState
from tfmon.model.lane_use import GpuPart
from tfmon.model.race import Machine
from tfmon.model.readings import NOT_READ, HostSample, Missing, Reading, known
from tfmon.model.requests import Command
from tfmon.model.session import Snapshot
from tfmon.ui.render import chart, reading_rows
from tfmon.ui.render.reading_rows import UNKNOWN, time_parts
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, beside, crop, entry, section
from tfmon.ui.render.style import STRONG, WARN
from tfmon.ui.screens.page import bound
from tfmon.ui.screens.text_pages import OneLanePage

_MEANINGS = {
    "input": "waiting for the next batch",
    "copy": "copying the batch to the device, at most",
    "dispatch": "starting the step's operations, while none of them ran",
    "compute": "the device computes",
    "retrace": "tracing a tf.function again",
    "step": "the step, which no profile breaks down yet",
    "sync": "waiting for the device where the loss is read",
    "tfmon": "tfmon's own work in the lane",
    "other": "Python between the steps",
}
_CURVES: dict[type, dict[str, tuple[str, Callable[[float], str]]]] = {
    GpuSample: {
        "busy": ("load.busy_pct", units.percent),
        "memory": ("memory.used_bytes", units.memory),
        "power": ("power.power_w", units.watts),
        "temperature": ("temperature_c", units.celsius),
        "clocks": ("clocks.sm_clock_mhz", units.megahertz),
    },
    HostSample: {"cpu": ("cpu_pct", units.percent), "others": ("others_cpu_pct", units.percent)},
}
_ACTIVITY = {
    "kernels_pct": "kernels", "sm_pct": "multiprocessors", "occupancy_pct": "occupancy",
    "tensor_pct": "tensor cores", "memory_pct": "memory", "fp32_pct": "32 bits", "fp16_pct": "16 bits",
    "fp64_pct": "64 bits",
}  # fmt: skip
_CODE_CELLS = 6
Lines = Iterator[tuple[str, str]]


class LanePage(OneLanePage):
    """Shows all readings of a lane."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("lane.stack", word="stacks"),
        bound("lane.kill", word="end the lane"),
        bound("try", word="try advice"),
    ]
    tab = "lane"
    subject = "Lane"

    def lane_rows(self, lane: LaneState, width: int) -> list[Row]:
        return lane_rows(self.monitor.analysis, lane, width, keys=not self.monitor.source.refusal)

    def action_try_advice(self) -> None:
        self.try_advice([self.lane] if self.lane is not None else [])

    def action_ask_stack(self) -> None:
        lane = self.lane
        if lane is None:
            return
        if self.monitor.source.refusal:
            self.monitor.say(self.monitor.source.refusal)
        elif lane.over:
            self.monitor.say(f"{lane.title} has ended, so it has no stacks")
        elif not lane.process.reports_stack:
            self.monitor.say(f"{lane.title} cannot report its stacks")
        else:
            self.monitor.source.send(Command("report stack", (lane.spec.name,)))
            self.monitor.say(f"requested the stacks of {lane.title}; a suspended lane answers in its next slice")

    def action_kill(self) -> None:
        lane = self.lane
        if lane is None or not self.monitor.may_change():
            return
        if lane.over:
            self.monitor.say(f"{lane.title} has ended already")
        elif lane.end.requested is not None or self.monitor.confirmed("lane.kill", [lane], f"end {lane.title}"):
            self.monitor.source.send(Command("end", (lane.spec.name,)))
            again = "K again ends it at once" if lane.script.command else "r starts it again"
            self.monitor.say(f"ending {lane.title}; {again}")


def stack_rows(lane: LaneState, now_ns: int, width: int) -> list[Row]:
    """Return the last reported stacks of a lane."""
    if lane.process.stack is None:
        return []
    ago = units.seconds(max(0, now_ns - lane.process.stack.at_ns) / 1e9)
    rows: list[Row] = [BLANK, (("  Stacks", STRONG), (f"   reported {ago} ago, innermost call first", DIM))]
    for line in lane.process.stack.lines:
        path, mark, call = line.partition('", line ')
        if mark:  # keep the file and the line number, and crop the folders
            room = width - 3 - cell_len(mark + call)
            line = path if cell_len(path) <= room else f'  File "…{path[len(path) - max(8, room - 9) :]}'
            line += mark + call
        rows.append(((crop(f"  {line.replace(' []', '')}", width), TEXT if line.startswith("  ") else DIM),))
    return rows


def _of_heartbeat(lane: LaneState, now_ns: int, keys: bool) -> Lines:
    heartbeat, hung_s = lane.heartbeat, lane.stalled_s(now_ns)
    if hung_s is not None:
        yield "stalled", f"no message for {units.seconds(hung_s)}, while {lane.phase}"
    elif heartbeat.heard_ns and not lane.over:
        yield "last message", f"{units.seconds(max(0, now_ns - heartbeat.heard_ns) / 1e9)} ago"
    if heartbeat.suspensions:
        total_s = sum(until_ns - since_ns for since_ns, until_ns in heartbeat.suspensions) / 1e9
        times = f"{len(heartbeat.suspensions)} times, {units.seconds(total_s)} in all"
        yield "suspended", f"{times}, which do not count"
    if keys and not lane.over:
        stack = "S shows its stacks; " if lane.process.reports_stack else ""
        yield "keys", f"{stack}K ends this lane, by force if necessary"


def lane_rows(analysis: Analysis, lane: LaneState, width: int, *, keys: bool = True) -> list[Row]:
    """Return the rows about a lane. `keys`: whether keys act on the lane."""
    snapshot, analysed = analysis.snapshot, analysis.lane(lane.spec.name)
    host, gpus = snapshot.place_of(lane), snapshot.gpus_of(lane)
    rows = section("Bottleneck", _of_bottleneck(analysed.bottleneck), width, DIM)
    rows += _cause_rows(analysed.causes, width)
    rows += stack_rows(lane, snapshot.at_ns, width)
    for number, (text, code) in enumerate(code_to_keep(lane, snapshot.race.knobs)):
        rows += [] if number else section("To keep what was changed, in the script", (), width, DIM)
        rows += [((f"  {text}", STRONG),), *_code_rows(code, width)]

    def add(
        heading: str, lines: Iterable[tuple[str, str]], samples: Sequence[GpuSample | HostSample] = ()
    ) -> None:
        if shown := tuple(lines):
            rows.extend([*section(heading, shown, width, DIM), *_curves(samples)])

    add("Health", ((concern.id.replace("_", " "), concern.text) for concern in concerns(snapshot, lane)))
    add("Lane", _of_lane(lane))
    add("Heartbeat", _of_heartbeat(lane, snapshot.at_ns, keys))
    if (account := account_of(lane)) is not None:
        groups = [(part, f"{time}, {share}".rstrip(", ")) for part, time, share, _ in account_lines(account)]
        add("The whole run (A has its lines)", (line for line in groups if line[0][0] != "·"))
    add(f"Connection to {lane.spec.host}", reading_rows.connection_lines(snapshot, lane))
    for gpu in gpus:
        heading = _aged("GPU" if len(gpus) == 1 else f"GPU {gpu.index}", snapshot, gpu)
        add(heading, _of_gpu(lane, gpu), host.gpu_history.get(gpu.key, ()))
    facts, sample = _of_machine(host.machine) if lane.spec.host else (), host.sample
    if sample is None:
        add("Machine", facts, host.history)
    else:
        add(_aged("Machine", snapshot, sample), (*facts, *_of_host(sample)), host.history)
    return rows


def _curves(samples: Sequence[GpuSample | HostSample]) -> list[Row]:
    rows: list[Row] = []
    for name, (path, write) in _CURVES[type(samples[0])].items() if len(samples) > 1 else ():
        values = [known(reading) for reading in map(attrgetter(path), samples)]
        peak = max((value for value in values if value is not None), default=0.0)
        if peak <= 0:
            continue
        shares = [None if value is None else value / peak for value in values]
        (line,) = chart.plot([*[None] * (HISTORY_SAMPLES - len(values)), *shares], 1)
        rows.append(((f"  {name:<13}", DIM), (line, TEXT), (f"  last minute, up to {write(peak)}", DIM)))
    return rows


def _aged(heading: str, snapshot: Snapshot, sample: GpuSample | HostSample) -> str:
    age_s = snapshot.stale_s(sample)
    return heading if age_s is None else f"{heading} (stale: read {units.seconds(age_s)} ago)"


def _of_bottleneck(bottleneck: Bottleneck | None) -> Lines:
    if bottleneck is None:
        yield "", "not known before some steady windows are measured"
        return
    yield "", bottleneck.text
    yield from (("also", text) for text in bottleneck.also)
    for name, value, _ in time_parts(bottleneck.shares):
        yield name, f"{value:5.1f} %  {_MEANINGS[name]}"
    for name, reading in (("copy", bottleneck.shares.copy_pct), ("compute", bottleneck.shares.device_pct)):
        if isinstance(reading, Missing):
            yield name, f"    –    {reading.reason}"


def _cause_rows(causes: Sequence[Cause], width: int) -> Iterator[Row]:
    if causes:
        yield from section("Causes, and what may help", (), width, DIM)
    for cause in causes:
        setting = "" if cause.knob is None else setting_text(cause.knob, cause.value)
        if cause.count:
            tries = "" if cause.knob is None or cause.by_hand else f"; {setting} tries it"
            yield from entry("cause", cause.text, width, DIM)
            yield from entry(
                "advice", cause.advice + (f"; {cause.effect}" if cause.effect else tries), width, WARN
            )
        else:
            yield from entry(f"{setting}  " if setting else "advice", cause.advice, width, STRONG)
        yield from _code_rows(cause.code, width)


def _code_rows(lines: tuple[str, ...], width: int) -> Iterator[Row]:
    for line in lines:
        code, sign, comment = line.partition("  # ")
        if sign and len(line) + _CODE_CELLS > width:
            yield from beside((" " * _CODE_CELLS + "# ", DIM), comment, DIM, width)
            line = code
        yield ((" " * _CODE_CELLS + line, DIM),)


def _of_lane(lane: LaneState) -> Lines:
    if lane.script.step:
        yield "a step", lane.script.step
    if lane.spec.chosen:
        yield "device", f"{lane.spec.place}: {lane.spec.chosen}"
    more = (lane.tree.processes or 1) - 1
    children = f" and {more} {'child' if more == 1 else 'children'}" if more > 0 else ""
    tensorflow, keras, numpy, python = (lane.process.versions[name] or "–" for name in VERSIONS)
    yield "process", f"{lane.process.pid or '–'}{children}; Python {python}"
    yield "versions", f"TensorFlow {tensorflow}, Keras {keras}, NumPy {numpy}"
    yield "cpu", _text(lane.tree.cpu_pct, units.percent, " of a core")
    peak = _text(lane.tree.peak_private_bytes, units.memory)
    memory = lane.memory_bytes if lane.over else lane.tree.private_bytes
    yield "memory", _text(memory, units.memory, f" private, {peak} at most")
    if len(lane.tree.peaks) > 1:
        yield "at most", " · ".join(f"{phase} {units.memory(peak)}" for phase, peak in lane.tree.peaks.items())
    if lane.step.profiles and not isinstance(peaks := latest_peaks(lane.step.profiles), Missing):
        yield "profiled", memory_sentence(peaks[0])
    share, reasons = units.discarded_parts(lane.discarded_shares)
    windows = units.count(lane.measurements.windows)
    yield "discarded", f"{share} of the time of {windows} windows" + (f": {', '.join(reasons)}" if reasons else "")
    if lane.process.number > 1:
        yield "processes", f"{lane.process.number}, one after the other"
    for reason in lane.process.unlike:
        yield "disturbed", f"{reason}: a lane of this machine would have that"
    for reason in lane.measurements.constant:
        yield "all the time", f"{reason}: windows with it count, because it is there most of the time"
    if lane.step.computing_share is not None:
        yield "step call", f"{100 * lane.step.computing_share:.0f} % of it computes, by a profile of a few steps"
    if lane.step.traced:
        yield "last trace", lane.step.traced
    yield from ((figure, reason) for figure, reason in lane.script.not_measured.items() if reason)


def _of_gpu(lane: LaneState, gpu: GpuSample) -> Lines:
    yield "name", f"{gpu.name} ({gpu.key})"
    if gpu.part_of:
        yield "instance", "power, temperature, clocks and link are those of the whole GPU"
    busy, most = _text(gpu.load.busy_pct, units.percent), _text(gpu.load.busy_max_pct, units.percent)
    yield "busy", f"{busy}, at most {most} ({gpu.load.source})" if gpu.load.source else busy
    if (other_use := gpu_others(lane, gpu.index)) is not None:
        marked, windows = windows_with_others(lane, gpu.index), len(lane.points)
        less = "others took less than 5 % of the GPU's time"
        yield (
            "others",
            f"{other_use.text}; {marked} of {windows} windows are marked" if other_use.time_share else less,
        )
    if gpu.activity != NOT_READ:
        yield "activity", _activity(gpu.activity)
    part = lane.gpu_use.parts.get(gpu.key, GpuPart())
    yield "this lane", _text(part.lane_busy_pct, units.percent, " of the GPU's time")
    shared = ", shared with the CPU" if gpu.memory.unified else ""
    yield "memory", _part(gpu.memory.used_bytes, gpu.memory.total_bytes, units.memory) + shared
    source = f" ({part.source})" if part.source else ""
    yield "used by lane", _text(part.used_bytes, units.memory) + source
    if isinstance(memory := batch_memory(lane), BatchMemory):
        yield "batch sizes", memory.text
    power, clocks, link, traffic = gpu.power, gpu.clocks, gpu.link, gpu.traffic
    source = f" ({power.source})" if power.source else ""
    yield "power", _part(power.power_w, power.power_limit_w, units.watts) + source
    yield "temperature", _text(gpu.temperature_c, units.celsius)
    yield "clocks", _part(clocks.sm_clock_mhz, clocks.sm_clock_max_mhz, units.megahertz)
    if isinstance(clocks.reasons, Missing):
        yield "limited by", units.absent(clocks.reasons)
    else:
        yield "limited by", "; ".join(reason.text for reason in clocks.reasons) or "nothing"
    moved = _traffic(traffic.pcie_received_bytes_per_s, traffic.pcie_sent_bytes_per_s)
    moved += f" ({traffic.source})" if traffic.source else ""
    if not isinstance(activity := gpu.activity, Missing):
        received, sent = activity.nvlink_received_bytes_per_s, activity.nvlink_sent_bytes_per_s
        moved += f"; NVLink {_traffic(received, sent)}" if known(received) or known(sent) else ""
    yield "PCIe", moved
    generation, width = _text(link.pcie_generation, units.cores), _text(link.pcie_width, units.cores)
    yield "link", link.warning or f"generation {generation}, {width} lanes"
    yield "ECC", _text(gpu.ecc_errors, units.cores, " errors that could not be corrected")
    for fault in gpu.faults:
        yield "fault", fault.text + ", which a program caused" * fault.by_program
    for reading in gpu.slow:
        how = f"the driver took {reading.took_ms:.0f} ms, so it is read every {units.seconds(reading.every_s)}"
        yield "slow", f"{reading.name}: {how}; read {units.seconds(gpu.age_s(reading.name))} ago"


def _traffic(received: Reading, sent: Reading) -> str:
    return f"{_text(received, _rate)} to the GPU, {_text(sent, _rate)} from it"


def _activity(activity: GpuActivity | Missing) -> str:
    if isinstance(activity, Missing):
        return units.absent(activity)
    parts = [(name, getattr(activity, field)) for field, name in _ACTIVITY.items()]
    return ", ".join(
        f"{name} {_text(value, units.percent)}" for name, value in parts if value or "bits" not in name
    )


def _of_machine(machine: Machine) -> Lines:
    yield "name", ", ".join(filter(None, (machine.hostname, machine.system))) or UNKNOWN
    yield "processor", machine.cpu_name or UNKNOWN
    if machine.no_gpu:
        yield "no GPU", machine.no_gpu
    installed = {"Python": machine.python, "TensorFlow": machine.tensorflow, "GPU driver": machine.driver}
    yield "installed", ", ".join(f"{name} {version}" for name, version in installed.items() if version) or UNKNOWN


def _of_host(host: HostSample) -> Lines:
    yield "cpu", _text(host.cpu_pct, units.percent, " of a core, all programs together")
    yield "others", _text(host.others_cpu_pct, units.percent, " by programs that are neither tfmon nor its lanes")
    process = "tfmon's agent there" if host.host else "this monitor"
    yield "tfmon", _text(host.monitor_cpu_pct, lambda value: f"{value:.1f} %", f" of a core by {process}")
    yield "cores", _text(host.usable_cores, units.cores, " may be used")
    yield "memory", _part(host.memory_used_bytes, host.memory_total_bytes, units.memory)
    yield "swap", f"{_text(host.swap_in_bytes_per_s, _rate)} in, {_text(host.swap_out_bytes_per_s, _rate)} out"
    yield "steal", _text(host.steal_pct, lambda value: f"{value:.1f} %", " of a core went to other machines")
    yield "throttled", _text(host.throttled_pct, units.percent, " of the container's periods")
    waited, short = host.cpu_pressure_pct, host.memory_pressure_pct
    yield "for a core", _text(waited, units.percent, " of the last 10 s some process waited for one")
    yield "for memory", _text(short, units.percent, " of the last 10 s some process waited for it")


def _text(reading: Reading, write: Callable[[float], str], suffix: str = "") -> str:
    return units.reading(reading, lambda value: write(value) + suffix)


def _part(part: Reading, whole: Reading, write: Callable[[float], str]) -> str:
    return f"{_text(part, write)} of {_text(whole, write)}"


def _rate(value: float) -> str:
    return f"{units.memory(value)}/s"
