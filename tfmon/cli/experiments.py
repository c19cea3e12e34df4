"""`tfmon crossover`, `tfmon tune` and `tfmon verify`: series of measurements, without a screen."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from tfmon.api.settings import Seconds
from tfmon.cli import options
from tfmon.errors import EXIT_INTERRUPTED, UsageError

if TYPE_CHECKING:
    from tfmon.api.planner import RaceOptions
    from tfmon.catalog import ScenarioInfo
    from tfmon.model.series import Experiment
    from tfmon.model.spec import LaneSpec


@click.command(short_help="Find where one lane overtakes the other.")
@click.argument("scenario")
@click.option(
    "--knob",
    default="batch_size",
    show_default=True,
    help="The knob to vary: one of the scenario that is a number.",
)
@click.option("--from", "low", type=click.FloatRange(min=0, min_open=True), help="Lowest value of the knob.")
@click.option(
    "--to", "high", type=click.FloatRange(min=0, min_open=True), help="Highest value of the knob. Default: 4096."
)
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

    Two lanes race in slices at every power of two in the knob's range, and longer where the lead changes. By
    default they are the CPU and the idlest GPU; without a GPU, two variants on the CPU. Ctrl+C ends the
    measurement and prints what is known by then.

    \b
    For example:
      tfmon crossover small-dense
      tfmon crossover large-dense --from 16 --to 1024 --lane cpu --lane gpu
    """
    from tfmon.analysis.crossover import plan_crossover
    from tfmon.api.planner import RaceOptions
    from tfmon.catalog import find_scenario
    from tfmon.model.ports import ExperimentError
    from tfmon.model.series import CrossoverState
    from tfmon.reports.race import to_text
    from tfmon.reports.series_json import crossover_to_json

    if len(lanes) > 2:
        raise UsageError(f"a crossover compares two lanes, and {len(lanes)} are named", "name two by --lane")
    race_options = RaceOptions(
        lanes=lanes,
        settings=settings,
        python=options.interpreter(python),
        slice_s=slice_s,
        varied_knob=knob,
        ray=options.ray_cluster(),
    )
    info = find_scenario(scenario)

    def planned(lanes: Sequence[LaneSpec]) -> CrossoverState:
        try:
            return plan_crossover(info.knobs, lanes, knob, (low, high), info.examples)
        except ExperimentError as error:
            raise UsageError(str(error), f"tfmon show {info.name} lists the knobs") from error

    race_options = options.with_recording(race_options, record, no_record)
    report = crossover_to_json if as_json else to_text
    _run(info, race_options, planned, report, as_json=as_json)


@click.command(cls=options.TakesCommand, short_help="Find settings that train faster.")
@click.argument("scenario", required=False)
@options.one_lane
@options.settings
@options.in_place
@options.record
@options.as_json
@options.python
def tune(
    scenario: str | None,
    lane: str | None,
    settings: tuple[str, ...],
    in_place: bool,
    record: str | None,
    no_record: bool,
    as_json: bool,
    python: str | None,
) -> None:
    """Find settings under which SCENARIO trains faster on one device.

    Or your own training script, unchanged: tfmon tune -- python train.py --epochs 30

    The lane trains on while tfmon tries, one change after the other, what may help against its bottleneck. Slices
    with and without the change alternate. A change that makes the lane faster is kept; it ends when nothing
    helps any more. Ctrl+C ends it and prints what is known by then.

    \b
    For example:
      tfmon tune slow-preprocess
      tfmon tune large-dense --lane gpu:0 --set prefetch=off
    """
    from tfmon.api.planner import RaceOptions
    from tfmon.catalog import command_scenario, find_scenario
    from tfmon.model.series import TuneState
    from tfmon.reports.race import to_text
    from tfmon.reports.series_json import tuning_to_json

    command = options.own_command()
    if bool(command) is (scenario is not None):
        raise UsageError("tune a scenario, or a command of your own after --", "tfmon tune -- python train.py")
    race_options = RaceOptions(
        lanes=(lane,) if lane else (),
        settings=settings,
        python=options.interpreter(python, command),
        one_lane=True,
        fresh=True,
        ray=options.ray_cluster(),
        in_place=in_place,
    )

    _run(
        command_scenario(command) if command else find_scenario(str(scenario)),
        options.with_recording(race_options, record, no_record),
        lambda lanes: TuneState(lanes[0].name, everything=True),
        tuning_to_json if as_json else to_text,
        as_json=as_json,
    )


def _run(
    info: ScenarioInfo,
    race_options: RaceOptions,
    planned: Callable[[Sequence[LaneSpec]], Experiment],
    report: Callable[..., object],
    *,
    as_json: bool,
) -> None:
    """Run an experiment until it is over or a signal comes, and print its report.

    Args:
        info: The scenario.
        race_options: The lanes and their settings.
        planned: Returns the experiment to run on the lanes.
        report: Returns the text of an analysis, or an object to print as JSON.
        as_json: Whether it is JSON.
    """
    from tfmon.analysis.analysis import analyse
    from tfmon.api.headless import plan_race, run_experiment
    from tfmon.api.program import Program
    from tfmon.model.views import describe
    from tfmon.reports.text import fitted

    program = Program(race_options)
    with options.errors_as_json(as_json):
        plan = plan_race(program, info, race_options.lanes)
    for line in (*(f"{lane.spec.id}: {lane.spec.name}" for lane in plan.lanes), *describe(plan.race.views)):
        click.echo(f"tfmon: {line}", err=True)
    snapshot, interrupted = run_experiment(program, plan, lambda: planned([lane.spec for lane in plan.lanes]))
    told = report(analyse(snapshot))
    text = fitted(told) if isinstance(told, str) else json.dumps(told, indent=2, allow_nan=False)
    options.print_result(text, snapshot.recording.path if snapshot.recording is not None else "")
    sys.exit(EXIT_INTERRUPTED if interrupted else program.exit_code())


@click.command(short_help="Measure what is claimed about scenarios.")
@click.argument("scenarios", nargs=-1)
@click.option(
    "--seconds",
    type=Seconds(min=3),
    help="Length of a claim's race at most. Default: 12, or less where that would take more than 10 minutes.",
)
@options.as_json
@options.python
def verify(scenarios: tuple[str, ...], seconds: float | None, as_json: bool, python: str | None) -> None:
    """Measure what is claimed about SCENARIOS, by default about all of them whose steps are short.

    Each claim is a race of two lanes. A contradicted claim is a result, not a failure: the exit code is 0 unless
    the command is interrupted.

    \b
    For example:
      tfmon verify
      tfmon verify small-dense large-dense --seconds 10
    """
    from tfmon.api.verification import verify_claims
    from tfmon.catalog import find_scenario, list_scenarios
    from tfmon.reports.checks import claims_to_json, claims_to_text

    infos = [find_scenario(name) for name in scenarios] or [
        replace(info, claims=tuple(one for one in info.claims if one.seconds is None)) for info in list_scenarios()
    ]
    results, interrupted = verify_claims(infos, options.interpreter(python), seconds)
    written = (
        json.dumps(claims_to_json(results, interrupted), indent=2)
        if as_json
        else claims_to_text(results, interrupted)
    )
    click.echo(written)
    if interrupted:
        sys.exit(EXIT_INTERRUPTED)
