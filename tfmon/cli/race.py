"""`tfmon race`: a race on the screen, or without one."""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import click

from tfmon.cli import options
from tfmon.errors import EXIT_INTERRUPTED, TfmonError, UsageError
from tfmon.runner import settings as config

if TYPE_CHECKING:
    from tfmon.catalog import ScenarioInfo
    from tfmon.runner.planner import RaceOptions


HEADLESS_SECONDS = 30.0
LEAST_CI = 0.02
"""A narrower interval is never reached: `race.statistics.BETWEEN_PROCESSES` is a part of it."""


@click.command(cls=options.TakesCommand)
@click.argument("scenario", required=False)
@options.lanes
@options.settings
@click.option(
    "--seconds", type=options.Seconds(min=0, min_open=True, max=options.LONGEST_S), help="Race so long, then stop."
)
@click.option("--steps", type=click.IntRange(min=1), help="Race so many steps in each lane, then stop.")
@options.mode
@options.slice_s
@click.option(
    "--until-ci",
    metavar="PERCENT",
    help="Race until every ratio is known to ± so much, for example 5%.",
)
@options.record
@click.option(
    "--no-spare",
    is_flag=True,
    help="Keep no child ready that has loaded TensorFlow: a restart then takes seconds, and 0.4 GiB less is used.",
)
@click.option("--headless", is_flag=True, help="No screen: print a table at the end.")
@click.option("--json", "as_json", is_flag=True, help="No screen: print one JSON object at the end.")
@options.screen
@options.python
def race(
    scenario: str | None,
    lanes: tuple[str, ...],
    settings: tuple[str, ...],
    seconds: float | None,
    steps: int | None,
    mode: str,
    slice_s: float,
    until_ci: str | None,
    record: str | None,
    no_record: bool,
    no_spare: bool,
    headless: bool,
    as_json: bool,
    theme: str | None,
    mouse: bool | None,
    readonly: bool | None,
    python: str | None,
) -> None:
    """Race SCENARIO: a name from `tfmon list`, or a file of your own such as ./mine.py.

    Or race your own training script as it is: tfmon race -- python train.py --epochs 3

    By default on the CPU and the first GPU; without a GPU, in two variants on the CPU (a script in one lane).
    """
    from tfmon.catalog import command_scenario, find_scenario
    from tfmon.runner.planner import RaceOptions, find_python

    command = options.command_of(click.get_current_context())
    if command and scenario is not None:
        raise UsageError(
            f"race a scenario, {scenario}, or a command of your own: not both", "what follows -- is the command"
        )
    if command and steps is not None:
        raise UsageError("--steps is for scenarios; a script says itself how many it trains", "--seconds ends it")
    if seconds is not None and steps is not None:
        raise UsageError("--seconds and --steps exclude each other", "leave one of them out")
    info = command_scenario(command) if command else find_scenario(str(config.resolve("scenario", scenario).value))
    interpreter = find_python(python) if python else options.interpreter_of(command)
    narrow = None if until_ci is None else _percentage(until_ci)
    if narrow is not None and mode != "turns":
        raise UsageError("--until-ci needs --mode turns", "a contended ratio has no interval")
    race_options = RaceOptions(lanes, settings, interpreter, seconds, steps, mode, slice_s, narrow)
    race_options = replace(
        options.with_recording(race_options, record, no_record), spare=not (no_spare or command)
    )
    start(info, race_options, config.screen_settings(theme, mouse, readonly), headless=headless, as_json=as_json)


def start(
    info: ScenarioInfo, race_options: RaceOptions, screen: config.ScreenSettings, *, headless: bool, as_json: bool
) -> NoReturn:
    """Race on the screen, or without it where that was asked for or there is none."""
    headless = headless or as_json
    notes = []
    if not headless and (why := options.why_no_screen()):
        notes.append(f"{why}: racing without the screen (--headless)")
        headless = True
    endless = race_options.seconds is None and race_options.steps is None and race_options.until_ci is None
    if headless and endless and not info.command:
        race_options = replace(race_options, seconds=HEADLESS_SECONDS)
        notes.append(f"racing for {HEADLESS_SECONDS:g} s; --seconds or --steps says how long")
    if headless:
        race_options = replace(race_options, spare=False)
        _race_headless(info, race_options, as_json, notes)
    _race_on_screen(info, race_options, screen)


