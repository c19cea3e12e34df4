"""Keys change a script's knob ten times: the history is on the page and in all that is left of the session."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pexpect")
from support.terminal import Terminal, racing

pytestmark = pytest.mark.pty

CHANGES = 10
SCRIPT = """
import os, time
from tfmon import report
while not os.path.exists("enough"):
    batch = report.knob("batch_size", 1, choices=tuple(4**power for power in range(11)))
    time.sleep(0.004)
    report.step(examples=batch)
"""
SIZES = (120, 36), (80, 24)
ROWS = r"A batch \d+ → \d+\b[^()]*\(CI"
"""A change with its effect, as a line or as a row of a table."""


def test_ten_changes_by_keys_are_ten_rows_with_effects_everywhere(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT)
    lanes = ("--lane", "cpu", "--lane", "cpu")
    terminal = Terminal("race", "--in-place", *lanes, "--record", "run.jsonl", "--", sys.executable, "train.py")
    try:
        terminal.wait_for(racing)
        terminal.process.send("\t")
        terminal.wait_for(lambda shown: re.search(r"too close so far|faster|the same within", shown))
        for number in range(1, CHANGES + 1):
            columns, rows = SIZES[number % 2]
            terminal.screen.resize(rows, columns)
            terminal.process.setwinsize(rows, columns)
            terminal.process.send("B")
            effect = rf"A batch {4 ** (number - 1)} → {4**number}: \S+ (% )?\(CI"
            terminal.wait_for(lambda shown, effect=effect: re.search(effect, " ".join(shown.split())))
        terminal.process.send("H")
        terminal.wait_for(lambda shown: "History" in shown and len(re.findall(ROWS, shown)) >= CHANGES)
        terminal.process.send("H")
        terminal.wait_for(racing)
        terminal.process.send("q")
        terminal.wait_for(lambda shown: "again: yes" in shown)
        printed = terminal.leave(0)
    finally:
        Path("enough").touch()
        terminal.close()
    assert len(re.findall(ROWS, printed)) == CHANGES
    told = json.loads(exported("--json"))["result"]["history"]
    assert [one["effect"] > 1 for one in told if one["lane_id"] == "A"] == [True] * CHANGES
    assert len(re.findall(ROWS, exported("--markdown"))) == CHANGES
    exported("--html", "run.html")
    assert len(re.findall(ROWS, re.sub(r"<[^>]+>", " ", Path("run.html").read_text()))) >= CHANGES


def exported(*options: str) -> str:
    command = [sys.executable, "-m", "tfmon", "export", "run.jsonl", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
