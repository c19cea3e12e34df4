"""What a theme of Textual and NO_COLOR come to for the styles of the rows."""

from __future__ import annotations

import os
from collections.abc import Mapping

from textual.color import Color, ColorParseError
from textual.theme import Theme

from tfmon.ui.render.style import Look


def without_colour() -> bool:
    """Return whether the user wants no colour; an empty NO_COLOR does not count, and Textual must not see it."""
    if os.environ.get("NO_COLOR") == "":
        del os.environ["NO_COLOR"]
    return "NO_COLOR" in os.environ


def look_of(theme: Theme, variables: Mapping[str, str], lane_colours: str) -> Look:
    """Return what the styles are made from; `variables` are those that Textual derives from the theme."""
    foreground = _hex(variables.get("foreground", ""), "#e0e0e0")
    background = _hex(variables.get("background", ""), "#121212")
    return Look(theme.dark, theme.ansi, foreground, background, lane_colours)


def _hex(colour: str, default: str) -> str:
    """Return a theme's colour as #rrggbb."""
    try:
        return Color.parse(colour).hex6.lower()
    except ColorParseError:
        return default
