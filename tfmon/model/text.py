"""Text that came from elsewhere, made safe to show."""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    # Commands with text, such as a window title; one without an end takes no more than its line.
    r"(?:\x1b[]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\n\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # control sequences, such as colours and cursor moves
    r"|\x1b[ -/]*[0-~]?"  # short ones, such as a change of the character set
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: str, limit: int = 4_000) -> str:
    """Return the text without escape sequences, controls, direction marks and surrogates, cut to a limit.

    Line ends are kept and tabs become spaces, so that what a lane says can be shown but cannot steer the
    terminal.
    """
    text = _ESCAPES.sub("", text[: 4 * limit]).replace("\t", "    ")
    text = _CONTROLS.sub("", text)
    return text if len(text) <= limit else text[: limit - 1] + "…"
