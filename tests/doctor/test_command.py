"""The answer, the exit code and the report: also in a separate process, and with the real TensorFlow."""

import functools
import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.processes import run_python
from support.waiting import PATIENCE_S

from tfmon.cli.machines import doctor as command
from tfmon.doctor.checks import BROKEN, WARNING
from tfmon.doctor.diagnosis import CHECKS, Diagnosis
from tfmon.doctor.facts import Platform, gather_facts
from tfmon.probes.interpreter import Import, import_tensorflow
from tfmon.reports.findings import to_text

from .bench import H200, QUIET, load, with_gpu

ROOT = Path(__file__).parents[2]


@pytest.mark.process
def test_shadowing_file_and_the_ascii_report_after_its_fix(tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise AssertionError('imported')\n")
    doctor = ("-m", "tfmon", "doctor", "--no-import")
    environment = {"CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": str(ROOT)}
    done = run_python("-X", "importtime", *doctor, "--json", folder=tmp_path, **environment)
    assert done.returncode == 3
    checks = {one["id"]: one for one in json.loads(done.stdout)["checks"]}
    finding = checks["shadowing"]
    assert str(tmp_path / "tensorflow.py") in finding["found"]
    assert checks["tensorflow"]["status"] == "ok"
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "tfmon" in loaded
    assert not loaded & {"tensorflow", "keras", "numpy", "scipy", "textual", "pynvml"}
    subprocess.run(finding["fix"].partition(": ")[2], shell=True, check=True)
    words = ("-v", "--python", sys.executable)
    done = run_python(*doctor, *words, folder=tmp_path, PYTHONIOENCODING="ascii", **environment)
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.isascii() and "\x1b" not in done.stdout
    assert len(re.findall(r"\+ ok +(TensorFlow|No shadowing file) ", done.stdout)) == 2
    assert done.stdout.splitlines()[-1].startswith("TensorFlow uses no GPU here: ")


@pytest.mark.slow
@pytest.mark.pythons
@pytest.mark.tensorflow
def test_with_the_real_import(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    patient = functools.partial(import_tensorflow, timeout_s=5 * PATIENCE_S)
    monkeypatch.setattr("tfmon.doctor.facts.import_tensorflow", patient)
    done = CliRunner().invoke(command, ["--json"])
    assert done.exit_code == 2, done.stdout
    answer = json.loads(done.stdout)
    assert (answer["imported"], answer["gpus"]) == (True, [])
    found = {one["id"]: one for one in answer["checks"]}
    statuses = [found[id]["status"] for id in ("import", "devices", "messages")]
    assert statuses == ["ok", "broken", "ok"]


def test_the_answer_with_nothing_wrong_and_with_warnings(bench):
    uses = Import(version="2.21.0", gpus=("/physical_device:GPU:0",))
    fine = with_gpu(bench.facts(platform=Platform(), host=QUIET, imported=uses), H200)
    report = Diagnosis(fine)
    statuses = {result.check.id: result.finding.status for result in report.results}
    assert [id for id, status in statuses.items() if status in (WARNING, BROKEN)] == []
    assert (report.exit_code, report.no_gpu) == (0, None)
    assert report.answer == "TensorFlow uses NVIDIA H200, and this machine is ready for a fair race."
    unseen = Diagnosis(replace(fine, imported=None))
    assert unseen.answer.startswith("TensorFlow should find NVIDIA H200")
    # Warnings of the machine and of the GPU.
    report = Diagnosis(replace(fine, host=replace(QUIET, samples=load(5.0), on_battery=True)))
    assert report.exit_code == 1
    assert report.answer.endswith("but a race may be unfair: Load of others, Power source.")
    report = Diagnosis(with_gpu(fine, replace(H200, capability=(12, 0))))
    assert (report.exit_code, report.answer) == (1, "TensorFlow uses NVIDIA H200; see the warnings.")


def test_no_gpu_and_then_no_tensorflow(bench):
    report = Diagnosis(bench.facts())
    answer = "TensorFlow uses no GPU here: no NVIDIA driver (libnvidia-ml.so.1 was not found)."
    assert (report.exit_code, report.answer) == (2, answer)
    bench.remove("tensorflow")
    (bench.site / "tensorflow/__init__.py").unlink()
    report = Diagnosis(bench.facts())
    assert (report.exit_code, report.answer) == (3, "TensorFlow cannot be used: TensorFlow: not installed.")


def test_nothing_steers_the_terminal(bench):
    bench.environ["KERAS_BACKEND"] = "\x1b[2Jtorch\nagain"
    text = to_text(Diagnosis(bench.facts()), verbose=True)
    assert "\x1b" not in text
    assert "KERAS_BACKEND=torch again:" in text


@pytest.mark.process
def test_everything_is_gathered_and_judged_at_once_and_what_shadows_tensorflow_is_not_run(
    bench, bare_python, tmp_path
):
    places = {"root": bench.root, "folder": bench.cwd, "environ": bench.environ, **bench.more}
    begun = time.monotonic()
    report = Diagnosis(gather_facts(bare_python, **places))
    assert report.facts.seconds <= time.monotonic() - begun
    assert (report.exit_code, len(report.results)) == (3, len(CHECKS))
    assert "AssertionError: imported" in report.answer, "the import ran the fake TensorFlow"
    ran = tmp_path / "ran"
    (tmp_path / "tensorflow.py").write_text(f"open({str(ran)!r}, 'w')\n")
    places["environ"] = {**bench.environ, "PYTHONPATH": f"{tmp_path}:{bench.site}"}
    report = Diagnosis(gather_facts(bare_python, **places))
    assert (report.exit_code, report.facts.imported, ran.exists()) == (3, None, False)
