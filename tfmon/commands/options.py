"""What several commands share: options, the kinds of values they take, and a line of progress."""

from __future__ import annotations

import math
import sys
from typing import Any

import click

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
slice_s = click.option(
    "--slice",
    "slice_s",
    type=Seconds(min=0.2, max=60),
    default=0.5,
    show_default=True,
    help="Seconds a lane trains when it is its turn.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
python = click.option("--python", metavar="PATH", help="The interpreter that trains; it needs TensorFlow.")


def tell(what: str) -> None:
    """Say on a terminal what goes on, in place of what was said before; "" wipes it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{what}"[:160])
        sys.stderr.flush()
