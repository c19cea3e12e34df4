"""Text that came from elsewhere, made safe to show."""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # operating system commands, such as setting the window title
    r"|\x1b[@-Z\\-_]?(?:[0-?]*[ -/]*[@-~])?"  # control sequences, such as colours and cursor moves
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def clean(text: str, limit: int = 4_000) -> str:
    """Return the text without escape sequences, control and direction characters, cut to `limit` characters.

    Line ends are kept and tabs become spaces, so that what a lane says can be shown but cannot steer the
    terminal.
    """
    text = _ESCAPES.sub("", text[: 4 * limit]).replace("\t", "    ")
    text = _CONTROLS.sub("", text)
    return text if len(text) <= limit else text[: limit - 1] + "…"
