"""What several commands share: options, the kinds of values they take, and a line of progress."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from tfmon import config
from tfmon.settings import MODES, THEME

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
_SCREEN = {
    "--theme": "Colours of the screen, such as textual-light; a wrong name lists them all.",
    "--mouse/--no-mouse": "Whether the mouse acts on the screen.",
    "--readonly/--no-readonly": "Show the race to others: keys change nothing.",
}


def screen(command: Command) -> Command:
    """Add the options of the screen: `theme`, `mouse` and `readonly`, None where no flag is given."""
    for flag, about in reversed(_SCREEN.items()):
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
