"""What can be set: every setting with its built-in value, and what it may be.

Click's types check every value, wherever it comes from. What is slow to load is loaded when a value needs it.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import click

Value: TypeAlias = str | bool | float

if TYPE_CHECKING:
    Kind: TypeAlias = click.ParamType[Any]
else:
    Kind = click.ParamType  # generic for type checkers alone, and only since Click 8.3


class OneOf(Kind):
    """A word of a list that is made when the word must be checked."""

    name = "name"

    def __init__(self, words: Callable[[], Sequence[str]]) -> None:
        self._words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Return the word.

        Errors: click.BadParameter for another, with the whole list.
        """
        words = self._words()
        if value not in words:
            self.fail(f"{value!r} is not one of {', '.join(words)}", param, ctx)
        return value


class Interpreter(Kind):
    """A program, by its path or as the shell finds it; "" for the interpreter that runs tfmon."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Return it as it is written.

        Errors: click.BadParameter for what cannot be run.
        """
        if value and shutil.which(os.path.expanduser(value)) is None:  # noqa: PTH111 - it may be a bare command
            self.fail(f"{value} is not a program that can be run; name a Python that has TensorFlow", param, ctx)
        return value


def _themes() -> Sequence[str]:
    from tfmon.ui.style import themes

    return themes()


def _lane_colours() -> Sequence[str]:
    from tfmon.ui.style import LANE_COLOURS

    return LANE_COLOURS


@dataclass(frozen=True, slots=True)
class Setting:
    """Something that can be set."""

    name: str
    """Its key in the file; in the environment TFMON_ and the name in capitals."""
    default: Value
    kind: Kind
    help: str

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return f"TFMON_{self.name.upper()}"

    def read(self, value: object) -> Value:
        """Return a value from a flag, a variable or the file.

        Errors: ValueError that says what is allowed.
        """
        try:
            found = self.kind.convert(value, None, None)
        except click.BadParameter as error:
            raise ValueError(error.message.rstrip(".")) from None
        if isinstance(found, float) and not math.isfinite(found):
            raise ValueError(f"{value} is not a span of time")
        return cast(Value, found)


MODES = ("turns", "concurrent")
THEME = OneOf(_themes)
SETTINGS = (
    Setting("scenario", "small-dense", click.STRING, "What is raced where no scenario is named."),
    Setting("python", "", Interpreter(), 'The interpreter that trains; "" for the one that runs tfmon.'),
    Setting("mode", "turns", OneOf(lambda: MODES), "Lanes train in turns, or concurrent: all at once."),
    Setting("slice", 0.5, click.FloatRange(0.2, 60), "Seconds that a lane trains when it is its turn."),
    Setting("theme", "textual-dark", THEME, "Colours of the screen; any of Textual's themes."),
    Setting("lane_colours", "blue-orange", OneOf(_lane_colours), "blue-orange, purple-green or yellow-blue."),
    Setting(
        "characters",
        "auto",
        OneOf(lambda: ("auto", "braille", "block", "ascii")),
        "What charts and frames are drawn with: auto, braille, block or ascii.",
    ),
    Setting("mouse", True, click.BOOL, "Whether the mouse acts; if not, the terminal's own selection works."),
    Setting("readonly", False, click.BOOL, "Show a race to others: keys change nothing."),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}
