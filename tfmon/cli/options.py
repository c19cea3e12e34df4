"""What several commands share: options, the kinds of values they take, and a line of progress."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tfmon.errors import UsageError
from tfmon.runner import settings as config
from tfmon.runner.settings import MODES, THEME

if TYPE_CHECKING:
    from tfmon.runner.planner import RaceOptions

Command = TypeVar("Command", bound=Callable[..., Any])

LONGEST_S = 365 * 86_400


class Seconds(click.FloatRange):
    """A span of time, of a year at most; `nan`, which lies in every range that Click checks, lies in none."""

    def __init__(self, min: float, max: float = LONGEST_S, *, min_open: bool = False) -> None:
        super().__init__(min=min, max=max, min_open=min_open)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Read the number.

        Errors: click.BadParameter for one out of range.
        """
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not a span of time.", param, ctx)
        return number


class TakesCommand(click.Command):
    """A command whose words after `--` are a command line of the user's own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what follows `--`, and read the rest."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_OWN_COMMAND] = tuple(args[at + 1 :])
            args = args[:at]
            if not ctx.meta[_OWN_COMMAND]:
                raise click.UsageError(
                    f"after -- comes a command, as in: {ctx.command_path} -- python train.py", ctx
                )
        return super().parse_args(ctx, args)


_OWN_COMMAND = "tfmon.command"


def command_of(ctx: click.Context) -> tuple[str, ...]:
    """Return what followed `--`; empty for nothing."""
    words: tuple[str, ...] = ctx.meta.get(_OWN_COMMAND, ())
    return words


def interpreter_of(command: Sequence[str]) -> Path:
    """Return the Python that a command names first, or else this one: it is asked which GPUs there are."""
    found = shutil.which(command[0]) if command and Path(command[0]).name.startswith("python") else None
    return Path(found).absolute() if found else Path(sys.executable)


lanes = click.option(
    "--lane", "lanes", multiple=True, metavar="SPEC", help="DEVICE[,KNOB=VALUE…], such as gpu:0,batch_size=256."
)
settings = click.option("--set", "settings", multiple=True, metavar="KNOB=VALUE", help="A knob of every lane.")


def _setting(name: str, *flags: str, **more: Any) -> Callable[[Command], Command]:  # noqa: ANN401
    """Return an option; where its flag is not given, the environment, the file or what is built in says."""

    def fill(ctx: click.Context, _param: click.Parameter, given: object) -> object:
        return None if ctx.resilient_parsing else config.resolve(name, given).value

    return click.option(*flags, callback=fill, **more)


slice_s = _setting(
    "slice",
    "--slice",
    "slice_s",
    type=Seconds(min=0.2, max=60),
    show_default="0.5",
    help="Seconds a lane trains when it is its turn.",
)
mode = _setting(
    "mode",
    "--mode",
    type=click.Choice(MODES),
    show_default="turns",
    help="One lane at a time in short slices, which is fair, or all at once.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
python = _setting("python", "--python", metavar="PATH", help="The interpreter that trains; it needs TensorFlow.")
_LOOKS = {
    "--theme": "Colours of the screen, such as textual-light; a wrong name lists them all.",
    "--mouse/--no-mouse": "Whether the mouse acts on the screen.",
}


def screen(command: Command) -> Command:
    """Add the options of the screen of a race: `theme`, `mouse` and `readonly`, None where no flag is given."""
    about = "Show the race to others: keys change nothing."
    return looks(click.option("--readonly/--no-readonly", default=None, help=about)(command))


def looks(command: Command) -> Command:
    """Add the options of any screen: `theme` and `mouse`, None where no flag is given."""
    for flag, about in reversed(_LOOKS.items()):
        kind = THEME if flag == "--theme" else None
        command = click.option(flag, type=kind, default=None, help=about)(command)
    return command


def flags(command: Command) -> Command:
    """Add the flag of every setting that has one, under the name of the setting, None where it is not given."""
    for name in ("slice", "mode", "python"):
        command = click.option(f"--{name}", name, default=None, metavar="VALUE", help="As for tfmon race.")(
            command
        )
    return screen(command)


def tell(what: str) -> None:
    """Say on a terminal what goes on, in place of what was said before; "" wipes it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{what}"[:160])
        sys.stderr.flush()


def record(command: Command) -> Command:
    """Add the options that say whether and where a race is recorded."""
    command = click.option("--no-record", is_flag=True, help="Do not record the race.")(command)
    where = "Record the race into this new file; ending in .gz, it is compressed. tfmon runs lists the others."
    return click.option("--record", metavar="FILE", help=where)(command)


def with_recording(race_options: RaceOptions, record: str | None, no_record: bool) -> RaceOptions:
    """Return the race_options with what the options say of the recording.

    Errors: UsageError for options that contradict each other.
    """
    if record is not None and no_record:
        raise UsageError("--record and --no-record exclude each other", "leave one of them out")
    return replace(race_options, record=not no_record, record_file=None if record is None else Path(record))


def why_no_screen() -> str:
    """Return why nothing can be drawn here; empty where a screen can be."""
    if not sys.stdout.isatty():
        return "stdout is no terminal"
    if not sys.stdin.isatty():
        return "stdin is no terminal"
    if not sys.stderr.isatty():
        return "stderr is no terminal, and the screen is drawn there"
    if os.environ.get("TERM", "dumb") in ("dumb", "unknown", ""):
        return f"the terminal (TERM={os.environ.get('TERM', '')}) cannot show it"
    return ""
