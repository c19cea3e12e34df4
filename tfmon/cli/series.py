"""`tfmon crossover`, `tune` and `sweep`: series of measurements."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from tfmon.api import settings as configured
from tfmon.api.rules import SWEEP_RULES, number
from tfmon.cli import options
from tfmon.errors import TfmonError, UsageError

if TYPE_CHECKING:
    from tfmon.api.options import RaceOptions
    from tfmon.catalog import ScenarioInfo
    from tfmon.model.series import Experiment
    from tfmon.model.spec import LaneSpec

_POSITIVE = number("number", "a number", 0.0, above=True)


@click.command
@click.argument("scenario")
@click.option(
    "--knob",
    default="batch_size",
    show_default=True,
    help="The knob to vary: one of the scenario that is a number.",
)
@click.option("--from", "low", type=_POSITIVE, help="Lowest value of the knob.")
@click.option("--to", "high", type=_POSITIVE, help="Highest value of the knob. Default: 4096.")
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
    as_json: bool,
    **given: Any,  # noqa: ANN401 - as the options say
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
    from tfmon.api.options import race_options, raced
    from tfmon.model.ports import ExperimentError
    from tfmon.model.series import CrossoverState

    info, lanes = raced(scenario, ()), given["lanes"]
    if len(lanes) > 2:
        raise UsageError(f"a crossover compares two lanes, and {len(lanes)} are named", "name two by --lane")

    def planned(lanes: Sequence[LaneSpec]) -> CrossoverState:
        try:
            return plan_crossover(info.knobs, lanes, knob, (low, high), info.examples)
        except ExperimentError as error:
            raise UsageError(str(error), f"tfmon show {info.name} lists the knobs") from error

    _run(info, race_options(given, info, varied_knob=knob), planned, as_json=as_json)


@click.command(cls=options.TakesCommand)
@click.argument("scenario", required=False)
@options.one_lane
@options.settings
@options.in_place
@options.record
@options.detach
@options.as_json
@options.python
def tune(scenario: str | None, as_json: bool, detach: bool, **given: Any) -> None:  # noqa: ANN401
    """Find settings under which SCENARIO trains faster on one device.

    Or your own training script, unchanged: tfmon tune -- python train.py --epochs 30

    The lane trains on while tfmon tries, one change after the other, what may help against its bottleneck. Slices
    with and without the change alternate. A change that makes the lane faster is kept; it ends when nothing
    helps any more. Ctrl+C ends it and prints what is known by then. Where the terminal is closed, the tuning of a
    script goes on: `tfmon attach` shows it.

    \b
    For example:
      tfmon tune slow-preprocess
      tfmon tune large-dense --lane gpu:0 --set prefetch=off
    """
    from tfmon.api.options import race_options, raced
    from tfmon.model.series import TuneState

    def planned(lanes: Sequence[LaneSpec]) -> TuneState:
        return TuneState(lanes[0].name, everything=True)

    if detach and as_json:
        raise UsageError("--detach excludes --json", "leave one of them out")
    info = raced(scenario, options.own_command(), "tune")
    chosen = race_options(given, info, one_lane=True, fresh=True, in_place=given["in_place"])
    if detach or (info.command and sys.stderr.isatty()):
        from tfmon.cli.attach import start

        start(info, chosen, None, detach=detach, series=planned, as_json=as_json)
    _run(info, chosen, planned, as_json=as_json)


def _run(
    info: ScenarioInfo,
    race_options: RaceOptions,
    planned: Callable[[Sequence[LaneSpec]], Experiment],
    *,
    as_json: bool,
) -> None:
    from tfmon.api.program import Program
    from tfmon.api.run import run_until_over
    from tfmon.api.runs import SeriesRun, plan_race
    from tfmon.model.views import describe

    program = Program(race_options)
    with options.errors_as_json(as_json):
        plan = plan_race(program, info, race_options.lanes)
    for line in (*(f"{lane.spec.id}: {lane.spec.name}" for lane in plan.lanes), *describe(plan.race.views)):
        click.echo(f"tfmon: {line}", err=True)
    run = SeriesRun(program, planned, plan)
    result, code = run.outcome(run_until_over(run), as_json=as_json)
    options.print_result(result, run.result.recording.path if run.result.recording is not None else "")
    sys.exit(code)


@click.command(cls=options.TakesCommand)
@click.argument("scenario", required=False)
@click.option(
    "--over",
    multiple=True,
    metavar="KNOB=VALUES",
    help="A knob and its values: batch_size=32,128 or batch_size=16..4096 (powers of two); or gpus=1,2,4,8, the "
    "number of GPUs that a lane has. Repeatable: all combinations are measured.",
)
@click.option(
    "--on",
    multiple=True,
    metavar="[HOST/]DEVICE",
    help="Where to measure; repeatable, or with commas between. Default: cpu. A combination is measured on each "
    "kind of device; ray/gpu*2 is two workers on a Ray cluster.",
)
@options.settings
@click.option(
    "--until-ci",
    type=SWEEP_RULES["until_ci"],
    show_default="3%",
    help="Measure each combination until its ratio is known to within ± PERCENT.",
)
@click.option(
    "--limit",
    "limit_s",
    type=SWEEP_RULES["limit_s"],
    show_default="60",
    help="Time limit for each combination in seconds, from 1.",
)
@click.option("--all", "everything", is_flag=True, help="Disable early stopping: measure every combination fully.")
@options.slice_s
@options.in_place
@click.option(
    "--record", metavar="FILE", help="Keep the sweep in this new file; by default it is kept among your sweeps."
)
@click.option(
    "--resume",
    metavar="[FILE]",
    is_flag=False,
    flag_value="last",
    help="Go on with a sweep that was interrupted, by default the last one; nothing is measured twice.",
)
@options.detach
@options.headless
@options.as_json
@options.looks
@options.python
@options.ray
def sweep(
    scenario: str | None,
    detach: bool,
    headless: bool,
    as_json: bool,
    theme: str | None,
    mouse: bool | None,
    **given: Any,  # noqa: ANN401
) -> None:
    """Measure SCENARIO under all combinations of the values of some knobs, and rank them.

    Or your own script, unchanged: tfmon sweep --over learning_rate=1e-3,1e-4 -- python train.py

    Each combination is raced in turns against the baseline (the scenario's settings, and --set) on the same
    device, so that its ratio compares with those from other machines. What cannot be the best is stopped early.
    Ctrl+C keeps what there is; --resume goes on with it. Where the terminal is closed, the sweep of a script goes
    on: `tfmon attach` shows it.

    \b
    For example:
      tfmon sweep large-dense --over batch_size=16..4096
      tfmon sweep large-dense --over batch_size=32,128,512 --over mixed_precision=off,bfloat16 --on gpu
      tfmon sweep large-dense --over batch_size=32,128,512 --on ray/gpu
      tfmon sweep --resume FILE
    """
    from tfmon.api.options import sweep_options
    from tfmon.api.run import run_until_over
    from tfmon.api.runs import SweepRun
    from tfmon.api.sweep import SweepProgram

    if detach and (headless or as_json):
        raise UsageError("--detach excludes --headless and --json", "leave one of them out")
    chosen = sweep_options(given, scenario, options.own_command())
    screen = configured.screen_settings(theme, mouse, None)
    if not (headless or as_json or detach) and (why := options.why_no_screen()):
        click.echo(f"tfmon: {why}: sweeping without the screen (--headless)", err=True)
        headless = True
    if not (headless or as_json):
        from tfmon.cli.attach import start

        start(None, chosen, screen, detach=detach)
    with options.errors_as_json(as_json):
        program = SweepProgram(chosen)
    run, file = SweepRun(program), program.file
    for line in run.notes:
        click.echo(f"tfmon: {line}", err=True)
    result, code = run.outcome(run_until_over(run), as_json=as_json)
    options.print_result(result, str(file.path) if file is not None else "")
    if file is not None and file.failure:
        raise TfmonError(file.failure, "some printed results were not saved")
    sys.exit(code)
