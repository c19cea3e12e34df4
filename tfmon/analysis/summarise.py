"""Computes the result of a race."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from tfmon.analysis.analysis import Analysis, LaneAnalysis, center_of
from tfmon.analysis.batch_memory import batch_memory
from tfmon.analysis.bottleneck import LEAST_WINDOWS
from tfmon.analysis.compare_profiles import profiled_pair
from tfmon.analysis.health import concerns, waits_of
from tfmon.analysis.others import contention, cpu_ratio, gpu_others
from tfmon.analysis.profile_json import to_json as profiles_json
from tfmon.analysis.result import (
    HERE,
    FitResult,
    GpuResult,
    HostResult,
    LaneResult,
    RaceResult,
    State,
    link_figures,
)
from tfmon.analysis.run_account import account_of
from tfmon.analysis.series_tables import crossover_json, tuning_json
from tfmon.analysis.verdict import Verdict
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.header import Header
from tfmon.model.host_states import HostState
from tfmon.model.lane_relations import collisions
from tfmon.model.lane_state import ABSENT, DONE, FAILED, HOST_LOST, STAGES, LaneState
from tfmon.model.lane_use import GpuPart
from tfmon.model.race import CONCURRENT
from tfmon.model.readings import Missing, Reading, known, mean, scaled
from tfmon.model.session import Snapshot
from tfmon.version import __version__

NO_STEP = "no steady step was measured"
NO_UPDATE = "no update of a custom TensorFlow loop was seen"
NO_SCRIPT = "the lane trains a scenario"
NO_ALLOCATOR = "TensorFlow's allocator keeps no figures here"
NOT_CHOSEN = "the lane's device was named, or there was one"
FEW_SLICES = "too few slices were measured in turns"
UNREPORTED = {"processes": "other_processes", "threads": "other_threads", "stdin": "stdin", "end": "end"}
"""Facts without a field, and names in `missing`."""
OUTPUT_LINES = 12
_OWN_FRAME = re.compile(r'\s+File ".*/tfmon/(hooks|trainer|lanes|hosts)/\w+\.py", line ')
Value = TypeVar("Value")


def summarise(analysis: Analysis, header: Header | None = None, id: str = "") -> RaceResult:
    """Return the result of a race at a snapshot.

    Args:
        header: The conditions of the race, if known.
        id: The name of the race in a comparison.
    """
    snapshot, race = analysis.snapshot, analysis.snapshot.race
    profiled, recording, seconds = profiled_pair(snapshot.lanes), snapshot.recording, snapshot.raced_s
    stopped_ns = recording.stopped_ns if recording is not None else None
    return RaceResult(
        tfmon=header.tfmon if header else __version__,
        python=header.python if header else None,
        scenario=race.scenario,
        title=race.title,
        source=header.source if header else None,
        started=header.started if header else None,
        mode=race.mode,
        seconds=None if seconds is None else round(seconds, 3),
        interrupted=race.interrupted or None,
        is_series=analysis.is_series,
        fresh=race.fresh,
        rounds=len({part.round for lane in snapshot.lanes for part in lane.slices}),
        contended=race.mode == CONCURRENT and snapshot.machines < len(snapshot.lanes),
        differs=race.differs,
        environment=dict(header.environment) if header else None,
        defaults=dict(header.knobs) if header else {knob.name: knob.default for knob in race.knobs},
        differing=snapshot.differing,
        machine=snapshot.machine,
        hosts={host: _host(state) for host, state in snapshot.hosts.items() if host},
        between_processes=race.between,
        views={host or HERE: view for host, view in race.views.items()},
        collisions=tuple(collisions(snapshot.lanes, race.views)),
        lanes=tuple(lane_result(snapshot, lane) for lane in analysis.lanes),
        verdict=_verdict(analysis),
        history=analysis.history,
        crossover=crossover_json(analysis),
        tuning=tuning_json(analysis),
        profiles=None if profiled is None else profiles_json(*profiled),
        recording=Path(recording.path) if recording is not None and recording.path else None,
        recording_stopped=recording.reason or None if recording is not None else None,
        recording_stopped_s=None if stopped_ns is None else (stopped_ns - (race.started_ns or stopped_ns)) / 1e9,
        id=id,
    )


def _host(state: HostState) -> HostResult:
    link = state.link
    return HostResult(
        machine=state.machine,
        lost=state.lost or None,
        **link_figures(link),
        agent_cpu_pct=known(link.agent_cpu_pct) if link else None,
        agent_bytes=known(link.agent_bytes) if link else None,
    )


def _verdict(analysis: Analysis) -> Verdict:
    snapshot, verdict = analysis.snapshot, analysis.verdict
    limits = "" if analysis.is_series else verdict.note
    slices = {lane.spec.id: lane.slices for lane in snapshot.lanes}
    cpu_time_ratio = None
    if verdict.ranking and verdict.slowest_id is not None:
        cpu_time_ratio = cpu_ratio(slices[verdict.ranking[0].id], slices[verdict.slowest_id])
    return replace(
        verdict,
        answer=analysis.answer,
        note=limits,
        text=". ".join([analysis.answer + (f" ({limits})" if limits else ""), *snapshot.race.differs]),
        cpu_time_ratio=cpu_time_ratio,
        contention=replace(contention(slices.values()), cpu_ratio=None).text(),
        earlier=analysis.earlier or None,
        finish=analysis.finish_lines,
    )


class _Known:
    """Converts readings, and collects the reasons for unknown ones."""

    def __init__(self) -> None:
        self.missing: dict[str, str] = {}

    def number(self, name: str, value: Reading | None, reason: str = NO_STEP) -> float | None:
        if isinstance(value, Missing):
            self.missing[name] = value.reason
        elif value is None or not math.isfinite(value):
            self.missing[name] = reason if value is None else f"it is {value}"
        else:
            return value
        return None

    def whole(self, name: str, value: Reading | None, reason: str = NO_STEP) -> int | None:
        number = self.number(name, value, reason)
        return None if number is None else round(number)

    def value(self, name: str, value: Value | None, reason: str = "the system does not say") -> Value | None:
        if not value:
            self.missing[name] = reason
        return value or None


def lane_result(snapshot: Snapshot, analysis: LaneAnalysis) -> LaneResult:
    """Return the result of one lane."""
    lane, bottleneck, speed, read = analysis.lane, analysis.bottleneck, analysis.speed, _Known()
    script, trouble, steady = lane.script, lane.trouble, lane.steady
    is_script, stepped = bool(script.command), lane.totals.steps > 0
    unknown = {name: reason for name, reason in script.not_measured.items() if reason}
    if is_script and not stepped:
        hint = trouble.hint if trouble is not None and lane.end.event is not None else ""
        unknown.setdefault("steps", hint or "no training step was seen")
    no_step = f"no step of the {lane.totals.steps:,} was in a steady window" if stepped else NO_STEP
    no_step = unknown.get("steps", no_step)
    unknown_steps = Missing(no_step) if "steps" in unknown else None
    few = f"it needs {LEAST_WINDOWS} steady windows, and there were {steady.windows}"
    few = few if steady.windows else no_step
    no_examples = unknown.get("examples") or unknown.get("steps") or "the script does not say how many"
    no_speed = no_examples if steady.steps else no_step
    no_loss = unknown.get("loss", "no loss was read")
    no_gpu = "no GPU in this lane" if lane.spec.kind == "cpu" else ""
    gpus, use = snapshot.gpus_of(lane), lane.gpu_use
    no_load = next((busy.reason for gpu in gpus if isinstance(busy := gpu.load.busy_pct, Missing)), "not sampled")
    slices, sliced = contention([lane.slices]), len(snapshot.lanes) > 1
    stolen, others_cpu = scaled(slices.stolen_share, 100), scaled(slices.others_cores, 100)
    if not sliced:
        samples = snapshot.place_of(lane).history
        stolen = mean([sample.steal_pct for sample in samples])
        others_cpu = mean([sample.others_cpu_pct for sample in samples])
    fits = batch_memory(lane)
    memory = (None, fits.reason) if isinstance(fits, Missing) else (fits.to_json(), "")
    state: State = "failed" if lane.phase == FAILED else "absent" if lane.phase == ABSENT else "finished"
    return LaneResult(
        id=lane.spec.id,
        name=lane.title,
        label=snapshot.called(lane),
        host=lane.spec.host,
        device=lane.spec.device,
        device_chosen=read.value("device_chosen", lane.spec.chosen, NOT_CHOSEN),
        device_name=read.value("device_name", snapshot.device_name(lane)),
        state=state,
        error=trouble.message if trouble is not None else None,
        hint=trouble.hint if trouble is not None else "",
        output=_output(lane),
        ended_early=_ended_early(lane),
        command=script.command,
        step=read.value("step", script.step, unknown.get("steps", NO_UPDATE) if is_script else NO_SCRIPT),
        fit=read.value("fit", _fit(lane), "no Keras fit was seen" if is_script else NO_SCRIPT),
        knobs=lane.in_effect,
        defaults=dict(script.resolved),
        versions={
            name: read.value(f"versions.{name}", version, "the lane did not say")
            for name, version in lane.process.versions.items()
        },
        disturbed_by=lane.process.unlike,
        source=read.value("source", lane.process.source, "the scenario's file was not read"),
        steps=read.whole("steps", unknown_steps or lane.totals.steps),
        measured_steps=read.whole("measured_steps", unknown_steps or lane.totals.measured_steps),
        examples=read.whole("examples", lane.totals.examples or (None if stepped or unknown else 0), no_examples),
        examples_per_s=read.number("examples_per_s", steady.examples_per_s, no_speed),
        examples_per_s_ci95=read.value(
            "examples_per_s_ci95", (speed.low, speed.high) if speed is not None else None, FEW_SLICES
        ),
        log_examples_per_s=read.value("log_examples_per_s", center_of(lane, sliced=sliced), FEW_SLICES),
        steps_per_s=read.number("steps_per_s", lane.steps_per_s, no_step),
        step_ms={
            f"p{percent}": read.number(f"step_ms.p{percent}", lane.step_ms(percent / 100), no_step)
            for percent in (50, 95, 99)
        },
        loss={
            "first": read.number("loss.first", lane.totals.losses.first, no_loss),
            "last": read.number("loss.last", lane.totals.losses.last, no_loss),
        },
        private_bytes=read.whole("private_bytes", lane.memory_bytes),
        peak_private_bytes=read.whole("peak_private_bytes", lane.tree.peak_private_bytes),
        peak_private_bytes_by_phase={phase: round(peak) for phase, peak in lane.tree.peaks.items()},
        cpu_pct=read.number("cpu_pct", lane.tree.racing_cpu_pct.value, "not sampled while the lane raced"),
        gpu_busy_pct=read.number("gpu_busy_pct", use.racing_busy_pct.value, no_gpu or no_load),
        gpu_memory_used_bytes=read.whole("gpu_memory_used_bytes", use.used_bytes),
        gpu_memory_allocated_bytes=read.whole(
            "gpu_memory_allocated_bytes", use.allocated_bytes, no_gpu or NO_ALLOCATOR
        ),
        gpu_memory_peak_bytes=read.whole(
            "gpu_memory_peak_bytes", use.used_bytes if use.peak_bytes is None else use.peak_bytes
        ),
        gpu_memory_source=read.value("gpu_memory_source", use.source, "no memory is known to be used"),
        batch_memory=read.value("batch_memory", *memory),
        gpus=tuple(_gpu(gpu, lane) for gpu in gpus),
        bottleneck=read.value("bottleneck", bottleneck.kind if bottleneck else "", few),
        bottleneck_text=read.value("bottleneck_text", bottleneck.text if bottleneck else "", few),
        bottleneck_notes=bottleneck.notes if bottleneck else (),
        waits=read.value("waits", waits_of(lane), no_step),
        concerns=tuple(concerns(snapshot, lane)),
        causes=tuple(replace(cause, text=cause.text or cause.remedy) for cause in analysis.causes),
        time_pct={
            part: read.number(
                f"time_pct.{part}", getattr(bottleneck.shares, f"{part}_pct") if bottleneck else None, few
            )
            for part in ("input", "copy", "dispatch", "device", "step", "retrace", "sync", "report", "other")
        },
        account=read.value("account", account_of(lane), "its process reported none"),
        windows=lane.measurements.windows,
        measured_s=steady.span_ns / 1e9,
        ran_s=lane.measurements.ran_ns / 1e9,
        discarded=dict(lane.measurements.discarded),
        discarded_pct={reason: 100 * share for reason, share in lane.discarded_shares.items()},
        processes=read.whole("processes", lane.process.number or None, "none was started"),
        contended_slices_pct=read.number("contended_slices_pct", scaled(slices.slices_share, 100)),
        stolen_pct=read.number("stolen_pct", stolen),
        gpu_others=read.value(
            "gpu_others", gpu_others(lane), no_gpu or "the driver does not say who used the GPU"
        ),
        others_cpu_pct=read.number("others_cpu_pct", others_cpu),
        not_measured=unknown if is_script else {},
        missing=read.missing | {name: unknown[fact] for fact, name in UNREPORTED.items() if fact in unknown},
    )


def _output(lane: LaneState) -> tuple[str, ...]:
    if lane.trouble is None or lane.trouble.kind == HOST_LOST or lane.end.event is None:
        return ()
    lines: list[str] = []
    in_tfmon = False
    for line in lane.end.event.output_tail:
        in_tfmon = bool(_OWN_FRAME.match(line)) or (in_tfmon and line.startswith("    "))
        if not in_tfmon:
            lines.append(line)
    return tuple(lines[-OUTPUT_LINES:])


def _ended_early(lane: LaneState) -> str:
    if lane.trouble is not None or lane.phase != DONE or lane.phase_before not in STAGES or lane.points:
        return ""
    return "before its first step" if lane.script.command else f"while it was {STAGES[lane.phase_before]}"


def _gpu(gpu: GpuSample, lane: LaneState) -> GpuResult:
    part = lane.gpu_use.parts.get(gpu.key, GpuPart())
    return GpuResult(
        index=gpu.index,
        uuid=gpu.key,
        name=gpu.name,
        busy_pct=known(gpu.load.busy_pct),
        lane_busy_pct=known(part.lane_busy_pct),
        used_bytes=known(gpu.memory.used_bytes),
        lane_used_bytes=known(part.used_bytes),
        lane_used_source=part.source or None,
        total_bytes=known(gpu.memory.total_bytes),
        power_w=known(gpu.power.power_w),
        activity={name: mean.value for name, mean in lane.gpu_use.racing_activity.items()} or None,
    )


def _fit(lane: LaneState) -> FitResult | None:
    progress = lane.script.progress
    if progress is None:
        return None
    return FitResult(
        epoch=min(progress.epoch, progress.epochs or progress.epoch) or None,
        epochs=progress.epochs or None,
        batch=progress.batch or None,
        batches=progress.batches or None,
        metrics={name: value if math.isfinite(value) else None for name, value in progress.metrics.items()},
        validation_s=progress.validation_ns / 1e9,
        between_epochs_s=progress.between_ns / 1e9,
    )
