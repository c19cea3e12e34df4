"""Files that the user asks for: a picture of the screen, and the table of the race."""

from __future__ import annotations

import time
from pathlib import Path

from textual.app import App


def save(app: App[object], scenario: str, table: str) -> str:
    """Save the screen as SVG and the table as text in the working directory; return what is to be said of it."""
    stem = f"tfmon-{scenario or 'screen'}-{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        picture = app.save_screenshot(f"{stem}.svg", str(Path.cwd()))
        if not table:
            return f"saved {picture}"
        Path(f"{stem}.txt").write_text(table + "\n", encoding="utf-8")
    except OSError as error:
        return f"{stem} could not be saved: {error.strerror or error}"
    return f"saved {picture} and .txt"
