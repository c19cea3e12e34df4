"""The commands print the pinned output for kept recordings: text, JSON, Markdown, HTML and exit code.

After a deliberate change, run `TFMON_UPDATE=1 pytest tests/contract`, review the difference, and commit it alone.
"""

import html.parser
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from contract.kept_runs import COMMANDS, EXPECTED, KEPT, RACES, SWEEP, UPDATE, recording

pytestmark = pytest.mark.process  # a process makes the script of the charts


def check(name: str, text: str) -> None:
    """Compare with the kept output, or keep this one.

    Numbers have nine digits: the last ones depend on the processor. The doctor's findings depend on this machine.
    The day on which a page is written is replaced.
    """
    path = EXPECTED / name
    text = re.sub(r"-?\d+\.\d{9,}(e-?\d+)?", lambda number: f"{float(number[0]):.9g}", text)
    text = text.partition("What the doctor finds")[0]
    text = re.sub(r"\d{4}-\d\d-\d\d(?=; charts)", "today", text)
    if UPDATE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_what_it_printed(name, tfmon, tmp_path):
    words = [str(recording(word)) if recording(word).exists() else word for word in COMMANDS[name]]
    ran = tfmon(*words)
    parts = [f"exit code {ran.code}", ran.out, *(["--- stderr", ran.err] if ran.err else [])]
    check(f"{name}.txt", "\n".join(parts).replace(str(KEPT), "KEPT").replace(str(tmp_path), "HERE"))


@pytest.mark.parametrize("name", ("race", "failed", "watch", "crossover", SWEEP))
def test_the_page_of_a_report_has_the_text_it_had(name, tfmon, tmp_path, monkeypatch):
    if name != "race":  # the script that draws the charts takes seconds to make, and is the same in each page
        monkeypatch.setattr("tfmon.reports.html.charts_script", lambda: "")
    target = tmp_path / "report.html"
    assert tfmon("export", recording(name), "--html", target).code == 0
    check(f"{name}-html.txt", text_of(target))


@pytest.mark.parametrize("name", RACES)
def test_every_number_is_exported(name, tfmon):
    """All numbers of one name: how many there are, and their sum, which a change of any of them changes."""
    body = json.loads(tfmon("export", recording(name), "--json").out)
    samples = [(f"{one['subject']} {one['name']}", one["value"]) for one in body.pop("samples")]
    counts = Counter(key for key, _ in samples)
    sums = Counter()
    for key, value in samples:
        sums[key] += float(value) if isinstance(value, int | float) else len(str(value))
    lines = [f"{key}: {count} values, sum {sums[key]:.9g}" for key, count in sorted(counts.items())]
    check(f"{name}-numbers.txt", "\n".join(lines))
    replayed = json.loads(tfmon("replay", recording(name), "--json").out)
    assert body["result"] == replayed


class PageText(html.parser.HTMLParser):
    """Collects the text of a page, without its scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.skipped = 0

    def handle_starttag(self, tag, attrs):
        self.skipped += tag in ("script", "style")

    def handle_endtag(self, tag):
        self.skipped -= tag in ("script", "style")

    def handle_data(self, data):
        if not self.skipped and data.strip():
            self.parts.append(re.sub(r"\s+", " ", data.strip()))


def text_of(page: Path) -> str:
    parser = PageText()
    parser.feed(page.read_text(encoding="utf-8"))
    return "\n".join(parser.parts)
