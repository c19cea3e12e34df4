"""The answer, the exit code, and how a report is written."""

import time
from dataclasses import replace

import pytest

from tfmon.doctor.checks import BROKEN, FAIRNESS, GPU, TENSORFLOW, WARNING
from tfmon.doctor.diagnosis import CHECKS, Diagnosis
from tfmon.doctor.facts import Facts
from tfmon.doctor.gather_facts import Roots, gather_facts
from tfmon.probes.surroundings import OthersLoad, Platform
from tfmon.probes.trial_import import Import
from tfmon.reports.findings import to_text

from .bench import H200, QUIET, with_gpu

USES = Import(version="2.21.0", gpus=("/physical_device:GPU:0",))


@pytest.fixture
def fine(bench) -> Facts:
    """Facts with nothing wrong: TensorFlow lists its GPU on a quiet machine."""
    return with_gpu(bench.facts(platform=Platform(), host=QUIET, imported=USES), H200)


def test_with_nothing_wrong_it_is_ready_for_a_fair_race(fine):
    report = Diagnosis(fine)
    statuses = {result.check.id: result.finding.status for result in report.results}
    assert [id for id, status in statuses.items() if status in (WARNING, BROKEN)] == []
    assert (report.exit_code, report.no_gpu) == (0, None)
    assert report.answer == "TensorFlow uses NVIDIA H200, and this machine is ready for a fair race."
    unseen = Diagnosis(replace(fine, imported=None))
    assert unseen.answer.startswith("TensorFlow should find NVIDIA H200")


def test_warnings_of_the_machine_and_of_the_gpu(fine):
    report = Diagnosis(replace(fine, host=replace(QUIET, others=OthersLoad(cores=5.0), on_battery=True)))
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


def test_every_check_has_a_name_of_its_own_and_a_source():
    assert len({check.id for check in CHECKS}) == len({check.title for check in CHECKS}) == len(CHECKS)
    assert all(check.subject in (TENSORFLOW, GPU, FAIRNESS) and check.source for check in CHECKS)


def test_nothing_steers_the_terminal(bench):
    bench.environ["KERAS_BACKEND"] = "\x1b[2Jtorch\nagain"
    text = to_text(Diagnosis(bench.facts()), verbose=True)
    assert "\x1b" not in text
    assert "KERAS_BACKEND=torch again:" in text


@pytest.mark.process
def test_everything_is_gathered_and_judged_at_once(bench, bare_python):
    roots = Roots(root=bench.root, folder=bench.cwd, environ=bench.environ, library="libno-such-driver.so.1")
    begun = time.monotonic()
    report = Diagnosis(gather_facts(bare_python, imports=True, roots=roots))
    assert report.facts.seconds <= time.monotonic() - begun
    assert (report.exit_code, len(report.results)) == (3, len(CHECKS))
    assert "AssertionError: imported" in report.answer, "the import ran the fake TensorFlow"


@pytest.mark.process
def test_what_shadows_tensorflow_is_not_run(bench, tmp_path, bare_python):
    ran = tmp_path / "ran"
    (tmp_path / "tensorflow.py").write_text(f"open({str(ran)!r}, 'w')\n")
    environ = {**bench.environ, "PYTHONPATH": f"{tmp_path}:{bench.site}"}
    roots = Roots(root=bench.root, folder=bench.cwd, environ=environ, library="libno-such-driver.so.1")
    report = Diagnosis(gather_facts(bare_python, roots=roots))
    assert (report.exit_code, report.facts.imported, ran.exists()) == (3, None, False)
