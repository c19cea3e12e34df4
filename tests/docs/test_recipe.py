"""The recipe for continuous integration, as it stands on the page, finds a change that makes a package slower."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
SCENARIO = """
import time
import numpy as np
import tensorflow as tf
from our_package import PAUSE_S
from tfmon.trainer import Scenario


class Ours(Scenario):
    batch_size = 8

    def data(self):
        return np.random.rand(64, 4).astype("float32"), np.random.rand(64, 1).astype("float32")

    def model(self):
        model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    def feed(self, batches):
        for batch in super().feed(batches):
            time.sleep(PAUSE_S)
            yield batch
"""


def step(name: str) -> str:
    """Return what a step of the recipe runs."""
    block = PAGE.read_text().partition(f"- name: {name}\n")[2].partition("run: |\n")[2]
    lines = block.splitlines()
    most = len(lines[0]) - len(lines[0].lstrip())
    end = next(at for at, line in enumerate(lines) if line.strip() and len(line) - len(line.lstrip()) < most)
    return textwrap.dedent("\n".join(lines[:end]))


@pytest.mark.tensorflow
def test_a_change_that_makes_a_package_slower_fails(tmp_path):
    for side, pause_s in (("base", 0.002), ("head", 0.1)):
        for name, text in (("our_package.py", f"PAUSE_S = {pause_s}\n"), ("scenarios/ours.py", SCENARIO)):
            (tmp_path / side / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / side / name).write_text(text)
        (tmp_path / side / "pyproject.toml").touch()
        python = tmp_path / side / ".venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
    race = step("Race both alternately")
    assert "1 2 3 4 5" in race and "--seconds 10" in race
    shorter = race.replace("1 2 3 4 5", "1").replace("--seconds 10", "--seconds 3")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
    environment["TFMON_RECORDINGS"] = str(tmp_path / "recordings")

    def run(text: str) -> subprocess.CompletedProcess[str]:
        words = ["bash", "-e", "-o", "pipefail", "-c", text]
        return subprocess.run(
            words, cwd=tmp_path / "head", env=environment, capture_output=True, text=True, check=False
        )

    raced = run(shorter)
    assert raced.returncode == 0, raced.stderr
    judged = run(step("Is it slower?"))
    assert judged.returncode == 4, judged
    assert "slower by more than 15 %" in (tmp_path / "summary").read_text()
