"""The result of a race: one JSON object, or a table for people."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import tfmon
from tfmon import units
from tfmon.analysis.bottleneck import Bottleneck, find_bottleneck
from tfmon.analysis.statistics import speed
from tfmon.analysis.verdict import find_verdict
from tfmon.model.lane_state import ABSENT, FAILED, LaneState
from tfmon.model.readings import Estimate, Missing, Reading
from tfmon.model.session import Machine, Snapshot

SCHEMA = 1
NO_STEP = "no steady step was measured"
FEW_SLICES = "too few slices were measured in turns"

Named = TypeVar("Named", str, "list[float] | None", "dict[str, Any] | None")


def to_json(snapshot: Snapshot, interrupted: str = "") -> dict[str, Any]:
    """Return the result as plain values.

    Units are in the names. What is not known is None, and named under its lane's `missing` with the reason.
    """
    verdict = find_verdict(snapshot)
    return {
        "schema": SCHEMA,
        "tfmon": tfmon.__version__,
        "scenario": snapshot.race.scenario,
        "mode": snapshot.race.mode,
        "seconds": _seconds(snapshot),
        "machine": _machine(snapshot.machine),
        "lanes": [_lane(snapshot, lane, interrupted) for lane in snapshot.lanes],
        "verdict": {
            "winner": verdict.winner,
            "ratio": verdict.ratio,
            "ratio_ci95": _ci(verdict.interval),
            "pairs": verdict.interval.pairs if verdict.interval else None,
            "ranking": [
                {"lane": rank.lane, "ratio": rank.ratio.value, "ratio_ci95": _ci(rank.ratio)}
                for rank in verdict.ranking
            ],
            "text": verdict.text + (f" ({verdict.note})" if verdict.note else ""),
        },
        **recording_json(snapshot),
    }


def to_text(snapshot: Snapshot, interrupted: str = "") -> str:
    """Return the result as a table of plain text, no wider than it must be."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="")
    for title in ("lane", "examples/s", "steps/s", "step p50", "p95", "loss", "memory", "cpu", "gpu busy"):
        table.add_column(title, justify="left" if title == "lane" else "right", no_wrap=True)
    for lane in snapshot.lanes:
        table.add_row(lane.title, *_cells(lane))
    console = Console(width=200, no_color=True, highlight=False, markup=False, force_terminal=False)
    with console.capture() as capture:
        console.print(table)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    for lane in snapshot.lanes:
        if lane.trouble is not None:
            lines.append(f"{lane.title}: {lane.trouble.message}")
            lines.extend(f"  {hint}" for hint in [lane.trouble.hint] if hint)
            if lane.trouble.kind == "error" and lane.ended is not None:
                lines.extend(f"  | {line}" for line in lane.ended.output_tail[-5:])
    bounds = [(lane.title, bound.text) for lane in snapshot.lanes if (bound := find_bottleneck(snapshot, lane))]
    lines += ["", *(f"{title}: {text}" for title, text in bounds)] if bounds else []
    verdict = find_verdict(snapshot)
    lines += ["", verdict.text]
    lines += [text for text in (verdict.note, _left_out(snapshot), interrupted) if text]
    if snapshot.machine.no_gpu:
        lines.append(f"no GPU lane: {snapshot.machine.no_gpu}")
    lines += recording_lines(snapshot)
    return "\n".join(lines)


def recording_json(snapshot: Snapshot) -> dict[str, Any]:
    """Return where the race was recorded, and why it no longer was; None where there is nothing to say."""
    found = snapshot.recording
    return {
        "recording": found.path or None if found else None,
        "recording_stopped": found.why or None if found else None,
    }


def recording_lines(snapshot: Snapshot) -> list[str]:
    """Say the same in words; nothing for a race that was not recorded."""
    found = snapshot.recording
    if found is None:
        return []
    stopped = f"recording stopped: {found.why}" if found.why else ""
    return [line for line in (stopped, f"recorded in {found.path}" if found.path else "") if line]


