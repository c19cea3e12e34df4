"""Pictures of the screen, saved for a report or for somebody else."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from textual.app import App


def save_picture(app: App[Any], scenario: str, table: str) -> str:
    """Save the screen as SVG and a table as text in the working directory; return what to say about it."""
    stem = f"tfmon-{scenario or 'screen'}-{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        said = f"saved {app.save_screenshot(f'{stem}.svg', str(Path.cwd()))}"
        if table:
            Path(f"{stem}.txt").write_text(table + "\n", encoding="utf-8")
            said += " and .txt"
    except OSError as error:
        return f"{stem} could not be saved: {error.strerror or error}"
    return said
