"""Options that several commands share, and what is read from them."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tfmon.api.settings import LONGEST_WAIT_MIN, THEME, Seconds, resolve
from tfmon.errors import EXIT_LANE_FAILED, TfmonError, UsageError
from tfmon.model.race import MODES
from tfmon.units import charset

if TYPE_CHECKING:
    from tfmon.api.planner import RaceOptions
    from tfmon.lanes.remote.ray import RayCluster

Command = TypeVar("Command", bound=Callable[..., Any])
_OWN_COMMAND = "tfmon.command"
_RAY = "ray"


class TakesCommand(click.Command):
    """A command whose words after `--` are a command line of the user's own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what follows `--`, and parse the rest."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_OWN_COMMAND] = tuple(args[at + 1 :])
            args = args[:at]
            if not ctx.meta[_OWN_COMMAND]:
                example = f"{ctx.command_path} -- python train.py"
                raise click.UsageError(f"after -- comes a command, as in: {example}", ctx)
        return super().parse_args(ctx, args)


def own_command() -> tuple[str, ...]:
    """Return the words after `--`; empty if there are none."""
    words: tuple[str, ...] = click.get_current_context().meta.get(_OWN_COMMAND, ())
    return words


def interpreter(python: str | None, command: Sequence[str] = ()) -> Path:
    """Return the Python that trains: that of `--python`, else the one a command begins with, else this one.

    Raises:
        UsageError: `python` cannot be run.
    """
    from tfmon.api import planner

    return planner.interpreter(python, command)


def percentage(option: str, text: str, least: float, why: str = "") -> float:
    """Return a share that is written as a percentage; `why` says why it can be no less.

    Raises:
        UsageError: it is none, or out of range.
    """
    try:
        value = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        value = 0.0
    if not least <= value < 1:
        hint = f"for example {option} 5%" + (f"; {why}" if why else "")
        raise UsageError(f"{option} {text} is not a percentage from {100 * least:g}% to 100%", hint)
    return value


def why_no_screen() -> str:
    """Return why no screen can be drawn here; empty where one can be."""
    for name, use in (("stdout", ""), ("stdin", ""), ("stderr", ", and the screen is drawn there")):
        if not getattr(sys, name).isatty():
            return f"{name} is no terminal{use}"
    terminal = os.environ.get("TERM", "")
    return f"the terminal (TERM={terminal}) cannot show it" if terminal in ("dumb", "unknown", "") else ""


# ---------------- the options


def _keep(ctx: click.Context, param: click.Parameter, given: object) -> object:
    """Keep the value of an option that no command takes as an argument."""
    ctx.meta[str(param.name)] = given
    return given


