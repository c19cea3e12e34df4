"""`tfmon race`, `watch` and `verify`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TextIO

import click

from tfmon.api import value_rules
from tfmon.api.options import Purpose, RaceOptions
from tfmon.api.settings import ScreenOptions
from tfmon.cli import flags
from tfmon.errors import EXIT_INTERRUPTED, UsageError

if TYPE_CHECKING:
    from tfmon.api.program import Program


@click.command(cls=flags.TakesCommand)
@click.argument("scenario", required=False)
@flags.takes(RaceOptions, "race")
@flags.takes(ScreenOptions, "race")
@flags.headless
@flags.detach
@flags.as_json
def race(screen: ScreenOptions, chosen: RaceOptions, headless: bool, detach: bool, as_json: bool) -> None:
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
    _start(chosen, Purpose(), screen, headless=headless, detach=detach, as_json=as_json)


@click.command(cls=flags.TakesCommand)
@flags.takes(RaceOptions, "watch")
@flags.takes(ScreenOptions, "watch")
@flags.headless
@flags.detach
@flags.as_json
@click.option("--pid", type=int, help="Examine a running process, and report what can be known about it.")
def watch(
    screen: ScreenOptions, chosen: RaceOptions, headless: bool, detach: bool, as_json: bool, pid: int | None
) -> None:
    """Watch your own training script, or a notebook, unchanged, in one lane.

    A Keras `fit` is seen without a change to the script. A loop of your own calls `report.step(...)`; see `python
    -m pydoc tfmon.report`. It goes on when its terminal is closed: `tfmon attach` shows it again.

    \b
    For example:
      tfmon watch -- python train.py --epochs 3
      tfmon watch --lane gpu:0 --headless -- python train.py
      tfmon watch train.ipynb
      tfmon watch --pid 4242
    """
    if pid is not None:
        if chosen.command:
            raise UsageError("--pid is for a process that runs already", "leave the command out, or --pid")
        from tfmon.api.observed_process import show

        show(pid, live=not (headless or flags.why_no_screen()))
        return
    if not chosen.command:
        raise UsageError("there is nothing to watch", "name the command: tfmon watch -- python train.py")
    _start(chosen, Purpose(one_lane=True), screen, headless=headless, detach=detach, as_json=as_json)


def _start(
    chosen: RaceOptions, purpose: Purpose, screen: ScreenOptions, *, headless: bool, detach: bool, as_json: bool
) -> NoReturn:
    screen.notify = chosen.notify
    headless, notes = flags.uses_no_screen(headless=headless, detach=detach, as_json=as_json)
    unwatched = chosen.unwatched() if headless else chosen
    purpose = replace(purpose, watched=not headless)

    def make() -> Program:
        from tfmon.api.program import Program

        return Program(unwatched, purpose)

    from tfmon.cli.attach import prepared, run_here, start

    if not headless:
        start(make, chosen, screen, detach=detach)
    if unwatched.seconds != chosen.seconds:
        notes.append(f"racing for {unwatched.seconds:g} s; --seconds or --steps says how long")
    from tfmon.api.notify import notices_in_terminal

    program = prepared(make, as_json=as_json, notes=notes)
    plan = program.planned()
    passes_output = bool(plan.command) and len(plan.lanes) == 1
    if passes_output:
        separate_stderr = not (as_json or os.path.sameopenfile(1, 2))
        program.lanes.echo = _pass_on(sys.stderr if as_json else sys.stdout)
        program.lanes.echo_error = _pass_on(sys.stderr) if separate_stderr else None
    shows = screen.notify if sys.stderr.isatty() else ""
    with notices_in_terminal(program.session, shows, partial(click.echo, nl=False, err=True)):
        run_here(program, as_json=as_json, quiet=passes_output)


def _pass_on(stream: TextIO) -> Callable[[bytes], None]:
    broken = False

    def write(chunk: bytes) -> None:
        nonlocal broken
        if not broken:
            try:
                stream.buffer.write(chunk)
                stream.flush()
            except (OSError, ValueError):
                broken = True

    return write


@click.command
@click.argument("scenarios", nargs=-1)
@click.option(
    "--seconds",
    type=value_rules.seconds(3.0),
    help="Length of a claim's race at most. Default: 12, or less where that would take more than 10 minutes.",
)
@flags.as_json
@flags.python
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
    from tfmon.reports.findings import claims_to_json, claims_to_text

    infos = [find_scenario(name) for name in scenarios] or [
        replace(info, claims=tuple(claim for claim in info.claims if claim.seconds is None))
        for info in list_scenarios()
    ]
    results, interrupted = verify_claims(infos, flags.interpreter_of(python), seconds)
    flags.print_result((claims_to_json if as_json else claims_to_text)(results, interrupted), "")
    if interrupted:
        sys.exit(EXIT_INTERRUPTED)
