"""The command line: reads the words, wires the program, prints errors, returns exit codes."""

from __future__ import annotations

import contextlib
import difflib
import json
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

import tfmon
from tfmon.commands.crossover import crossover
from tfmon.commands.profile import profile
from tfmon.errors import EXIT_INTERRUPTED, TfmonError, UsageError

if TYPE_CHECKING:
    from tfmon.catalog import Card
    from tfmon.planner import Wishes

DEFAULT_SCENARIO = "small-dense"
HEADLESS_SECONDS = 30.0
LEAST_CI = 0.02
"""A narrower interval is never reached: `race.statistics.LOTTERY` is a part of it."""
LONGEST_S = 365 * 86_400


class Commands(click.Group):
    """Commands, with a hint for whoever names a scenario where a command belongs."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:  # noqa: ANN401 - click's own type
        """Find a command.

        Errors: click.UsageError for an unknown one, with the nearest.
        """
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            hint = f"did you mean `tfmon {near[0]}`?" if near else f"to race a scenario: tfmon race {name}"
            raise click.UsageError(f"there is no command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


class Seconds(click.FloatRange):
    """A span of time; `nan`, which lies in every range that Click checks, lies in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Read the number.

        Errors: click.BadParameter for one out of range.
        """
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not a span of time.", param, ctx)
        return number


@click.group(cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tfmon.__version__, prog_name="tfmon")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Race TensorFlow training on the CPU and the GPU, live, and see who is faster and why.

    Without a command, tfmon races small-dense. Press ? in the screen for the keys.

    Exit codes: 0 fine, 1 a lane failed, 2 wrong usage, 3 a device that was asked for is not there,
    130 interrupted.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(race)


@cli.command()
@click.argument("scenario", default=DEFAULT_SCENARIO)
@click.option(
    "--lane", "lanes", multiple=True, metavar="SPEC", help="DEVICE[,KNOB=VALUE…], such as gpu:0,batch_size=256."
)
@click.option("--set", "settings", multiple=True, metavar="KNOB=VALUE", help="A knob of every lane.")
@click.option("--seconds", type=Seconds(min=0, min_open=True, max=LONGEST_S), help="Race so long, then stop.")
@click.option("--steps", type=click.IntRange(min=1), help="Race so many steps in each lane, then stop.")
@click.option(
    "--mode",
    type=click.Choice(["turns", "concurrent"]),
    default="turns",
    show_default=True,
    help="One lane at a time in short slices, which is fair, or all at once.",
)
@click.option(
    "--slice",
    "slice_s",
    type=Seconds(min=0.2, max=60),
    default=0.5,
    show_default=True,
    help="Seconds a lane trains when it is its turn.",
)
@click.option(
    "--until-ci",
    metavar="PERCENT",
    help="Race until every ratio is known to ± so much, for example 5%.",
)
@click.option("--headless", is_flag=True, help="No screen: print a table at the end.")
@click.option("--json", "as_json", is_flag=True, help="No screen: print one JSON object at the end.")
@click.option("--python", metavar="PATH", help="The interpreter that trains; it needs TensorFlow.")
def race(
    scenario: str,
    lanes: tuple[str, ...],
    settings: tuple[str, ...],
    seconds: float | None,
    steps: int | None,
    mode: str,
    slice_s: float,
    until_ci: str | None,
    headless: bool,
    as_json: bool,
    python: str | None,
) -> None:
    """Race SCENARIO: a name from `tfmon list`, or a file of your own such as ./mine.py.

    By default on the CPU and the first GPU; without a GPU, in two variants on the CPU.
    """
    from tfmon.catalog import find_card
    from tfmon.planner import Wishes, find_python

    if seconds is not None and steps is not None:
        raise UsageError("--seconds and --steps exclude each other", "leave one of them out")
    card = find_card(scenario)
    interpreter = find_python(python) if python else Path(sys.executable)
    headless = headless or as_json
    notes = []
    if not headless and (why := _why_no_screen()):
        notes.append(f"{why}: racing without the screen (--headless)")
        headless = True
    narrow = None if until_ci is None else _percentage(until_ci)
    if narrow is not None and mode != "turns":
        raise UsageError("--until-ci needs --mode turns", "a contended ratio has no interval")
    if headless and seconds is None and steps is None and narrow is None:
        seconds = HEADLESS_SECONDS
        notes.append(f"racing for {seconds:g} s; --seconds or --steps says how long")
    wishes = Wishes(lanes, settings, interpreter, seconds, steps, mode, slice_s, narrow)
    if headless:
        _race_headless(card, wishes, as_json, notes)
    _race_on_screen(card, wishes)


@cli.command()
@click.argument("scenarios", nargs=-1)
@click.option(
    "--seconds", type=Seconds(min=3, max=LONGEST_S), default=12.0, show_default=True, help="Longest race."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--python", metavar="PATH", help="The interpreter that trains; it needs TensorFlow.")
def verify(scenarios: tuple[str, ...], seconds: float, as_json: bool, python: str | None) -> None:
    """Measure what is claimed about SCENARIOS, or about all of them.

    Each claim is a race of two lanes. A claim that is contradicted is a finding, not a failure: the exit code
    is 0 unless the command itself is interrupted.
    """
    from tfmon.catalog import find_card, list_cards
    from tfmon.planner import find_python
    from tfmon.verify import Verification, to_json, to_text

    cards = [find_card(name) for name in scenarios] or list_cards()
    verification = Verification(cards, find_python(python) if python else Path(sys.executable), seconds)
    verification.run()
    click.echo(json.dumps(to_json(verification), indent=2) if as_json else to_text(verification))
    if verification.interrupted:
        sys.exit(EXIT_INTERRUPTED)


@cli.command()
@click.argument("name")
def new(name: str) -> None:
    """Write a commented scenario file NAME.py that races at once."""
    from tfmon.starter import write

    path = write(name)
    click.echo(f"wrote {path}; tfmon race ./{path} races it")


@cli.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def list_scenarios(as_json: bool) -> None:
    """List the scenarios that can be raced."""
    from tfmon.catalog import list_cards

    cards = list_cards()
    if as_json:
        rows = [
            {"name": card.name, "title": card.title, "origin": card.origin, "path": str(card.path)}
            for card in cards
        ]
        click.echo(json.dumps(rows, indent=2))
        return
    width = max(len(card.name) for card in cards)
    for origin in dict.fromkeys(card.origin for card in cards):
        click.echo(f"{origin}:")
        for card in cards:
            if card.origin == origin:
                click.echo(f"  {card.name:{width}}  {card.title}")
    click.echo("\ntfmon show NAME says more; tfmon race NAME races it, also with a file of your own: ./mine.py")


@cli.command()
@click.argument("scenario")
def show(scenario: str) -> None:
    """Show what SCENARIO trains, and its knobs."""
    from tfmon.catalog import find_card
    from tfmon.model.knobs import show as written

    card = find_card(scenario)
    click.echo(f"{card.name}: {card.title}\n\n{card.doc}\n")
    click.echo(f"file      {card.path}")
    click.echo(f"contrast  {' | '.join(card.contrast)}  (raced where there is no GPU)\n")
    click.echo("knobs")
    for knob in card.knobs:
        click.echo(f"  {knob.name}={written(knob.default)}  ({knob.kind}; {knob.allowed()})\n      {knob.help}")


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("-v", "--verbose", is_flag=True, help="Show what was seen, and the checks that do not apply.")
@click.option("--no-import", is_flag=True, help="Do not import TensorFlow, which takes seconds.")
@click.option("--python", metavar="PATH", help="The interpreter to examine; it should have TensorFlow.")
def doctor(as_json: bool, verbose: bool, no_import: bool, python: str | None) -> NoReturn:
    """Say why TensorFlow uses no GPU here, and whether a race would be fair.

    Exit codes: 0 all fine, 1 warnings, 2 no usable GPU (or wrong usage), 3 TensorFlow unusable.
    """
    from tfmon.doctor.report import run_checks
    from tfmon.doctor.text import to_json, to_text
    from tfmon.planner import find_python
    from tfmon.ui.charset import charset

    report = run_checks(find_python(python) if python else Path(sys.executable), imports=not no_import)
    if as_json:
        click.echo(json.dumps(to_json(report), indent=2))
        sys.exit(report.exit_code)
    ascii_only = charset(sys.stdout.encoding or "ascii", os.environ) == "ascii"
    colours = {} if os.environ.get("NO_COLOR") else {"ok": "green", "warning": "yellow", "broken": "red"}

    def paint(text: str, status: str) -> str:
        return click.style(text, fg=colours[status]) if status in colours else text

    click.echo(to_text(report, verbose=verbose, ascii_only=ascii_only, paint=paint))
    sys.exit(report.exit_code)


cli.add_command(crossover)
cli.add_command(profile)


def main() -> NoReturn:
    """Run the command line and leave with its exit code."""
    stdout = sys.stdout
    try:
        code = cli.main(standalone_mode=False)
    except TfmonError as error:
        click.echo(f"tfmon: {error.message}", err=True)
        if error.hint:
            click.echo(f"  {error.hint}", err=True)
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = EXIT_INTERRUPTED
    except SystemExit as leaving:
        # Whoever read our output has gone, as `head` does: Click replaces stdout then and leaves with 1, which
        # here means a failed lane.
        code = leaving.code if sys.stdout is stdout else 0
    sys.exit(code if isinstance(code, int) else 0)


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


def _race_headless(card: Card, wishes: Wishes, as_json: bool, notes: list[str]) -> NoReturn:
    from tfmon import headless, result
    from tfmon.program import Program

    program = Program(wishes)
    try:
        plan = program.plan(card)
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


def _race_on_screen(card: Card, wishes: Wishes) -> NoReturn:
    from tfmon import live, result
    from tfmon.program import Program

    program = Program(wishes)
    try:
        # What the command line names must be there, or nothing is started; the default lanes can wait.
        plan = program.plan(card) if wishes.lanes or wishes.settings else None
    except TfmonError:
        program.close()
        raise
    interrupted = live.run(program, card, plan)
    snapshot = program.session.snapshot()
    if any(lane.points for lane in snapshot.lanes) or program.exit_code():
        with contextlib.suppress(OSError):
            click.echo(result.to_text(snapshot, interrupted))
    sys.exit(EXIT_INTERRUPTED if interrupted else program.exit_code())


def _why_no_screen() -> str:
    if not sys.stdout.isatty():
        return "stdout is no terminal"
    if not sys.stdin.isatty():
        return "stdin is no terminal"
    if not sys.stderr.isatty():
        return "stderr is no terminal, and the screen is drawn there"
    if os.environ.get("TERM", "dumb") in ("dumb", "unknown", ""):
        return f"the terminal (TERM={os.environ.get('TERM', '')}) cannot show it"
    return ""


if __name__ == "__main__":
    main()
