"""`tfmon race` and `tfmon watch`: a race on the screen, or without one."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from tfmon.api import settings as configured
from tfmon.cli import options
from tfmon.errors import TfmonError, UsageError

if TYPE_CHECKING:
    from tfmon.api.planner import RaceOptions
    from tfmon.catalog import ScenarioInfo


@click.command(cls=options.TakesCommand, short_help="Race a scenario, or your own script.")
@click.argument("scenario", required=False)
@options.lanes
@options.settings
@options.seconds
@click.option("--steps", type=click.IntRange(min=1), help="Stop after this many steps in each lane.")
@options.mode
@options.slice_s
@click.option(
    "--until-ci", metavar="PERCENT", help="Stop when every ratio is known to within ± PERCENT, such as 5%."
)
@click.option(
    "--margin",
    metavar="PERCENT",
    default="3%",
    show_default=True,
    help="Lanes that differ by less than ± PERCENT are called the same.",
)
@click.option(
    "--fresh/--no-fresh",
    default=None,
    help="Replace the lanes' processes by new ones every 20 s, because two equal processes differ in speed. "
    "Weights are initialised again. Default: without a screen, in races of 60 s and more.",
)
@options.in_place
@options.record
@click.option(
    "--no-spare",
    is_flag=True,
    help="Keep no spare worker that has loaded TensorFlow. Restarting a lane then takes seconds longer, and "
    "0.4 GiB less memory is used.",
)
@options.wait_idle
@options.headless
@options.as_json
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
    margin: str,
    in_place: bool,
    record: str | None,
    no_record: bool,
    fresh: bool | None,
    no_spare: bool,
    wait_idle_s: float | None,
    headless: bool,
    as_json: bool,
    theme: str | None,
    mouse: bool | None,
    readonly: bool | None,
    python: str | None,
) -> None:
    """Race SCENARIO: a name from `tfmon list`, or a file of your own such as ./mine.py.

    Or race your own training script, unchanged: tfmon race -- python train.py --epochs 3

    By default the lanes are the CPU and the idlest GPU. Without a GPU they are two variants on the CPU; a script
    then has one lane.

    \b
    For example:
      tfmon race large-dense --set prefetch=auto
      tfmon race small-dense --lane cpu --lane gpu:0,batch_size=256 --until-ci 3%
      tfmon race small-dense --seconds 10 --json > result.json
    """
    from tfmon.api.planner import LEAST_CI, LEAST_MARGIN, PROCESSES_DIFFER, RaceOptions, check, raced

    command = options.own_command()
    info = raced(scenario, command)
    race_options = RaceOptions(
        lanes=lanes,
        settings=settings,
        python=options.interpreter(python, command),
        seconds=seconds,
        steps=steps,
        mode=mode,
        slice_s=slice_s,
        until_ci=None
        if until_ci is None
        else options.percentage("--until-ci", until_ci, LEAST_CI, PROCESSES_DIFFER),
        margin=options.percentage("--margin", margin, LEAST_MARGIN),
        spare=not (no_spare or command),
        ray=options.ray_cluster(),
        wait_idle_s=wait_idle_s,
        in_place=in_place or None,
    )
    check(race_options, info, fresh)
    race_options = options.with_recording(race_options, record, no_record)
    screen = configured.screen_settings(theme, mouse, readonly)
    _start(info, race_options, screen, headless=headless, as_json=as_json, fresh=fresh)


@click.command(cls=options.TakesCommand, short_help="Watch your own script in one lane.")
@options.settings
@options.one_lane
@options.seconds
@options.record
@options.wait_idle
@options.headless
@options.as_json
@options.screen
def watch(
    settings: tuple[str, ...],
    lane: str | None,
    seconds: float | None,
    record: str | None,
    no_record: bool,
    wait_idle_s: float | None,
    headless: bool,
    as_json: bool,
    theme: str | None,
    mouse: bool | None,
    readonly: bool | None,
) -> None:
    """Watch your own training script, unchanged, in one lane.

    A Keras `fit` is seen without a change to the script. A loop of your own calls `report.step(...)`; see
    `python -m pydoc tfmon.report`.

    \b
    For example:
      tfmon watch -- python train.py --epochs 3
      tfmon watch --lane gpu:0 --headless -- python train.py
    """
    from tfmon.api.planner import RaceOptions
    from tfmon.catalog import command_scenario

    command = options.own_command()
    if not command:
        raise UsageError("there is nothing to watch", "name the command: tfmon watch -- python train.py")
    race_options = RaceOptions(
        lanes=() if lane is None else (lane,),
        settings=settings,
        python=options.interpreter(None, command),
        seconds=seconds,
        one_lane=True,
        ray=options.ray_cluster(),
        wait_idle_s=wait_idle_s,
    )
    race_options = options.with_recording(race_options, record, no_record)
    screen = configured.screen_settings(theme, mouse, readonly)
    _start(command_scenario(command), race_options, screen, headless=headless, as_json=as_json)


def _start(
    info: ScenarioInfo,
    race_options: RaceOptions,
    screen: configured.ScreenSettings,
    *,
    headless: bool,
    as_json: bool,
    fresh: bool | None = None,
) -> NoReturn:
    """Race on the screen; without it where the options say so or no screen can be drawn."""
    from tfmon.analysis.analysis import analyse
    from tfmon.api.planner import unwatched, with_fresh
    from tfmon.api.program import Program
    from tfmon.model.views import describe
    from tfmon.reports.race import to_text
    from tfmon.reports.race_json import to_json
    from tfmon.reports.text import fitted

    headless = headless or as_json
    notes = []
    if not headless and (why := options.why_no_screen()):
        notes.append(f"{why}: racing without the screen (--headless)")
        headless = True
    if headless:
        given_s, race_options = race_options.seconds, unwatched(race_options, info)
        if race_options.seconds != given_s:
            notes.append(f"racing for {race_options.seconds:g} s; --seconds or --steps says how long")
    race_options = with_fresh(race_options, fresh)
    program = Program(race_options)
    plan = None
    # What the command line names must be there, or nothing is started; on the screen, the default lanes can wait.
    if headless or race_options.lanes or race_options.settings or race_options.wait_idle_s is not None:
        from tfmon.api.headless import plan_race

        with options.errors_as_json(as_json):
            plan = plan_race(program, info, race_options.lanes)
    if headless and plan is not None:
        from tfmon.api.headless import pass_on, run

        for note in [*notes, *plan.race.differs, *describe(plan.race.views)]:
            click.echo(f"tfmon: {note}", err=True)
        passes_output = bool(plan.command) and len(plan.lanes) == 1
        if passes_output:
            program.lanes.pass_output(pass_on(sys.stderr if as_json else sys.stdout))
        interrupted = run(program, plan, quiet=passes_output)
    else:
        from tfmon.api import live

        try:
            interrupted = live.race(program, info, plan, screen)
        except TfmonError:
            click.echo(fitted(to_text(analyse(program.session.snapshot()))))
            raise
    found = analyse(program.session.snapshot())
    recorded = found.snapshot.recording.path if found.snapshot.recording is not None else ""
    if as_json:
        options.print_result(json.dumps(to_json(found, program.header), indent=2, allow_nan=False), recorded)
    elif headless or found.lanes:
        # The terminal of a screen may be gone.
        with contextlib.nullcontext() if headless else contextlib.suppress(OSError, TfmonError):
            options.print_result(fitted(to_text(found)), recorded)
    sys.exit(program.exit_code_of_race(interrupted))
