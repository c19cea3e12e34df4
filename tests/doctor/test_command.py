"""`tfmon doctor` as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": str(ROOT)}


def doctor(*words: object, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tfmon", "doctor", *map(str, words)],
        cwd=cwd,
        env={**ENVIRONMENT, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding=environment.get("PYTHONIOENCODING", "utf-8"),
        timeout=120,
    )


def checks(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, object]]:
    return {one["id"]: one for one in json.loads(done.stdout)["checks"]}


def test_this_environment_has_no_gpu(tmp_path):
    done = doctor("--no-import", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "")
    assert "✓ ok       TensorFlow " in done.stdout
    assert done.stdout.splitlines()[-1].startswith("TensorFlow uses no GPU here: ")
    assert "\x1b" not in done.stdout


def test_ascii():
    done = doctor("--no-import", "-v", PYTHONIOENCODING="ascii")
    assert done.stdout.isascii()
    assert "+ ok       TensorFlow " in done.stdout


def test_python_without_tensorflow(bare_python, tmp_path):
    done = doctor("--json", "--python", bare_python, cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert done.returncode == 3, done.stderr
    told = json.loads(done.stdout)
    assert (told["python"], told["tensorflow"], told["imported"]) == (str(bare_python), None, None)
    assert told["answer"] == "TensorFlow cannot be used: TensorFlow: not installed."
    assert checks(done)["tensorflow"]["fix"].startswith(f"{bare_python} -m ensurepip && ")


@pytest.mark.parametrize("words", [(), ("--python", sys.executable)])
def test_shadowing_file_and_its_fix(tmp_path, words):
    (tmp_path / "tensorflow.py").write_text("raise AssertionError('imported')\n")
    done = doctor("--no-import", "--json", *words, cwd=tmp_path)
    assert done.returncode == 3
    finding = checks(done)["shadowing"]
    assert str(tmp_path / "tensorflow.py") in finding["found"]
    assert checks(done)["tensorflow"]["status"] == "ok"
    subprocess.run(finding["fix"].partition(": ")[2], shell=True, check=True)
    assert checks(doctor("--no-import", "--json", *words, cwd=tmp_path))["shadowing"]["status"] == "ok"


def test_driver_without_its_cuda_library(driver, tmp_path):
    (driver.library.parent / "libcuda.so.1").write_text("no library")  # also where the machine has a real one
    environment = {"LD_LIBRARY_PATH": str(driver.library.parent), "CUDA_VISIBLE_DEVICES": "1"}
    script = {"FAKE_NVML_SCRIPT": os.environ["FAKE_NVML_SCRIPT"], "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    try:
        done = doctor("--no-import", "--json", cwd=tmp_path, **environment, **script)
    finally:
        (driver.library.parent / "libcuda.so.1").unlink()
    found = checks(done)
    assert (done.returncode, found["driver"]["status"]) == (2, "ok")
    assert found["visible-devices"]["found"] == "1 of 2: NVIDIA Idle"
    assert found["cuda-driver-library"]["status"] == "broken"
    assert json.loads(done.stdout)["no_gpu"]["why"] == "libcuda: libcuda.so.1 cannot be opened"


def test_wrong_python():
    done = doctor("--python", "/nowhere/python")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not a program that can be run" in done.stderr


def test_help_tells_the_exit_codes():
    text = " ".join(doctor("--help").stdout.split())
    for code in ("0 all fine", "1 warnings", "2 no usable GPU", "3 TensorFlow unusable"):
        assert code in text


def test_nothing_of_tensorflow_is_loaded_here():
    command = [sys.executable, "-X", "importtime", "-m", "tfmon", "doctor", "--no-import", "--json"]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "tfmon" in loaded
    assert not loaded & {"tensorflow", "keras", "numpy", "scipy", "textual", "pynvml"}


@pytest.mark.tf
def test_with_the_real_import(tmp_path):
    done = doctor("--json", cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    told = json.loads(done.stdout)
    assert (told["imported"], told["gpus"]) == (True, [])
    found = checks(done)
    assert found["import"]["status"] == "ok"
    assert found["devices"]["status"] == "broken"
    assert found["messages"]["status"] == "ok"
