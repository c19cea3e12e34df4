"""`tfmon crossover`: finds the value of a knob at which one lane overtakes the other."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import tfmon
from tfmon import units
from tfmon.cli import options
from tfmon.errors import EXIT_INTERRUPTED, UsageError

if TYPE_CHECKING:
    from tfmon.analysis.crossover import Curve, CurvePoint
    from tfmon.model.race import CrossoverState
    from tfmon.model.session import Snapshot
    from tfmon.runner.headless import Interruption
    from tfmon.runner.program import Program

CHART = (92, 16)
"""Cells and rows of the chart."""


@click.command()
@click.argument("scenario")
@click.option("--knob", default="batch_size", show_default=True, help="A knob of the scenario that is a number.")
@click.option("--from", "low", type=click.FloatRange(min=0, min_open=True), help="Lowest value.")
@click.option("--to", "high", type=click.FloatRange(min=0, min_open=True), help="Highest value; 4096 if not said.")
@options.lanes
@options.settings
@options.slice_s
@options.record
@options.as_json
@options.python
def crossover(
    scenario: str,
    knob: str,
    low: float | None,
    high: float | None,
    lanes: tuple[str, ...],
    settings: tuple[str, ...],
    slice_s: float,
    record: str | None,
    no_record: bool,
    as_json: bool,
    python: str | None,
) -> None:
    """Find the value of a knob at which one lane of SCENARIO overtakes the other.

    Two lanes race in turns at every power of two in the knob's range, and longer where the lead changes: by
    default the CPU and the first GPU; without a GPU, two variants on the CPU. Ctrl+C ends it with what it has.
    """
    from tfmon.analysis.crossover import curve_of, plan_crossover
    from tfmon.catalog import find_scenario
    from tfmon.model.ports import ExperimentError
    from tfmon.runner.headless import interruption
    from tfmon.runner.planner import RaceOptions, find_python
    from tfmon.runner.program import Program

    interpreter = find_python(python) if python else Path(sys.executable)
    race_options = RaceOptions(lanes=lanes, settings=settings, python=interpreter, slice_s=slice_s, swept=knob)
    race_options = options.with_recording(race_options, record, no_record)
    info = find_scenario(scenario)
    program = Program(race_options)
    with interruption() as interrupted:
        try:
            plan = program.plan(info)
            try:
                specs = [lane.spec for lane in plan.lanes]
                state = plan_crossover(info.knobs, specs, knob, (low, high), info.examples)
            except ExperimentError as error:
                raise UsageError(str(error), f"tfmon show {info.name} lists the knobs") from error
            program.begin(plan)
            state = _measure(program, state, interrupted)
        finally:
            program.close(interrupted.why)
    snapshot = program.session.snapshot()
    curve = curve_of(snapshot, state)
    click.echo(
        json.dumps(to_json(snapshot, state, curve), indent=2) if as_json else to_text(snapshot, state, curve)
    )
    sys.exit(EXIT_INTERRUPTED if interrupted.signal else program.exit_code())


def _measure(program: Program, state: CrossoverState, interrupted: Interruption) -> CrossoverState:
    """Measure until all is known or a signal comes, and say on a terminal how far it is."""
    program.bench.run(state)
    while not program.bench.join(0.2):
        if interrupted.came():
            program.bench.stop()
        experiment = _told(program, state)
        if experiment.at is None:
            options.tell("the lanes get ready")
        else:
            left = "" if experiment.left_s is None else f"   about {units.clock(experiment.left_s)} left"
            options.tell(f"{experiment.knob}={experiment.at}{left}")
    options.tell("")
    return _told(program, state)


def _told(program: Program, state: CrossoverState) -> CrossoverState:
    """Return the state as it was told last."""
    from tfmon.model.race import CrossoverState

    experiment = program.session.snapshot().experiment
    return experiment if isinstance(experiment, CrossoverState) else state


def to_json(snapshot: Snapshot, state: CrossoverState, curve: Curve) -> dict[str, Any]:
    """Return the crossover as plain values. Units: throughput in examples/s, intervals at 95 %."""
    from tfmon.reports.race import recording_json

    def speed(place: CurvePoint, part: str) -> dict[str, Any]:
        estimate = getattr(place, part)
        return {
            "examples_per_s": estimate.value if estimate else None,
            "examples_per_s_ci95": [estimate.low, estimate.high] if estimate else None,
        }

    return {
        "schema": 1,
        "tfmon": tfmon.__version__,
        "scenario": snapshot.race.scenario,
        "knob": curve.knob,
        "lanes": [
            {"name": name, "device": snapshot.lane(name).spec.device, "title": snapshot.lane(name).title}
            for name in state.lanes
        ],
        "values": [
            {
                "value": place.value,
                "first": speed(place, "first"),
                "second": speed(place, "second"),
                "ratio": place.ratio.value if place.ratio else None,
                "ratio_ci95": [place.ratio.low, place.ratio.high] if place.ratio else None,
                "pairs": place.pairs,
                "why": place.refused or None,
            }
            for place in curve.places
        ],
        "crossings": [
            {
                "about": one.about,
                "between": [one.low, one.high],
                "ahead_above": one.ahead,
                "ahead_below": one.behind,
            }
            for one in curve.crossings
        ],
        "text": curve.text,
        "no_gpu": snapshot.machine.no_gpu or None,
        "interrupted": state.ended or None,
        **recording_json(snapshot),
    }


def to_text(snapshot: Snapshot, state: CrossoverState, curve: Curve) -> str:
    """Return the answer, the chart and the table as plain text."""
    from tfmon.analysis.analysis import analyse
    from tfmon.reports.race import recording_lines
    from tfmon.ui.render.experiments import crossover_rows
    from tfmon.ui.render.rows import plain

    width, height = CHART
    lines = plain(crossover_rows(analyse(snapshot), width, height + len(curve.places) + 8))
    lines += [""] + [f" {lane.spec.id}: {lane.title}" for lane in snapshot.lanes]
    if snapshot.machine.no_gpu:
        lines.append(f" no GPU lane: {snapshot.machine.no_gpu}")
    lines += recording_lines(snapshot)
    return "\n".join(line.removeprefix(" ") for line in lines)
