"""`tfmon race` and `watch`: one race, on the screen or without one."""

from __future__ import annotations

import contextlib
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import click

from tfmon.api import settings as configured
from tfmon.api.rules import RULES
from tfmon.cli import options
from tfmon.errors import TfmonError, UsageError

if TYPE_CHECKING:
    from tfmon.api.options import RaceOptions
    from tfmon.api.program import Program
    from tfmon.catalog import ScenarioInfo


@click.command(cls=options.TakesCommand)
@click.argument("scenario", required=False)
@options.lanes
@options.settings
@options.seconds
@click.option("--steps", type=RULES["steps"], help="Stop after this many steps in each lane.")
@options.mode
@options.slice_s
@click.option(
    "--until-ci", type=RULES["until_ci"], help="Stop when every ratio is known to within ± PERCENT, such as 5%."
)
@click.option(
    "--margin",
    type=RULES["margin"],
    show_default="3%",
    help="Lanes that differ by less than ± PERCENT are called the same.",
)
@click.option(
    "--fresh/--no-fresh",
    default=None,
    help="Replace the lanes' processes by new ones every 20 s, because two equal processes differ in speed. "
    "Weights are initialised again. Default: without a screen, in races of 60 s and more.",
)
@options.in_place
@options.fail_on
@options.notify
@options.baseline
@options.metrics
@options.record
@click.option(
    "--no-spare",
    is_flag=True,
    help="Keep no spare worker that has loaded TensorFlow. Restarting a lane then takes seconds longer, and "
    "0.4 GiB less memory is used.",
)
@options.wait_idle
@options.headless
@options.detach
@options.as_json
@options.screen
@options.python
def race(scenario: str | None, no_spare: bool, **given: Any) -> None:  # noqa: ANN401 - as the options say
    """Race SCENARIO: a name from `tfmon list`, or a file of your own such as ./mine.py.

    Or race your own training script, unchanged: tfmon race -- python train.py --epochs 3. A notebook is run as a
    script: tfmon race train.ipynb

    By default the lanes are the CPU and the idlest GPU. Without a GPU they are two variants on the CPU; a script
    then has one lane.

    \b
    For example:
      tfmon race large-dense --set prefetch=auto
      tfmon race small-dense --lane cpu --lane gpu:0,batch_size=256 --until-ci 3%
      tfmon race small-dense --seconds 10 --json > result.json
    """
    from tfmon.api.options import race_options, raced

    command = options.own_command()
    info = raced(scenario, command)
    _start(info, race_options(given, info, spare=not (no_spare or command)), **given)


@click.command(cls=options.TakesCommand)
@options.settings
@options.one_lane
@options.seconds
@options.fail_on
@options.notify
@options.baseline
@options.metrics
@options.record
@options.wait_idle
@options.headless
@options.detach
@options.as_json
@options.screen
@click.option("--pid", type=int, help="Look at a process that runs already, and say what can be known of it.")
def watch(pid: int | None, **given: Any) -> None:  # noqa: ANN401
    """Watch your own training script, or a notebook, unchanged, in one lane.

    A Keras `fit` is seen without a change to the script. A loop of your own calls `report.step(...)`; see
    `python -m pydoc tfmon.report`. It goes on when its terminal is closed: `tfmon attach` shows it again.

    \b
    For example:
      tfmon watch -- python train.py --epochs 3
      tfmon watch --lane gpu:0 --headless -- python train.py
      tfmon watch train.ipynb
      tfmon watch --pid 4242
    """
    from tfmon.api.options import race_options
    from tfmon.catalog import command_scenario

    command = options.own_command()
    if pid is not None:
        if command:
            raise UsageError("--pid is for a process that runs already", "leave the command out, or --pid")
        from tfmon.api.running_process import show

        show(pid, live=not (given["headless"] or options.why_no_screen()))
        return
    if not command:
        raise UsageError("there is nothing to watch", "name the command: tfmon watch -- python train.py")
    info = command_scenario(command)
    _start(info, race_options(given, info, one_lane=True), **given)


def _start(
    info: ScenarioInfo,
    race_options: RaceOptions,
    *,
    headless: bool,
    detach: bool,
    as_json: bool,
    theme: str | None,
    mouse: bool | None,
    readonly: bool | None,
    notify: str | None,
    **_: object,
) -> NoReturn:
    """Race on the screen if possible. A user's command and a detached race run in a process that outlives it."""
    from tfmon.api.notify import in_terminal
    from tfmon.api.options import unwatched
    from tfmon.api.program import Program
    from tfmon.api.run import run_until_over
    from tfmon.api.runs import RaceRun, pass_on, plan_race
    from tfmon.model.views import describe

    screen = configured.screen_settings(theme, mouse, readonly, notify)
    headless = headless or as_json
    if detach and headless:
        raise UsageError("--detach excludes --headless and --json", "leave one of them out")
    notes = []
    if not headless and not detach and (why := options.why_no_screen()):
        notes.append(f"{why}: going on without the screen (--headless)")
        headless = True
    if headless:
        given_s, race_options = race_options.seconds, unwatched(race_options, info)
        if race_options.seconds != given_s:
            notes.append(f"racing for {race_options.seconds:g} s; --seconds or --steps says how long")
    elif info.command or detach:
        from tfmon.cli.attach import start

        start(info, race_options, screen, detach=detach)
    program = Program(race_options)
    plan = None
    # What the command line names must be there, or nothing is started; on the screen, the default lanes can wait.
    if headless or race_options.lanes or race_options.settings or race_options.wait_idle_s is not None:
        with options.errors_as_json(as_json):
            plan = plan_race(program, info, race_options.lanes)
    if headless and plan is not None:
        for note in [*notes, *plan.race.differs, *describe(plan.race.views)]:
            click.echo(f"tfmon: {note}", err=True)
        passes_output = bool(plan.command) and len(plan.lanes) == 1
        if passes_output:
            apart = not (as_json or os.path.sameopenfile(1, 2))
            output = pass_on(sys.stderr if as_json else sys.stdout)
            program.lanes.pass_output(output, pass_on(sys.stderr) if apart else None)
        shows = screen.notify if sys.stderr.isatty() else ""
        with in_terminal(program.session, shows, partial(click.echo, nl=False, err=True)):
            interrupted = run_until_over(RaceRun(program, plan), quiet=passes_output)
    else:
        from tfmon.api import live

        interrupted = live.race(program, info, plan, screen)
    snapshot = program.session.snapshot()
    recorded = snapshot.recording.path if snapshot.recording is not None else ""
    if headless or snapshot.lanes:
        # The terminal of a screen may be gone.
        with contextlib.nullcontext() if headless else contextlib.suppress(OSError, TfmonError):
            options.print_result(_result(program, as_json=as_json), recorded)
    sys.exit(program.ending.exit_code_of_race(interrupted))


def _result(program: Program, *, as_json: bool = False) -> object:
    """Return the result of the race as text. Its writers are loaded late so that a screen opens without them."""
    from tfmon.analysis.analysis import analyse
    from tfmon.reports.race import to_text
    from tfmon.reports.race_json import to_json

    result = analyse(program.session.snapshot())
    return to_json(result, program.header) if as_json else to_text(result)