def _lane(snapshot: Snapshot, lane: LaneState, interrupted: str) -> dict[str, Any]:
    missing: dict[str, str] = {}

    def told(field: str, value: Reading | None, reason: str = NO_STEP) -> float | None:
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

    def whole(value: float | None) -> int | None:
        return None if value is None else round(value)

    bound = find_bottleneck(snapshot, lane)
    gpu_reason = "no GPU in this lane" if lane.spec.kind == "cpu" else "not sampled"
    in_use_reason = gpu_reason if lane.spec.kind == "cpu" else "TensorFlow's allocator keeps no figures here"
    return {
        "name": lane.spec.name,
        "device": lane.spec.device,
        "device_name": named("device_name", snapshot.device_name(lane)),
        "state": _state(lane),
        "why": lane.trouble.message if lane.trouble else interrupted or None,
        "knobs": dict(lane.settings),
        "steps": lane.steps,
        "examples": lane.examples,
        "examples_per_s": told("examples_per_s", lane.steady.examples_per_s),
        "examples_per_s_ci95": named("examples_per_s_ci95", _ci(speed(lane.slices)), FEW_SLICES),
        "step_ms": {
            name: told(f"step_ms.{name}", lane.steady.step_ms(fraction))
            for name, fraction in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
        },
        "loss": {
            "first": told("loss.first", lane.first_loss, "no loss was read"),
            "last": told("loss.last", lane.last_loss, "no loss was read"),
        },
        "private_bytes": whole(told("private_bytes", lane.private_bytes)),
        "cpu_pct": told("cpu_pct", lane.racing_cpu_pct.value, "not sampled while the lane raced"),
        "gpu_busy_pct": told("gpu_busy_pct", lane.racing_gpu_busy_pct.value, gpu_reason),
        "gpu_memory_used_bytes": whole(told("gpu_memory_used_bytes", lane.gpu_memory_used_bytes)),
        "gpu_memory_allocated_bytes": whole(
            told("gpu_memory_allocated_bytes", lane.gpu_memory_allocated_bytes, in_use_reason)
        ),
        "gpu_memory_source": named("gpu_memory_source", lane.gpu_memory_source, "no memory is known to be held"),
        "gpu_j_per_1000_examples": told("gpu_j_per_1000_examples", lane.gpu_j_per_1000_examples),
        "bound": named("bound", bound.kind if bound else "", NO_STEP),
        "bound_text": named("bound_text", bound.text if bound else "", NO_STEP),
        "time_pct": {name: told(f"time_pct.{name}", value) for name, value in _time(bound).items()},
        "discarded": dict(lane.discarded),
        **(
            {"command": lane.command, "fit": named("fit", _fit(lane), "no Keras fit was seen")}
            if lane.command
            else {}
        ),
        "missing": missing,
    }


def _fit(lane: LaneState) -> dict[str, Any] | None:
    """Return how far a script's last `fit` came; None for what is no script or has no `fit`."""
    progress = lane.progress
    if progress is None:
        return None
    return {
        "epoch": progress.epoch,
        "epochs": progress.epochs,
        "batch": progress.batch,
        "batches": progress.batches,
        "metrics": {name: value if math.isfinite(value) else None for name, value in progress.metrics.items()},
        "validation_s": progress.validation_ns / 1e9,
        "between_epochs_s": progress.between_ns / 1e9,
    }


def _time(bound: Bottleneck | None) -> dict[str, Reading | None]:
    """Return the shares of step time in percent, by name."""
    parts = ("input", "copy", "dispatch", "device", "retrace", "sync", "report", "other")
    return {part: getattr(bound.shares, f"{part}_pct") if bound else None for part in parts}


def _ci(estimate: Estimate | None) -> list[float] | None:
    return None if estimate is None else [estimate.low, estimate.high]


def _state(lane: LaneState) -> str:
    return {FAILED: "failed", ABSENT: "absent"}.get(lane.phase, "finished")


def _seconds(snapshot: Snapshot) -> float | None:
    """Return how long the lanes raced: from the start signal to the last window of any lane."""
    ends = [lane.points[-1].at_ns for lane in snapshot.lanes if lane.points]
    if snapshot.race.started_ns is None or not ends:
        return None
    return round((max(ends) - snapshot.race.started_ns) / 1e9, 3)


def _machine(machine: Machine) -> dict[str, Any]:
    return {
        "hostname": machine.hostname,
        "system": machine.system,
        "cpu_name": machine.cpu_name,
        "cores": machine.cores,
        "usable_cores": machine.usable_cores,
        "memory_bytes": machine.memory_bytes,
        "gpus": list(machine.gpus),
        "no_gpu": machine.no_gpu or None,
    }


def _left_out(snapshot: Snapshot) -> str:
    """Name what was measured and left out, over all lanes."""
    total: dict[str, int] = {}
    for lane in snapshot.lanes:
        for reason, windows in lane.discarded.items():
            total[reason] = total.get(reason, 0) + windows
    words = [f"{reason} {windows}" for reason, windows in sorted(total.items())]
    return f"windows left out: {', '.join(words)}" if words else ""


def _cells(lane: LaneState) -> list[str]:
    def cell(value: float | None, write: Callable[[float], str]) -> str:
        return "n/a" if value is None else write(value)

    memory = lane.private_bytes
    losses = [cell(loss, units.loss) for loss in (lane.first_loss, lane.last_loss)]
    return [
        cell(lane.steady.examples_per_s, units.rate),
        cell(lane.steady.steps_per_s, units.rate),
        cell(lane.steady.step_ms(0.5), units.milliseconds),
        cell(lane.steady.step_ms(0.95), units.milliseconds),
        " → ".join(losses),
        "n/a" if isinstance(memory, Missing) else units.memory(memory),
        cell(lane.racing_cpu_pct.value, units.percent),
        cell(lane.racing_gpu_busy_pct.value, units.percent),
    ]
