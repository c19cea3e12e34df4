"""`tfmon sweep`: many combinations of settings, each raced against the baseline."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from tfmon.api import settings as configured
from tfmon.api.settings import Seconds
from tfmon.cli import options
from tfmon.errors import EXIT_CANNOT_TELL, EXIT_FINE, EXIT_INTERRUPTED, EXIT_LANE_FAILED, TfmonError

if TYPE_CHECKING:
    from tfmon.analysis.sweep import Found


@click.command(cls=options.TakesCommand, short_help="Measure many combinations of settings.")
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
    "places",
    multiple=True,
    metavar="[HOST/]DEVICE",
    help="Where to measure; repeatable, or with commas between. Default: cpu. A combination is measured on each "
    "kind of device; ray/gpu*2 is two workers on a Ray cluster.",
)
@options.settings
@click.option(
    "--until-ci",
    metavar="PERCENT",
    default="3%",
    show_default=True,
    help="Measure each combination until its ratio is known to within ± PERCENT.",
)
@click.option(
    "--limit", type=Seconds(min=1), default=60.0, show_default=True, help="Time limit for each combination."
)
@click.option("--all", "everything", is_flag=True, help="Disable early stopping: measure every combination fully.")
@options.slice_s
@options.in_place
@click.option(
    "--record", metavar="FILE", help="Keep the sweep in this new file; by default it is kept among your sweeps."
)
@click.option(
    "--resume",
    metavar="FILE",
    help="Go on with a sweep that was interrupted, or with the `last`; nothing is measured twice.",
)
@options.headless
@options.as_json
@options.looks
@options.python
@options.ray
def sweep(
    scenario: str | None,
    over: tuple[str, ...],
    places: tuple[str, ...],
    settings: tuple[str, ...],
    until_ci: str,
    limit: float,
    everything: bool,
    slice_s: float,
    in_place: bool,
    record: str | None,
    resume: str | None,
    headless: bool,
    as_json: bool,
    theme: str | None,
    mouse: bool | None,
    python: str | None,
) -> None:
    """Measure SCENARIO under all combinations of the values of some knobs, and rank them.

    Or your own script, unchanged: tfmon sweep --over learning_rate=1e-3,1e-4 -- python train.py

    Each combination is raced in turns against the baseline (the scenario's settings, and --set) on the same
    device, so that its ratio compares with those from other machines. What cannot be the best is stopped early.
    Ctrl+C keeps what there is; --resume goes on with it.

    \b
    For example:
      tfmon sweep large-dense --over batch_size=16..4096
      tfmon sweep large-dense --over batch_size=32,128,512 --over mixed_precision=off,bfloat16 --on gpu
      tfmon sweep large-dense --over batch_size=32,128,512 --on ray/gpu
      tfmon sweep --resume FILE
    """
    from tfmon.analysis.sweep import FAILED, LEAST_CI
    from tfmon.api.planner import RaceOptions
    from tfmon.api.sweep import SweepOptions, SweepProgram, check_start
    from tfmon.model.views import describe

    command = options.own_command()
    context = click.get_current_context()
    given = [
        one.opts[0]
        for one in context.command.params
        if context.get_parameter_source(str(one.name)) is ParameterSource.COMMANDLINE
    ]
    check_start(scenario=scenario is not None, command=bool(command), resume=resume is not None, given=given)
    headless = headless or as_json
    screen = configured.screen_settings(theme, mouse, None)
    sweep_options = SweepOptions(
        over=over,
        places=places,
        race=RaceOptions(
            settings=settings,
            slice_s=slice_s,
            python=options.interpreter(python, command),
            watched=False,
            ray=options.ray_cluster(),
            in_place=in_place,
        ),
        until_ci=options.percentage("--until-ci", until_ci, LEAST_CI),
        each_s=limit,
        everything=everything,
    )
    if not headless and (why := options.why_no_screen()):
        click.echo(f"tfmon: {why}: sweeping without the screen (--headless)", err=True)
        headless = True
    with options.errors_as_json(as_json):
        program = SweepProgram(
            scenario,
            command,
            sweep_options,
            file=None if record is None else Path(record),
            resume=None if resume is None else Path(resume),
        )
    for line in describe(program.views):
        click.echo(f"tfmon: {line}", err=True)
    if headless:
        from tfmon.api.headless import run_sweep

        interrupted = run_sweep(program)
    else:
        from tfmon.api import live

        interrupted = live.sweep(program, screen)
    found, file = program.sweep.found, program.file
    path = str(file.path) if file else ""
    with contextlib.nullcontext() if headless else contextlib.suppress(OSError, TfmonError):
        options.print_result(_report(found, path, as_json=as_json), path)
    if file is not None and file.failure:
        raise TfmonError(file.failure, "some printed results were not saved")
    failed = program.sweep.failure or found.state.lost or any(row.outcome == FAILED for row in found.rows)
    fine = EXIT_FINE if found.answered else EXIT_CANNOT_TELL
    sys.exit(EXIT_INTERRUPTED if interrupted else EXIT_LANE_FAILED if failed else fine)


def _report(found: Found, file: str, *, as_json: bool) -> str:
    from tfmon.reports.series import to_text
    from tfmon.reports.series_json import sweep_to_json

    if as_json:
        return json.dumps(sweep_to_json(found, file), indent=2, allow_nan=False)
    return to_text(found, file)
