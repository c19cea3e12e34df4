"""Reports of files as pages, for tests of their content."""

import json
import re
from pathlib import Path

from tfmon.api.repeat_command import command_of
from tfmon.recordings.sweeps import is_sweep
from tfmon.reports import html
from tfmon.reports.recorded import of_race
from tfmon.reports.secrets import hides
from tfmon.reports.series_report import of_sweep

NO_SCRIPT = "window.vegaEmbed = () => {};"


def page_of(path: Path, script: str = NO_SCRIPT, *, everything: bool = False) -> str:
    """Return the report of a recording or a sweep as HTML."""
    report = of_sweep(path) if is_sweep(path) else of_race(path, command_of)[0]
    return html.write(report, hides(report, everything=everything), script)


def data_of(page: str, name: str):
    found = re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', page, re.S)
    assert found is not None
    return json.loads(found[1])


def visible(page: str) -> str:
    """Return the text of a page without tags, scripts and style."""
    body = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.S)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", body))
