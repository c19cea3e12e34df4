"""Options that several commands share. What their values may be stands in `tfmon.api.rules`."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from tfmon.analysis.health import FAIL_ON
from tfmon.api.rules import RULES, SWEEP_RULES
from tfmon.api.settings import THEME
from tfmon.errors import EXIT_LANE_FAILED, EXIT_UNHEALTHY, TfmonError
from tfmon.model.race import MODES
from tfmon.units import charset

Command = TypeVar("Command", bound=Callable[..., Any])
_OWN_COMMAND = "tfmon.command"


class TakesCommand(click.Command):
    """A command whose words after `--` are a command line of the user's own; a notebook stands for one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what follows `--`, and parse the rest."""
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


def _command_of(notebook: str) -> tuple[str, ...]:
    """Return the command that runs a notebook as a script; print which cells are not run."""
    from tfmon.api.notebook import notebook_script
    from tfmon.api.options import interpreter

    script = notebook_script(Path(notebook))
    if script.skipped:
        click.echo(f"tfmon: not run of {notebook}: {'; '.join(script.skipped)}", err=True)
    return str(interpreter(None)), str(script.path)


def own_command() -> tuple[str, ...]:
    """Return the words after `--`, of a notebook the command that runs it, or empty if there are none."""
    argv: tuple[str, ...] = click.get_current_context().meta.get(_OWN_COMMAND, ())
    return _command_of(argv[0]) if len(argv) == 1 and argv[0].endswith(".ipynb") else argv


def why_no_screen() -> str:
    """Return why no screen can be drawn here, or empty if one can be."""
    if not os.isatty(1):
        return "stdout is not a terminal"
    try:
        os.close(os.open(os.ctermid(), os.O_RDWR))  # the keys come from there if something is piped to tfmon
    except OSError:
        if not os.isatty(0):
            return "stdin is not a terminal"
    if not os.isatty(2):
        return "stderr is not a terminal, and the screen is drawn there"
    terminal = os.environ.get("TERM", "")
    return f"the terminal (TERM={terminal}) cannot show it" if terminal in ("dumb", "unknown", "") else ""


def _all(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    return lambda command: functools.reduce(lambda made, option: option(made), reversed(options), command)


ray_python = click.option(
    "--ray-python",
    metavar="PATH",
    help="The Python that has Ray, if this one has none or another version than the cluster.",
)
ray = _all(
    click.option(
        "--ray",
        metavar="ADDRESS",
        help="The Ray cluster of lanes such as ray/gpu or ray:H100/gpu: HOST:PORT of its head. Default: "
        "RAY_ADDRESS, else the one that runs here.",
    ),
    ray_python,
    click.option(
        "--ray-cpus",
        type=SWEEP_RULES["ray_cpus"],
        show_default="1",
        help="How many CPUs are reserved for the lanes with one name of Ray's, such as ray:H100.",
    ),
)
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
        "lanes",
        metavar="SPEC",
        callback=lambda _context, _param, lane: (lane,) if lane else (),
        help="The lane: [HOST/]DEVICE[,KNOB=VALUE…]. Default: the idlest GPU if there is one, else the CPU.",
    ),
    ray,
)
settings = click.option(
    "--set", "settings", multiple=True, metavar="KNOB=VALUE", help="Set a knob in every lane. Repeatable."
)
fail_on = click.option(
    "--fail-on",
    type=RULES["fail_on"],
    metavar="CONCERN,…",
    help=f"End the race with exit code {EXIT_UNHEALTHY} as soon as a lane has one of these: {', '.join(FAIL_ON)}.",
)
notify = click.option(
    "--notify",
    metavar="COMMAND",
    help="Run COMMAND when something happens to a lane, such as a stall, a failure or its end. The facts are JSON "
    "on its standard input. `bell`, `osc9` and `osc777` have the terminal tell it.",
)
baseline = _all(
    click.option(
        "--baseline",
        metavar="RECORDING",
        help="Have --notify tell where a lane is slower than it was in this race: one as `tfmon diff` takes it.",
    ),
    click.option(
        "--slower-than",
        type=RULES["slower_than"],
        help="Tell it where more than PERCENT is lost. Default: 5%.",
    ),
)
metrics = click.option(
    "--metrics",
    metavar="PORT|FILE",
    help="Serve OpenMetrics for Prometheus on this port of 127.0.0.1, or on ADDRESS:PORT; or write them to FILE "
    "every few seconds.",
)
wait_idle = click.option(
    "--wait-idle",
    type=RULES["wait_idle"],
    metavar="MINUTES",
    help="Wait at most so long until nobody uses a GPU that the lanes are to train on, and say who does.",
)
in_place = click.option(
    "--in-place",
    is_flag=True,
    help="Have all lanes of a script write to the working folder itself. By default each has a copy-on-write view "
    "of it.",
)
seconds = click.option("--seconds", type=RULES["seconds"], help="Stop after this many seconds.")
slice_s = click.option(
    "--slice",
    "slice_s",
    type=RULES["slice_s"],
    show_default="0.5",
    help="Length of one lane's slice in seconds, from 0.2 to 60.",
)
mode = click.option(
    "--mode",
    type=RULES["mode"],
    metavar=f"[{'|'.join(MODES)}]",
    show_default="turns",
    help="Lanes train one at a time in short slices (turns), which is fair, or all at once (concurrent).",
)
python = click.option("--python", metavar="PATH", help="The Python interpreter that trains. It needs TensorFlow.")
headless = click.option("--headless", is_flag=True, help="Use no screen; print a table at the end.")
detach = click.option(
    "--detach", is_flag=True, help="Start it in the background, without a screen; tfmon attach shows and ends it."
)
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
"""The options of any screen: `theme` and `mouse`, `None` if no flag is given."""
screen = _all(
    looks,
    click.option(
        "--readonly/--no-readonly", default=None, help="Show the race to others: no key changes anything."
    ),
)
flags = _all(
    *(
        click.option(f"--{name}", name, metavar="VALUE", help="As for tfmon race.")
        for name in ("slice", "mode", "python")
    ),
    screen,
)
"""The flag of every setting that has one, by the name of the setting, or `None` if it is not given."""


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


def unwritable(error: OSError, hint: str = "") -> TfmonError:
    """Return the error for a standard output that cannot be written."""
    result = TfmonError(f"standard output cannot be written: {error.strerror}", hint)
    result.exit_code = EXIT_LANE_FAILED
    return result


def print_result(result: object, path: str) -> None:
    """Print a result, as JSON unless it is text; where that fails, the hint says that it is in the file `path`."""
    from tfmon.reports.text import fitted

    text = fitted(result) if isinstance(result, str) else json.dumps(result, indent=2, allow_nan=False)
    try:
        click.echo(text)
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        raise unwritable(error, f"the result is in {path}" if path else "it is not recorded either") from None


def echo(text: str) -> None:
    """Print a text, in ASCII where stdout shows nothing else."""
    from tfmon.reports.text import plain

    in_ascii = charset(sys.stdout.encoding or "ascii", os.environ) == "ascii"
    click.echo(plain(text) if in_ascii else text)
