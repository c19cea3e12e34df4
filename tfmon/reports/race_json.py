"""The result of a race as one JSON object."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, TypeVar

from tfmon.analysis.analysis import Analysis, LaneAnalysis
from tfmon.analysis.batch_memory import BatchMemory, batch_memory
from tfmon.analysis.bottleneck import LEAST_WINDOWS
from tfmon.analysis.health import concerns, waits_of
from tfmon.analysis.others import contention, cpu_ratio, gpu_others
from tfmon.analysis.profile_diff import profiled_pair
from tfmon.analysis.verdict import Verdict
from tfmon.analysis.verdict_notes import HERE
from tfmon.model import codec
from tfmon.model.gpu import GpuSample
from tfmon.model.hosts import HostState
from tfmon.model.lane_state import ABSENT, FAILED, LaneState
from tfmon.model.lane_use import GpuPart
from tfmon.model.lanes_together import collisions
from tfmon.model.readings import Missing, Reading, known
from tfmon.model.session import Snapshot
from tfmon.recordings.figures import MeasuredLane, RaceFigures
from tfmon.recordings.header import Header
from tfmon.reports import (
    estimate_json,
    head,
    interval,
    link_json,
    machine_json,
    profile_diff,
    recording_json,
    scaling_json,
)
from tfmon.reports.series_json import crossover_json, tuning_json

NO_STEP = "no steady step was measured"
NO_UPDATE = "no update of an own loop of TensorFlow was seen"
FEW_SLICES = "too few slices were measured in turns"
_PARTS = ("input", "copy", "dispatch", "device", "retrace", "sync", "report", "other")
Named = TypeVar("Named", str, "list[float] | None", "dict[str, Any] | None")
BESIDES = {"processes": "other_processes", "threads": "other_threads", "stdin": "stdin", "end": "end"}
"""Further figures of a script that can be missing, with their names in `missing`."""


def to_json(analysis: Analysis, header: Header | None = None) -> dict[str, Any]:
    """Return the result as JSON values; with the race's header also its time and conditions.

    Units are in the names. Unknown figures are None, with the reason under the lane's `missing`. The `id` of a
    lane never changes; its `name` has every setting in which the lanes differed at the end.
    """
    snapshot, verdict, machine = analysis.snapshot, analysis.verdict, analysis.snapshot.machine
    profiled = profiled_pair(snapshot.lanes)
    seconds, limits = snapshot.raced_s, "" if analysis.is_series else verdict.note
    return {
        **head(),
        "scenario": snapshot.race.scenario,
        "started": header.started if header else None,
        "mode": snapshot.race.mode,
        "seconds": None if seconds is None else round(seconds, 3),
        "interrupted": snapshot.race.interrupted or None,
        "views": {
            host or HERE: {**codec.plain(asdict(view)), "reason": view.reason or None, "store": view.store or None}
            for host, view in snapshot.race.views.items()
        },
        "environment": dict(header.environment) if header else None,
        "machine": machine_json(machine),
        "hosts": {host: _host(state) for host, state in snapshot.hosts.items() if host},
        "between_processes": asdict(snapshot.race.between) if snapshot.race.between else None,
        "collisions": [
            {"name": one.name, "text": one.text, "helps": one.helps}
            for one in collisions(snapshot.lanes, snapshot.race.views)
        ],
        "lanes": [_lane(snapshot, lane) for lane in analysis.lanes],
        "verdict": {
            **_verdict(snapshot, verdict),
            "winner": snapshot.lane(verdict.winner).title if verdict.winner is not None else None,
            "also_differs": list(verdict.also),
            "machines_differ": {
                one.what: {host or HERE: value for host, value in one.values} for one in verdict.machines
            },
            "scaling": [{"id": snapshot.lane(one.lane).spec.id, **scaling_json(one)} for one in verdict.scaling],
            "interval_kind": verdict.interval_kind,
            "margin": snapshot.race.margin,
            "left_s": verdict.left_s,
            "at_least": verdict.at_least,
            "cpu_time_ratio": _cpu_time_ratio(snapshot, verdict),
            "ranking": [
                {"id": lane.spec.id, "lane": lane.title, **estimate_json("ratio", rank.ratio)}
                for rank in verdict.ranking
                for lane in [snapshot.lane(rank.lane)]
            ],
            "text": ". ".join([analysis.answer + (f" ({limits})" if limits else ""), *snapshot.race.differs]),
            "ranked": list(verdict.ranked),
            "earlier": analysis.earlier or None,
            "finish": list(analysis.finish_lines),
        },
        "history": [
            {
                "at_s": row.at_s,
                "lane_id": row.lane or None,
                "change": row.what,
                "examples_per_s_before": row.before,
                "examples_per_s_after": row.after,
                **estimate_json("effect", row.effect),
                "verdict": _verdict(snapshot, row.verdict) if row.verdict else None,
            }
            for row in analysis.history
        ],
        "crossover": crossover_json(analysis),
        "tuning": tuning_json(analysis),
        "profiles": None if profiled is None else profile_diff.to_json(*profiled),
        **recording_json(snapshot),
        "figures": codec.plain(RaceFigures.of("", header, snapshot)) if header else None,
    }


def _host(state: HostState) -> dict[str, Any]:
    """Return another machine with its connection at the end. `None` if not measured."""
    link = state.link
    return {
        "machine": machine_json(state.machine),
        "lost": state.lost or None,
        **link_json(link),
        "agent_cpu_pct": known(link.agent_cpu_pct) if link else None,
        "agent_bytes": known(link.agent_bytes) if link else None,
    }


def _lane(snapshot: Snapshot, analysis: LaneAnalysis) -> dict[str, Any]:
    lane, bottleneck = analysis.lane, analysis.bottleneck
    shares = bottleneck.shares if bottleneck else None
    missing: dict[str, str] = {}

    def number(field: str, value: Reading | None, reason: str = NO_STEP) -> float | None:
        if isinstance(value, Missing):
            missing[field] = value.reason
            return None
        if value is None or not math.isfinite(value):
            missing[field] = reason if value is None else f"it is {value}"
            return None
        return value

    def named(field: str, value: Named, reason: str = "the system does not say") -> Named | None:
        if not value:
            missing[field] = reason
        return value or None

    def whole(field: str, value: Reading | None, reason: str = NO_STEP) -> int | None:
        known = number(field, value, reason)
        return None if known is None else round(known)

    took, measured = contention([lane.slices]), MeasuredLane.of(lane, snapshot)
    unknown = {what: reason for what, reason in lane.script.not_measured.items() if reason}
    stepped = lane.totals.steps > 0
    if lane.script.command and not stepped:
        hint = lane.trouble.hint if lane.trouble is not None and lane.end.event is not None else ""
        unknown.setdefault("steps", hint or "no training step was seen")
    no_step = f"no step of the {lane.totals.steps:,} was in a steady window" if stepped else NO_STEP
    no_step = unknown.get("steps", no_step)
    unknown_steps = Missing(no_step) if "steps" in unknown else None
    windows = lane.steady.windows
    unexplained = f"it takes {LEAST_WINDOWS} steady windows, and there were {windows}" if windows else no_step
    no_examples = unknown.get("examples") or unknown.get("steps") or "the script does not say how many"
    no_gpu = "no GPU in this lane" if lane.spec.kind == "cpu" else ""
    gpus = snapshot.gpus_of(lane)
    no_load = next((busy.reason for one in gpus if isinstance(busy := one.load.busy_pct, Missing)), "not sampled")
    script: dict[str, Any] = {}
    if lane.script.command:
        script = {
            "command": lane.script.command,
            "step": named("step", lane.script.step, unknown.get("steps", NO_UPDATE)),
            "fit": named("fit", _fit(lane), "no Keras fit was seen"),
        }
    return {
        "id": lane.spec.id,
        "name": lane.title,
        "host": lane.spec.host,
        "device": lane.spec.device,
        "device_chosen": named("device_chosen", lane.spec.chosen, "the lane's device was named, or there was one"),
        "device_name": named("device_name", snapshot.device_name(lane)),
        "state": {FAILED: "failed", ABSENT: "absent"}.get(lane.phase, "finished"),
        "error": lane.trouble.message if lane.trouble else None,
        "knobs": dict(lane.settings),
        "defaults": dict(lane.script.resolved),
        "versions": {
            name: named(f"versions.{name}", version, "the lane did not say")
            for name, version in lane.process.versions.items()
        },
        "disturbed_by": list(lane.process.unlike),
        "source": named("source", lane.process.source, "the scenario's file was not read"),
        "steps": whole("steps", unknown_steps or lane.totals.steps),
        "measured_steps": whole("measured_steps", unknown_steps or lane.totals.measured_steps),
        "examples": whole("examples", lane.totals.examples or (None if stepped or unknown else 0), no_examples),
        "examples_per_s": number(
            "examples_per_s", lane.steady.examples_per_s, no_examples if lane.steady.steps else no_step
        ),
        "examples_per_s_ci95": named("examples_per_s_ci95", interval(analysis.speed), FEW_SLICES),
        "step_ms": {
            f"p{percent}": number(f"step_ms.p{percent}", lane.step_ms(percent / 100), no_step)
            for percent in (50, 95, 99)
        },
        "loss": {
            "first": number("loss.first", lane.totals.losses.first, unknown.get("loss", "no loss was read")),
            "last": number("loss.last", lane.totals.losses.last, unknown.get("loss", "no loss was read")),
        },
        "private_bytes": whole("private_bytes", lane.memory_bytes),
        "peak_private_bytes": whole("peak_private_bytes", lane.tree.peak_private_bytes),
        "peak_private_bytes_by_phase": {phase: round(peak) for phase, peak in lane.tree.peaks.items()},
        "cpu_pct": number("cpu_pct", lane.tree.racing_cpu_pct.value, "not sampled while the lane raced"),
        "gpu_busy_pct": number("gpu_busy_pct", lane.gpu_use.racing_busy_pct.value, no_gpu or no_load),
        "gpu_memory_used_bytes": whole("gpu_memory_used_bytes", lane.gpu_use.used_bytes),
        "gpu_memory_allocated_bytes": whole(
            "gpu_memory_allocated_bytes",
            lane.gpu_use.allocated_bytes,
            no_gpu or "TensorFlow's allocator keeps no figures here",
        ),
        "batch_memory": named("batch_memory", *_batch_memory(lane)),
        "gpu_memory_source": named("gpu_memory_source", lane.gpu_use.source, "no memory is known to be used"),
        "gpus": [_gpu(gpu, lane) for gpu in gpus],
        "bottleneck": named("bottleneck", bottleneck.kind if bottleneck else "", unexplained),
        "bottleneck_text": named("bottleneck_text", bottleneck.text if bottleneck else "", unexplained),
        "waits": asdict(waits) if (waits := waits_of(lane)) else named("waits", None, no_step),
        "concerns": [asdict(one) for one in concerns(snapshot, lane)],
        "causes": [
            {**asdict(one), "text": one.text or one.remedy, "code": list(one.code)} for one in analysis.causes
        ],
        "time_pct": {
            part: number(f"time_pct.{part}", getattr(shares, f"{part}_pct", None), unexplained) for part in _PARTS
        },
        "discarded": dict(lane.measurements.discarded),
        "discarded_pct": {reason: 100 * share for reason, share in lane.discarded_shares.items()},
        "processes": whole("processes", lane.process.number or None, "none was started"),
        "contended_slices_pct": number("contended_slices_pct", _percent(took.slices_share)),
        "stolen_pct": number("stolen_pct", _percent(measured.stolen_share)),
        "gpu_others": named("gpu_others", _gpu_others(lane), no_gpu or "the driver does not say who used the GPU"),
        "others_cpu_pct": number("others_cpu_pct", _percent(measured.others_cores)),
        **script,
        "missing": missing | {name: unknown[what] for what, name in BESIDES.items() if what in unknown},
    }


def _batch_memory(lane: LaneState) -> tuple[dict[str, Any], str]:
    memory = batch_memory(lane)
    return (memory.to_json(), "") if isinstance(memory, BatchMemory) else ({}, memory.reason)


def _gpu(gpu: GpuSample, lane: LaneState) -> dict[str, Any]:
    """Return a GPU of a lane with its latest sample, and the lane's use of it. `None` for unknown."""
    part = lane.gpu_use.parts.get(gpu.key, GpuPart())
    return {
        "index": gpu.index,
        "uuid": gpu.key,
        "name": gpu.name,
        "busy_pct": known(gpu.load.busy_pct),
        "lane_busy_pct": known(part.lane_busy_pct),
        "used_bytes": known(gpu.memory.used_bytes),
        "lane_used_bytes": known(part.used_bytes),
        "lane_used_source": part.source or None,
        "total_bytes": known(gpu.memory.total_bytes),
        "power_w": known(gpu.power.power_w),
        "activity": {name: mean.value for name, mean in lane.gpu_use.racing_activity.items()} or None,
    }


