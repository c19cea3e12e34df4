"""Flags of commands, from the declared options, and their output."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import click

from tfmon.api.options import ALONE, RaceOptions, interpreter
from tfmon.api.settings import SETTINGS, resolve, settled
from tfmon.api.value_rules import YES_OR_NO, Option, Options
from tfmon.errors import EXIT_LANE_FAILED, TfmonError, UsageError
from tfmon.units import charset

Command = TypeVar("Command", bound=Callable[..., Any])
Chosen = TypeVar("Chosen", bound=Options)
Result = TypeVar("Result")
P = ParamSpec("P")
_OWN_COMMAND = "tfmon.command"


class TakesCommand(click.Command):
    """A command that takes the user's command after `--`, or a notebook."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Store the arguments after `--`, and parse the others."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_OWN_COMMAND] = tuple(args[at + 1 :])
            args = args[:at]
            if not ctx.meta[_OWN_COMMAND]:
                example = f"{ctx.command_path} -- python train.py"
                raise click.UsageError(f"after -- comes a command, as in: {example}", ctx)
        elif notebook := next((word for word in args if word.endswith(".ipynb")), ""):
            ctx.meta[_OWN_COMMAND] = (notebook,)
            args = [word for word in args if word != notebook]
        return super().parse_args(ctx, args)


def own_command() -> tuple[str, ...]:
    """Return the arguments after `--`, or the command for a notebook; print skipped cells."""
    argv: tuple[str, ...] = click.get_current_context().meta.get(_OWN_COMMAND, ())
    if len(argv) != 1 or not argv[0].endswith(".ipynb"):
        return argv
    from tfmon.api.notebook import notebook_script

    script, skipped = notebook_script(Path(argv[0]))
    if skipped:
        click.echo(f"tfmon: not run of {argv[0]}: {'; '.join(skipped)}", err=True)
    return str(interpreter_of(None)), str(script)


def interpreter_of(python: str | None) -> Path:
    """Return the interpreter of the flag or setting, or this interpreter; raises UsageError."""
    return interpreter(python or str(resolve("python").value))


def why_no_screen() -> str:
    """Return why no screen is possible, or empty."""
    if not os.isatty(1):
        return "stdout is not a terminal"
    try:
        os.close(os.open(os.ctermid(), os.O_RDWR))  # source of the keys if stdin is a pipe
    except OSError:
        if not os.isatty(0):
            return "stdin is not a terminal"
    if not os.isatty(2):
        return "stderr is not a terminal, and the screen is drawn there"
    terminal = os.environ.get("TERM", "")
    return f"the terminal (TERM={terminal}) cannot show it" if terminal in ("dumb", "unknown", "") else ""


def uses_no_screen(
    *, headless: bool, detach: bool, as_json: bool, doing: str = "going on"
) -> tuple[bool, list[str]]:
    """Return whether the user or terminal excludes a screen, and notes about the terminal."""
    if detach and (headless or as_json):
        raise UsageError("--detach excludes --headless and --json", ALONE)
    if headless or as_json or detach or not (why := why_no_screen()):
        return headless or as_json, []
    return True, [f"{why}: {doing} without the screen (--headless)"]


def flag(option: Option[Any, Any], name: str = "") -> Callable[[Command], Command]:
    """Return the Click option for a declared option."""
    more: dict[str, Any] = {"is_flag": True} if option.rule is YES_OR_NO else {"type": option.rule}
    if option.multiple:
        more = {"multiple": True}
    if option.optional_value is not None:
        more |= {"is_flag": False, "flag_value": option.optional_value}
    more |= {"help": option.help, "show_default": option.shown, "metavar": option.metavar}
    return click.option(option.flag, name or option.name, default=None, **more)


def takes(
    options: type[Chosen], command: str
) -> Callable[[Callable[Concatenate[Chosen, P], Result]], Callable[P, Result]]:
    """Return a decorator that passes the declared options as the first argument.

    The options include the user's command after `--`.
    """
    flagged = [option for option in options.declared() if command in option.commands and option.has_flag]

    def decorate(function: Callable[Concatenate[Chosen, P], Result]) -> Callable[P, Result]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Result:
            values = {option.name: kwargs.pop(option.name) for option in flagged}
            values |= {"scenario": kwargs.pop("scenario", None), "command": own_command()}
            for option in flagged:
                if option.off and kwargs.pop(f"no_{option.name}", False):
                    if values[option.name] is not None:
                        raise UsageError(f"{option.flag} and {option.off} exclude each other", ALONE)
                    values[option.name] = False
            chosen = options()
            for option in options.declared():
                if values.get(option.name) not in (None, ()):
                    option.__set__(chosen, values[option.name])
            return function(settled(chosen, command), *args, **kwargs)

        for option in reversed(flagged):
            if option.off:
                click.option(option.off, f"no_{option.name}", is_flag=True, help=f"Turn {option.flag} off.")(call)
            flag(option)(call)
        return call

    return decorate


as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object. No screen is used.")
headless = click.option("--headless", is_flag=True, help="Use no screen; print a table at the end.")
detach = click.option(
    "--detach", is_flag=True, help="Start it in the background, without a screen; tfmon attach shows and ends it."
)
python = flag(RaceOptions.declaration("python"))
ray_python = flag(RaceOptions.declaration("ray_python"))


def settings(command: Command) -> Command:
    """Add the flag of every setting to a command."""
    for option in reversed(SETTINGS):
        if "config" in option.commands and option.has_flag:
            command = flag(option, option.setting)(command)
    return command


@contextlib.contextmanager
def errors_as_json(as_json: bool, **more: str) -> Iterator[None]:
    """Print an error as JSON, with `more`, if the command prints JSON."""
    try:
        yield
    except TfmonError as error:
        if as_json:
            from tfmon.reports import common_keys

            answer = {**common_keys(), **more, "error": error.message, "hint": error.hint or None}
            click.echo(json.dumps(answer, indent=2))
        raise


def unwritable(error: OSError, hint: str = "") -> TfmonError:
    """Return the error for unwritable standard output."""
    message = f"standard output cannot be written: {error.strerror}"
    return TfmonError(message, hint, exit_code=EXIT_LANE_FAILED)


def print_result(result: object, path: str) -> None:
    """Print a result, as JSON unless it is text. `path` also has the result."""
    from tfmon.reports.text import fitted

    text = fitted(result) if isinstance(result, str) else json.dumps(result, indent=2, allow_nan=False)
    try:
        click.echo(text)
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        raise unwritable(error, f"the result is in {path}" if path else "it is not recorded either") from None


def echo(text: str) -> None:
    """Print a text, if necessary in ASCII."""
    from tfmon.reports.text import plain

    in_ascii = charset(sys.stdout.encoding or "ascii", os.environ) == "ascii"
    click.echo(plain(text) if in_ascii else text)
