"""`tfmon try`: races a change to a script."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from tfmon import units
from tfmon.api import cause_change
from tfmon.api import change as changes
from tfmon.api.change import Change
from tfmon.api.options import ALONE, Purpose, RaceOptions
from tfmon.api.settings import ScreenOptions
from tfmon.cli import flags
from tfmon.errors import EXIT_FINE, UsageError

if TYPE_CHECKING:
    from tfmon.api.race_programs import TrialProgram

MOST_RUNS = 30
HEADLESS_S = 300.0


@click.command("try", cls=flags.TakesCommand)
@click.argument("patch", required=False, type=click.Path(path_type=Path))
@click.option("--git", "revision", metavar="REV", help="Try the files as they are against this revision of git.")
@click.option("--cause", metavar="ID", help="Try the code that a cause in a recording of this script proposes.")
@click.option("--recorded", metavar="RUN", help="The recording of --cause. Default: the newest that has it.")
@click.option(
    "--runs",
    type=click.IntRange(0, MOST_RUNS),
    default=3,
    show_default=True,
    help="Then run each side this often by itself, for the factor of the whole run.",
)
@click.option("--keep", is_flag=True, help="If the answer is keep, ask, and apply the patch to the folder.")
@click.option("--yes", is_flag=True, help="Apply it without the question.")
@flags.takes(RaceOptions, "try")
@flags.takes(ScreenOptions, "try")
@flags.headless
@flags.as_json
def try_(
    screen: ScreenOptions,
    chosen: RaceOptions,
    patch: Path | None,
    revision: str | None,
    cause: str | None,
    recorded: str | None,
    runs: int,
    keep: bool,
    yes: bool,
    headless: bool,
    as_json: bool,
) -> None:
    """Race your script with a change against the script as it is: keep the change, or not?

    The change is PATCH, a unified diff; or the files as they are against a revision; or the code that a cause of a
    recorded run proposes, if that is one certain edit of its line.

    Both lanes see your folder, and one of them with the change. Your files stay as they are. The change is kept if
    it is faster and trains the same: the same numbers of steps and examples, and losses that differ no more than
    seeds explain. Without a screen, the race lasts 5 minutes at most, or --seconds. If both sides end by
    themselves, each then runs alone, for the factor of the whole run.

    Exit codes: 0 keep, 4 refuse, 5 not known yet, 1 the script fails without the change.

    \b
    For example:
      tfmon try fix.patch -- python train.py
      tfmon try --git main --json -- python train.py --epochs 3
      tfmon try --cause input_no_cache -- python train.py
      tfmon try fix.patch --headless --keep -- python train.py
    """
    if not chosen.command:
        raise UsageError("there is no script to try it on", "name its command: tfmon try PATCH -- python train.py")
    if (source_count := sum(source is not None for source in (patch, revision, cause))) != 1:
        raise UsageError(
            "name a patch, a revision with --git, or a cause with --cause", ALONE if source_count else ""
        )
    if revision is not None and (keep or yes):
        raise UsageError("with --git, the folder already has the change that --keep would apply", "leave it out")
    headless, notes = flags.uses_no_screen(headless=headless, detach=False, as_json=as_json)
    with flags.errors_as_json(as_json):
        try:
            if patch is not None:
                change = changes.change_of_patch(patch, Path.cwd())
            elif cause is not None:
                change = cause_change.change_of_cause(cause, recorded or "", chosen.info.name, Path.cwd())
            else:
                change = changes.change_of_revision(revision or "", Path.cwd())
        except changes.PatchError as error:
            _refuse(patch.name if patch is not None else f"the folder against {revision}", error.line, as_json)
    if headless and chosen.seconds is None:
        notes.append(f"the race ends after {units.about(HEADLESS_S)} at the latest; --seconds changes that")
        chosen = replace(chosen, seconds=HEADLESS_S)

    def make() -> TrialProgram:
        from tfmon.api.race_programs import TrialProgram

        return TrialProgram(chosen, Purpose(watched=not headless, change=change), runs)

    from tfmon.cli.attach import prepared, run_here, start

    try:
        if headless:
            run_here(prepared(make, as_json=as_json, notes=notes), as_json=as_json)
        start(make, chosen, screen, detach=False)
    except SystemExit as leaving:
        if (keep or yes) and leaving.code in (None, EXIT_FINE):
            _keep(change, yes=yes)
        raise


def _refuse(change: str, why: str, as_json: bool) -> NoReturn:
    from tfmon.analysis.trial_answer import REFUSE, Trial
    from tfmon.reports import trial_report as report

    trial = Trial(answer=REFUSE, text=f"{REFUSE}: {why}", change=change)
    flags.print_result(report.to_json(trial) if as_json else trial.text, "")
    sys.exit(trial.exit_code)


def _keep(change: Change, *, yes: bool) -> None:
    if yes or click.confirm(f"apply the change to {', '.join(change.paths)}?", err=True):
        for path in changes.keep(change, Path.cwd()):
            click.echo(f"tfmon: {path} is changed", err=True)
