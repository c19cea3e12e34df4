"""`tfmon profile`: where the time of some training steps goes, measured by TensorFlow's own profiler."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tfmon.cli import options
from tfmon.errors import EXIT_INTERRUPTED, EXIT_LANE_FAILED, TfmonError, UsageError

if TYPE_CHECKING:
    from tfmon.api.headless import Interruption
    from tfmon.api.program import Program

LEAST_WINDOWS = 5
"""Windows that a lane trains before it is profiled."""


@click.command(short_help="Profile some steps of a scenario.")
@click.argument("scenario")
@click.option("--steps", type=click.IntRange(1, 1000), default=20, show_default=True, help="Steps to profile.")
@click.option("--chrome", metavar="FILE", help="Write the trace to FILE, for ui.perfetto.dev or chrome://tracing.")
@click.option("--keep", metavar="DIR", help="Keep TensorFlow's own files in DIR, for xprof or TensorBoard.")
@options.one_lane
@options.settings
@options.as_json
@options.python
def profile(
    scenario: str,
    steps: int,
    chrome: str | None,
    keep: str | None,
    lane: str | None,
    settings: tuple[str, ...],
    as_json: bool,
    python: str | None,
) -> None:
    """Profile some training steps of SCENARIO in one lane.

    The lane trains until it is steady. Then TensorFlow's profiler records the steps, and the lane reads the trace.

    \b
    For example:
      tfmon profile small-dense
      tfmon profile conv --lane gpu:0 --steps 50 --chrome trace.json
    """
    from tfmon.api.headless import interruption
    from tfmon.api.planner import RaceOptions
    from tfmon.api.program import Program
    from tfmon.catalog import find_scenario
    from tfmon.reports.steps import to_json, to_text

    info = find_scenario(scenario)
    lanes = (lane,) if lane else ()
    interpreter, ray = options.interpreter(python), options.ray_cluster()
    race_options = RaceOptions(lanes=lanes, settings=settings, python=interpreter, one_lane=True, ray=ray)
    if chrome and not os.access(Path(chrome).absolute().parent, os.W_OK):
        raise UsageError(f"--chrome {chrome} cannot be written", "its folder must be there, and writable")
    folder = _folder(keep)
    program = Program(race_options)
    try:
        with interruption() as interrupted:
            try:
                plan = program.plan(info)
                if plan.lanes[0].spec.host and (chrome or keep):
                    raise UsageError("--chrome and --keep need a lane of this machine: traces stay where they are")
                program.begin(plan)
                name = _wait_until_steady(program, interrupted)
                if not name:
                    sys.exit(EXIT_INTERRUPTED)
                found = program.profile(name, folder, steps, str(Path(chrome).absolute()) if chrome else "")
            finally:
                program.close()
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    click.echo(json.dumps(to_json(found), indent=2) if as_json else to_text(found))


def _folder(keep: str | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="tfmon-profile-"))
    try:
        Path(keep).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--keep {keep} is no folder that can be made: {error.strerror or error}") from error
    return Path(keep).absolute()


def _wait_until_steady(program: Program, interrupted: Interruption) -> str:
    """Wait until the lane has trained for a while; return its name, or "" after a signal.

    Raises:
        TfmonError: the lane cannot train.
    """
    while not interrupted.wait():
        (lane,) = program.session.snapshot().lanes
        if lane.over:
            trouble = lane.trouble
            failed = TfmonError(trouble.message, trouble.hint) if trouble else TfmonError("the lane ended")
            failed.exit_code = EXIT_LANE_FAILED
            raise failed
        if lane.steady.windows >= LEAST_WINDOWS:
            return lane.spec.name
    return ""