def _all(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return a decorator that adds several options, in this order."""
    return lambda command: functools.reduce(lambda made, option: option(made), reversed(options), command)


def _setting(name: str, *flags: str, **more: Any) -> Callable[[Command], Command]:  # noqa: ANN401
    """Return an option with the value of a setting where its flag is not given."""

    def fill(ctx: click.Context, _param: click.Parameter, given: object) -> object:
        return resolve(name).value if given is None and not ctx.resilient_parsing else given

    return click.option(*flags, callback=fill, **more)


_ray_python = functools.partial(
    click.option,
    "--ray-python",
    metavar="PATH",
    help="The Python that has Ray, if this one has none or another version than the cluster.",
)
ray_python = _ray_python()
ray = _all(
    click.option(
        "--ray",
        _RAY,
        metavar="ADDRESS",
        expose_value=False,
        callback=_keep,
        help="The Ray cluster of lanes such as ray/gpu or ray:H100/gpu: HOST:PORT of its head. Default: "
        "RAY_ADDRESS, else the one that runs here.",
    ),
    _ray_python(expose_value=False, callback=_keep),
    click.option(
        "--ray-cpus",
        f"{_RAY}_cpus",
        type=click.FloatRange(min=0),
        default=1.0,
        show_default="1",
        expose_value=False,
        callback=_keep,
        help="How many CPUs are reserved for the lanes with one name of Ray's, such as ray:H100.",
    ),
)
"""The options that name a Ray cluster; `ray_cluster` returns it."""
lanes = _all(
    click.option(
        "--lane",
        "lanes",
        multiple=True,
        metavar="SPEC",
        help="A lane: [HOST/]DEVICE[,KNOB=VALUE…], such as gpu:0,batch_size=256, gpu:0+1, 2xcpu, me@gpu2/gpu or "
        "ray/gpu. Give it once for each lane.",
    ),
    ray,
)
one_lane = _all(
    click.option(
        "--lane",
        metavar="SPEC",
        help="The lane: [HOST/]DEVICE[,KNOB=VALUE…]. Default: the idlest GPU if there is one, else the CPU.",
    ),
    ray,
)
settings = click.option(
    "--set", "settings", multiple=True, metavar="KNOB=VALUE", help="Set a knob in every lane. Repeatable."
)
wait_idle = click.option(
    "--wait-idle",
    "wait_idle_s",
    type=Seconds(min=0, max=LONGEST_WAIT_MIN),
    metavar="MINUTES",
    callback=lambda _context, _param, minutes: None if minutes is None else 60 * minutes,
    help="Wait at most so long until nobody uses a GPU that the lanes are to train on, and say who does.",
)
in_place = click.option(
    "--in-place",
    is_flag=True,
    help="Have all lanes of a script write to the working folder itself. By default each has a copy-on-write view "
    "of it.",
)
seconds = click.option("--seconds", type=Seconds(min=0, min_open=True), help="Stop after this many seconds.")
slice_s = _setting(
    "slice",
    "--slice",
    "slice_s",
    type=Seconds(min=0.2, max=60),
    show_default="0.5",
    help="Length of one lane's slice in seconds.",
)
mode = _setting(
    "mode",
    "--mode",
    type=click.Choice(MODES),
    show_default="turns",
    help="Lanes train one at a time in short slices (turns), which is fair, or all at once (concurrent).",
)
python = _setting(
    "python", "--python", metavar="PATH", help="The Python interpreter that trains. It needs TensorFlow."
)
headless = click.option("--headless", is_flag=True, help="Use no screen; print a table at the end.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object. No screen is used.")
record = _all(
    click.option(
        "--record",
        metavar="FILE",
        help="Record the race into this new file; a name ending in .gz is compressed. "
        "Without it, the race is recorded among those that `tfmon runs` lists.",
    ),
    click.option("--no-record", is_flag=True, help="Do not record the race."),
)
looks = _all(
    click.option(
        "--theme", type=THEME, help="Colours of the screen, such as textual-light; a wrong name lists all."
    ),
    click.option("--mouse/--no-mouse", default=None, help="Whether the mouse acts on the screen."),
)
"""The options of any screen: `theme` and `mouse`, None where no flag is given."""
screen = _all(
    looks,
    click.option(
        "--readonly/--no-readonly", default=None, help="Show the race to others: no key changes anything."
    ),
)
"""The options of the screen of a race: also `readonly`."""
flags = _all(
    *(
        click.option(f"--{name}", name, metavar="VALUE", help="As for tfmon race.")
        for name in ("slice", "mode", "python")
    ),
    screen,
)
"""The flag of every setting that has one, by the name of the setting; None where it is not given."""


def ray_cluster() -> RayCluster | None:
    """Return the Ray cluster that the command line names, or None."""
    context = click.get_current_context()
    address: str | None = context.meta.get(_RAY)
    python: str | None = context.meta.get(f"{_RAY}_python")
    cpus: float = context.meta.get(f"{_RAY}_cpus", 1.0)
    from tfmon.api import planner

    return planner.ray_cluster(address, python, cpus)


@contextlib.contextmanager
def errors_as_json(as_json: bool) -> Iterator[None]:
    """Print the error that ends the command as a JSON object, too, where one is to be printed."""
    try:
        yield
    except TfmonError as error:
        if as_json:
            from tfmon.reports import head

            click.echo(json.dumps({**head(), "error": error.message, "hint": error.hint or None}, indent=2))
        raise


def with_recording(race_options: RaceOptions, record: str | None, no_record: bool) -> RaceOptions:
    """Return the options of a race with what `--record` and `--no-record` say.

    Raises:
        UsageError: both are given.
    """
    if record is not None and no_record:
        raise UsageError("--record and --no-record exclude each other", "leave one of them out")
    return replace(race_options, record=not no_record, record_file=None if record is None else Path(record))


def unwritable(error: OSError, hint: str = "") -> TfmonError:
    """Return the error for a standard output that cannot be written."""
    found = TfmonError(f"standard output cannot be written: {error.strerror}", hint)
    found.exit_code = EXIT_LANE_FAILED
    return found


def print_result(text: str, path: str) -> None:
    """Print a result that is also in the recording `path`, if there is one.

    Raises:
        TfmonError: standard output cannot be written; the hint says where the result is.
    """
    try:
        click.echo(text)
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        raise unwritable(error, f"the result is in {path}" if path else "it is not recorded either") from None


def ascii_only() -> bool:
    """Return whether stdout shows ASCII alone."""
    return charset(sys.stdout.encoding or "ascii", os.environ) == "ascii"
