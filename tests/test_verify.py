"""`tfmon verify`, with real TensorFlow: what holds, what does not, what cannot be tested here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCENARIO = '''"""Three claims about one net."""
import numpy as np, tensorflow as tf
from tfmon.trainer import Claim, Scenario

class Three(Scenario):
    claims = (
        Claim(id="graph-wins", source="a test", says="a graph is faster", first="cpu", second="cpu,graph=off"),
        Claim(id="cpu-wins", source="a test", says="the CPU is faster", first="cpu", second="gpu:63", needs="gpu"),
        Claim(id="wrong", source="a test", says="the earth is flat", corrected="it is round"),
    )
    def data(self):
        return np.ones((64, 8), "float32"), np.zeros(64, "int64")
    def model(self):
        model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(2, activation="softmax")])
        model.compile("adam", "sparse_categorical_crossentropy")
        return model
'''


def verify(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "three.py").write_text(SCENARIO)
    root = Path(__file__).parents[1]
    return subprocess.run(
        [sys.executable, "-m", "tfmon", "verify", "./three.py", "--seconds", "8", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


@pytest.mark.tf
def test_each_claim_gets_its_outcome(tmp_path: Path) -> None:
    done = verify(tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    claims = {claim["id"]: claim for claim in json.loads(done.stdout)["claims"]}
    supported = claims["graph-wins"]
    assert supported["outcome"] == "supported"
    low, high = supported["ratio_ci95"]
    assert 1 < low < supported["ratio"] < high
    assert supported["pairs"] >= 5
    absent = claims["cpu-wins"]
    assert (absent["outcome"], absent["ratio"]) == ("not testable here", None)
    assert "gpu:63" in absent["why"]
    assert (claims["wrong"]["outcome"], claims["wrong"]["why"]) == ("corrected", "it is round")


def test_a_failing_lane_makes_a_claim_untestable_and_says_why(tmp_path: Path) -> None:
    done = verify(tmp_path, "--python", _bare_python(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "not testable here  graph-wins: a graph is faster" in done.stdout
    assert "has no TensorFlow" in done.stdout
    assert "corrected          wrong: the earth is flat" in done.stdout
    assert "3 claims: 1 corrected, 2 not testable here" in done.stdout


def _bare_python(folder: Path) -> str:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "bare")], check=True)
    return str(folder / "bare" / "bin" / "python")