def _percentage(text: str) -> float:
    try:
        value = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        value = 0.0
    if not LEAST_CI <= value < 1:
        least = f"{100 * LEAST_CI:g}%"
        raise UsageError(
            f"--until-ci {text} is not a percentage from {least} to 100%",
            f"two processes that do the same differ by almost {least}, however long they race",
        )
    return value


def _race_headless(info: ScenarioInfo, race_options: RaceOptions, as_json: bool, notes: list[str]) -> NoReturn:
    from tfmon.reports import race as result
    from tfmon.runner import headless
    from tfmon.runner.program import Program

    program = Program(race_options)
    try:
        plan = program.plan(info)
    except TfmonError:
        program.close()
        raise
    for note in notes:
        click.echo(f"tfmon: {note}", err=True)
    interrupted = headless.run(program, plan)
    snapshot = program.session.snapshot()
    if as_json:
        click.echo(json.dumps(result.to_json(snapshot, interrupted), indent=2, allow_nan=False))
    else:
        click.echo(result.to_text(snapshot, interrupted))
    sys.exit(EXIT_INTERRUPTED if interrupted else program.exit_code())


def _race_on_screen(info: ScenarioInfo, race_options: RaceOptions, screen: config.ScreenSettings) -> NoReturn:
    from tfmon.reports import race as result
    from tfmon.runner import live
    from tfmon.runner.program import Program

    program = Program(race_options)
    try:
        # What the command line names must be there, or nothing is started; the default lanes can wait.
        plan = program.plan(info) if race_options.lanes or race_options.settings else None
    except TfmonError:
        program.close()
        raise
    interrupted = live.run(program, info, plan, screen)
    snapshot = program.session.snapshot()
    if any(lane.points for lane in snapshot.lanes) or program.exit_code():
        with contextlib.suppress(OSError):
            click.echo(result.to_text(snapshot, interrupted))
    sys.exit(EXIT_INTERRUPTED if interrupted else program.exit_code())


# ---------------- `tfmon watch`: a training script of the user's own, in one lane


@click.command(cls=options.TakesCommand)
@options.settings
@click.option("--lane", metavar="SPEC", help="DEVICE[,KNOB=VALUE…]; the first GPU, or the CPU, if not said.")
@click.option(
    "--seconds",
    type=options.Seconds(min=0, min_open=True, max=options.LONGEST_S),
    help="Watch so long, then stop.",
)
@options.record
@click.option("--headless", is_flag=True, help="No screen: print a table at the end.")
@click.option("--json", "as_json", is_flag=True, help="No screen: print one JSON object at the end.")
@options.screen
def watch(
    settings: tuple[str, ...],
    lane: str | None,
    seconds: float | None,
    record: str | None,
    no_record: bool,
    headless: bool,
    as_json: bool,
    theme: str | None,
    mouse: bool | None,
    readonly: bool | None,
) -> None:
    """Watch your own training script as it is.

    For example: tfmon watch -- python train.py --epochs 3

    Keras' fit is seen by itself; a loop of your own says `report.step(...)`, see `python -m pydoc tfmon.report`.
    """
    from tfmon.catalog import command_scenario
    from tfmon.runner.planner import RaceOptions

    command = options.command_of(click.get_current_context())
    if not command:
        raise UsageError("there is nothing to watch", "name the command: tfmon watch -- python train.py")
    lanes = () if lane is None else (lane,)
    race_options = RaceOptions(lanes, settings, options.interpreter_of(command), seconds, one_lane=True)
    race_options = options.with_recording(race_options, record, no_record)
    screen = config.screen_settings(theme, mouse, readonly)
    start(command_scenario(command), race_options, screen, headless=headless, as_json=as_json)
