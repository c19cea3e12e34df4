"""A script prints and returns the same with tfmon's hooks as without them, whatever fails in it, or in them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import HANGS_S

pytestmark = [pytest.mark.tensorflow, pytest.mark.trainer]

HERE = Path(__file__).parent
CHANGES = (
    (r"^.*(?:[IWE]0000 00:00|log messages before absl|tensorflow/core/|Could not find cuda).*\n", ""),
    (r"0x[0-9a-f]+", "ADDRESS"),
    (r"\b\d+ms\b|\b\d+s\b", "TIME"),
    (r"_\d+\b", "_NUMBER"),
    (r"__autograph_generated_file\w+", "GENERATED"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+", "NOW"),
)
"""What differs between two runs without tfmon: addresses, times, numbers of functions, lines of its log."""


def masked(text: str) -> str:
    for pattern, by in CHANGES:
        text = re.sub(pattern, by, text, flags=re.MULTILINE)
    return text


@pytest.mark.parametrize("argument", ["", "fit"])
def test_output_errors_and_exit_code_are_those_without_tfmon(watch, tmp_path, argument):
    line = f"cd {tmp_path} && {sys.executable} {HERE / 'noisy.py'} {argument} >{{0}}.out 2>{{0}}.err"
    alone = subprocess.run(["/bin/sh", "-c", line.format("alone")], timeout=HANGS_S, check=False)
    race = watch("/bin/sh", "-c", line.format("watched"))
    race.until(lambda: race.lane.ended is not None, "the end")
    assert race.lane.ended.exit_code == alone.returncode == 1
    assert race.lane.steps > 10, "it was watched"
    for stream in ("out", "err"):
        one, other = ((tmp_path / f"{name}.{stream}").read_text() for name in ("alone", "watched"))
        assert masked(other) == masked(one)
        assert "tfmon" not in other.replace(str(HERE.parents[1]), "")
    assert "KeyboardInterrupt" in one
