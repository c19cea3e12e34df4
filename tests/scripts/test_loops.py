"""Training loops of every shape are counted exactly: those of loop_shapes.py, in one child process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import HANGS_S

pytestmark = [pytest.mark.tensorflow, pytest.mark.trainer]

HERE = Path(__file__).parent
NAMES = re.findall(r"^@shape\(.*\)\ndef (\w+)", (HERE / "loop_shapes.py").read_text(), re.MULTILINE)
LEAST_SHAPES = 35
LEAST_BUNDLED = 30


@pytest.fixture(scope="module")
def counted() -> dict[str, list[dict[str, object]]]:
    """Run all shapes, one after the other."""
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    words = [sys.executable, HERE / "loop_shapes.py"]
    found = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=HANGS_S, check=False)
    assert found.returncode == 0, found.stderr[-2_000:]
    lines = [json.loads(line) for line in found.stdout.splitlines() if line.startswith("[")]
    return {name: [expected, counted] for name, expected, counted in lines}


@pytest.mark.parametrize("name", NAMES)
def test_a_loop_is_counted_exactly(counted, name):
    expected, found = counted[name]
    assert {key: found[key] for key, value in expected.items() if value is not None} == {
        key: value for key, value in expected.items() if value is not None
    }
    assert found["failures"] == expected.get("failures", 0)


def test_steps_that_are_alike_were_told_together(counted):
    assert sum(found["bundled"] for _, found in counted.values()) > LEAST_BUNDLED
    assert counted["eager"][1]["bundled"]


def test_no_shape_is_missing():
    assert len(NAMES) >= LEAST_SHAPES
