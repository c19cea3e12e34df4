"""The answer, the exit code, and how a report is written."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tfmon.doctor.facts import (
    BROKEN,
    FAIRNESS,
    GPU,
    NOT_APPLICABLE,
    OK,
    TENSORFLOW,
    WARNING,
    Facts,
    Import,
    OthersLoad,
    Platform,
)
from tfmon.doctor.gather import Roots
from tfmon.doctor.report import CHECKS, Diagnosis, report_on, run_checks
from tfmon.probes.interpreter import Interpreter
from tfmon.probes.obstacles import GpuVisibility
from tfmon.reports.checks import to_json, to_text
from tfmon.reports.text import plain

from .bench import H200, QUIET, with_gpu

USES = Import(version="2.21.0", gpus=("/physical_device:GPU:0",))


@pytest.fixture
def fine(bench) -> Facts:
    """Facts with nothing wrong: TensorFlow lists its GPU on a quiet machine."""
    return with_gpu(bench.facts(platform=Platform(), host=QUIET, imported=USES), H200)


def of(facts: Facts) -> Diagnosis:
    return report_on(facts, 1.0)


class TestAnswer:
    def test_all_fine(self, fine):
        report = of(fine)
        assert [(one.id, one.finding) for one in report.results if one.finding.status in (WARNING, BROKEN)] == []
        assert (report.exit_code, report.no_gpu) == (0, None)
        assert report.answer == "TensorFlow uses NVIDIA H200, and this machine is ready for a fair race."
        unseen = of(replace(fine, imported=None))
        assert unseen.answer.startswith("TensorFlow should find NVIDIA H200")

    def test_warnings(self, fine):
        report = of(replace(fine, host=replace(QUIET, others=OthersLoad(cores=5.0), on_battery=True)))
        assert report.exit_code == 1
        assert report.answer.endswith("but a race may be unfair: Load of others, Power source.")
        report = of(with_gpu(fine, replace(H200, capability=(12, 0))))
        assert (report.exit_code, report.answer) == (1, "TensorFlow uses NVIDIA H200; see the warnings.")

    def test_no_gpu(self, bench):
        report = of(bench.facts())
        assert report.exit_code == 2
        assert report.answer == (
            "TensorFlow uses no GPU here: no NVIDIA driver (libnvidia-ml.so.1 was not found)."
        )

    def test_no_tensorflow(self, bench):
        bench.remove("tensorflow")
        (bench.site / "tensorflow/__init__.py").unlink()
        report = of(bench.facts())
        assert (report.exit_code, report.answer) == (3, "TensorFlow cannot be used: TensorFlow: not installed.")

    def test_import_that_fails(self, fine):
        report = of(replace(fine, imported=Import(exit_code=-4)))
        assert report.exit_code == 3
        assert "SIGILL" in report.answer


class TestChecks:
    def test_there_are_many_and_each_has_a_name_and_a_source(self):
        assert len(CHECKS) == 34
        assert len({check.id for check in CHECKS}) == len({check.title for check in CHECKS}) == len(CHECKS)
        for check in CHECKS:
            assert re.fullmatch(r"[a-z-]+", check.id)
            assert check.subject in (TENSORFLOW, GPU, FAIRNESS)
            assert check.source and check.judge.__doc__

    def test_each_copes_without_any_fact(self):
        for check in CHECKS:
            finding = check(Facts(Interpreter("/p"), GpuVisibility("Linux", "x86_64")))
            assert finding.status in (OK, WARNING, BROKEN, NOT_APPLICABLE)
            assert finding.found
            assert bool(finding.fix) == bool(finding.expected) == (finding.status in (WARNING, BROKEN)), check.id

    def test_every_check_is_tested_with_its_fault_and_without(self):
        text = "".join(file.read_text("utf-8") for file in Path(__file__).parent.glob("test_*.py"))
        assert [check.id for check in CHECKS if f'"{check.id}"' not in text] == []


class TestText:
    def test_status_in_a_word_and_a_mark_and_what_to_do(self, bench):
        text = to_text(of(bench.facts(platform=Platform(), host=QUIET)))
        assert re.search(r"^  ✗ broken +NVIDIA driver +no NVIDIA driver", text, re.MULTILINE)
        assert re.search(r"^  ✓ ok +TensorFlow +tensorflow 2\.21\.0$", text, re.MULTILINE)
        assert re.search(r"^ +expected: an NVIDIA driver that lists a GPU\n +fix: ", text, re.MULTILINE)
        assert "seen:" not in text and "n/a" not in text
        assert re.search(r"\d+ of \d+ checks do not apply here; `tfmon doctor -v` shows them", text)
        assert text.splitlines()[-1].startswith("TensorFlow uses no GPU here: ")

    def test_verbose_ascii_and_colour(self, bench):
        bench.environ["AWS_SECRET"] = "hush"
        report = of(bench.facts(platform=Platform(), host=QUIET))
        text = to_text(report, verbose=True)
        assert re.search(r"^  – n/a +tensorflow-metal +no Apple Silicon$", text, re.MULTILINE)
        assert "seen: kernel module: not loaded" in text
        assert "do not apply here" not in text
        assert "hush" not in text + json.dumps(to_json(report)), "other variables stay unseen"
        text = plain(to_text(report, verbose=True))
        assert text.isascii()
        assert re.search("x broken +NVIDIA driver", text) and re.search("[+] ok +TensorFlow", text)
        text = to_text(report, paint=lambda mark, status: f"<{status}>{mark}</>")
        assert "<broken>✗ broken</>  NVIDIA driver" in text, "colour is beside the word"

    def test_nothing_steers_the_terminal(self, bench):
        bench.environ["KERAS_BACKEND"] = "\x1b[2Jtorch\nagain"
        text = to_text(of(bench.facts()), verbose=True)
        assert "\x1b" not in text
        assert "KERAS_BACKEND=torch again:" in text


def test_json(bench):
    written = json.loads(json.dumps(to_json(of(bench.facts())), allow_nan=False))
    assert (written["schema"], written["exit_code"]) == (8, 2)
    assert (written["tensorflow"], written["gpus"]) == ("2.21.0", None)
    assert written["no_gpu"]["reason"] in written["answer"] and written["no_gpu"]["fix"]
    assert {one["id"] for one in written["checks"]} == {check.id for check in CHECKS}
    kinds = {"id": str, "title": str, "subject": str, "status": str, "found": str, "expected": str, "fix": str,
             "evidence": list, "source": str}  # fmt: skip
    for one in written["checks"]:
        assert {name: type(value) for name, value in one.items()} == kinds
        assert one["status"] in ("ok", "warning", "broken", "not applicable")


@pytest.mark.process
def test_everything_is_gathered_and_judged_at_once(bench, bare_python):
    roots = Roots(root=bench.root, folder=bench.cwd, environ=bench.environ, library="libno-such-driver.so.1")
    begun = time.monotonic()
    report = run_checks(bare_python, imports=True, roots=roots)
    assert report.seconds <= time.monotonic() - begun
    assert (report.exit_code, len(report.results)) == (3, len(CHECKS))
    assert "AssertionError: imported" in report.answer, "the import ran the fake TensorFlow"


@pytest.mark.process
def test_what_shadows_tensorflow_is_not_run(bench, tmp_path, bare_python):
    ran = tmp_path / "ran"
    (tmp_path / "tensorflow.py").write_text(f"open({str(ran)!r}, 'w')\n")
    environ = {**bench.environ, "PYTHONPATH": f"{tmp_path}:{bench.site}"}
    roots = Roots(root=bench.root, folder=bench.cwd, environ=environ, library="libno-such-driver.so.1")
    report = run_checks(bare_python, roots=roots)
    assert (report.exit_code, report.imported, ran.exists()) == (3, None, False)
