"""A lane on a GPU that only a plug-in of TensorFlow knows: a real plug-in, which has no kernels of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import HANGS_S

from tfmon.probes.wheel import PLUGIN_VARIABLE, find_home, find_wheel

pytestmark = [pytest.mark.process, pytest.mark.tensorflow]

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "tests/support/plugin_gpu.c"


@pytest.fixture
def plugin(tmp_path) -> Path:
    """Build the plug-in against the headers of the installed TensorFlow."""
    compiler, home, wheel = shutil.which("cc"), find_home(sys.path), find_wheel(sys.path)
    if compiler is None or home is None or wheel is None or sys.platform != "linux":
        pytest.skip("no C compiler, no TensorFlow or no Linux")
    if wheel.has_cuda:
        pytest.skip("a TensorFlow with CUDA runs its own kernels on every GPU; a CPU build has none")
    library = tmp_path / "libacme_gpu.so"
    command = [compiler, "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    headers = home / "tensorflow/include"
    subprocess.run([*command, f"-I{headers}", "-o", str(library), str(SOURCE)], check=True, timeout=HANGS_S)
    return library


def test_it_is_raced_where_a_lane_names_it_and_its_readings_say_why_they_are_missing(plugin, monkeypatch):
    monkeypatch.setenv(PLUGIN_VARIABLE, str(plugin))
    found = find_wheel(sys.path)
    assert found is not None and "libacme_gpu.so" in found.plugins
    words = ["race", "small-dense", "--lane", "cpu", "--lane", "gpu:0", "--steps", "300", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "tfmon", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    _, gpu = json.loads(done.stdout)["lanes"]
    assert (gpu["device"], gpu["error"]) == ("gpu:0", None)
    assert gpu["examples"] > 0
    reason = "tfmon cannot read the GPU of TensorFlow's plug-in libacme_gpu.so"
    assert (gpu["gpu_busy_pct"], gpu["missing"]["gpu_busy_pct"]) == (None, reason)