def _gpu_others(lane: LaneState) -> dict[str, Any] | None:
    """Return the use of the lane's GPU by others, of the most used GPU. `None` for unknown."""
    others = gpu_others(lane)
    if others is None:
        return None
    several = {"device": others.place} if lane.spec.devices > 1 else {}
    return {
        **several,
        "gpu_pct": others.share_pct,
        "slices": others.slices,
        "of_slices": others.of_slices,
        "time_pct": 100 * others.time_share,
        "processes": others.processes,
        **({"user": others.first.user, "command": others.first.command} if others.first else {}),
    }


def _cpu_time_ratio(snapshot: Snapshot, verdict: Verdict) -> float | None:
    if not verdict.ranking or verdict.slowest is None:
        return None
    return cpu_ratio(snapshot.lane(verdict.ranking[0].lane).slices, snapshot.lane(verdict.slowest).slices)


def _verdict(snapshot: Snapshot, verdict: Verdict) -> dict[str, Any]:
    return {
        "kind": verdict.kind or None,
        "winner_id": snapshot.lane(verdict.winner).spec.id if verdict.winner is not None else None,
        **estimate_json("ratio", verdict.interval),
        "pairs": verdict.interval.pairs if verdict.interval else None,
        "text": verdict.text,
    }


def _fit(lane: LaneState) -> dict[str, Any] | None:
    """Return the progress of a script's last `fit`. `None` for a scenario, and without a `fit`."""
    progress = lane.script.progress
    if progress is None:
        return None
    return {
        "epoch": min(progress.epoch, progress.epochs or progress.epoch) or None,
        **{name: getattr(progress, name) or None for name in ("epochs", "batch", "batches")},
        "metrics": {name: value if math.isfinite(value) else None for name, value in progress.metrics.items()},
        "validation_s": progress.validation_ns / 1e9,
        "between_epochs_s": progress.between_ns / 1e9,
    }


def _percent(share: Reading) -> Reading:
    return share if isinstance(share, Missing) else 100 * share
