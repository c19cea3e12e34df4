"""`tfmon doctor` as a user runs it: in a separate process, and with the real TensorFlow."""

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.waiting import PATIENCE_S

from tfmon.cli.machines import doctor as command
from tfmon.doctor import gather_facts
from tfmon.errors import UsageError

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": str(ROOT)}


def doctor(
    *words: object, cwd: Path = ROOT, options: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-m", "tfmon", "doctor", *map(str, words)],
        cwd=cwd,
        env={**ENVIRONMENT, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding=environment.get("PYTHONIOENCODING", "utf-8"),
    )


def checks(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, object]]:
    return {one["id"]: one for one in json.loads(done.stdout)["checks"]}


@pytest.mark.process
def test_shadowing_file_and_the_ascii_report_after_its_fix(tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise AssertionError('imported')\n")
    done = doctor("--no-import", "--json", cwd=tmp_path, options=("-X", "importtime"))
    assert done.returncode == 3
    finding = checks(done)["shadowing"]
    assert str(tmp_path / "tensorflow.py") in finding["found"]
    assert checks(done)["tensorflow"]["status"] == "ok"
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "tfmon" in loaded
    assert not loaded & {"tensorflow", "keras", "numpy", "scipy", "textual", "pynvml"}
    subprocess.run(finding["fix"].partition(": ")[2], shell=True, check=True)
    done = doctor("--no-import", "-v", "--python", sys.executable, cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.isascii() and "\x1b" not in done.stdout
    assert len(re.findall(r"\+ ok +(TensorFlow|No shadowing file) ", done.stdout)) == 2
    assert done.stdout.splitlines()[-1].startswith("TensorFlow uses no GPU here: ")


def test_wrong_python_and_help():
    wrong = CliRunner().invoke(command, ["--python", "/nowhere/python"])
    assert isinstance(wrong.exception, UsageError)
    assert "is not a program that can be run" in str(wrong.exception)
    text = " ".join(CliRunner().invoke(command, ["--help"]).output.split())
    for code in ("0 all fine", "1 warnings", "2 no usable GPU", "3 TensorFlow unusable"):
        assert code in text


@pytest.mark.slow
@pytest.mark.pythons
@pytest.mark.tensorflow
def test_with_the_real_import(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    patient = functools.partial(gather_facts.import_tensorflow, timeout_s=5 * PATIENCE_S)
    monkeypatch.setattr(gather_facts, "import_tensorflow", patient)
    done = CliRunner().invoke(command, ["--json"])
    assert done.exit_code == 2, done.stdout
    answer = json.loads(done.stdout)
    assert (answer["imported"], answer["gpus"]) == (True, [])
    found = {one["id"]: one for one in answer["checks"]}
    statuses = [found[id]["status"] for id in ("import", "devices", "messages")]
    assert statuses == ["ok", "broken", "ok"]
