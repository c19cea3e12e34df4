"""Questions to a host: its answers travel as JSON, and arrive unchanged."""

import json
import os
import platform
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.nvml import BUSY, IDLE, TWO_GPUS, build_fake_nvml, driver, load_driver
from support.waiting import PATIENCE_S

from tfmon.analysis.others import ranked
from tfmon.doctor.diagnosis import CHECKS
from tfmon.doctor.facts import Facts
from tfmon.lanes.plan import digest
from tfmon.lanes.remote import questions
from tfmon.lanes.remote.trouble import HostError
from tfmon.model.codec import plain
from tfmon.model.folder_views import View
from tfmon.model.race import Machine
from tfmon.probes.base import Gpu, absent_gpu
from tfmon.probes.cuda import Library
from tfmon.probes.find_gpus import GpuSearch, find_gpus, read_visibility
from tfmon.probes.interpreter import Distribution, Interpreter, Wheel
from tfmon.probes.nvidia.nvml import NvmlFailure
from tfmon.probes.obstacles import GpuVisibility
from tfmon.probes.surroundings import HostFacts, OthersLoad
from tfmon.probes.trial_import import Import

__all__ = ["build_fake_nvml", "driver", "load_driver"]


def ask(question: str, **words: object) -> dict[str, object]:
    """Ask as over a connection: words and answer are JSON."""
    return json.loads(json.dumps(questions.answer(question, json.loads(json.dumps(words)))))


class TestMachine:
    def test_without_tensorflow_it_has_its_python_all_the_same(self, monkeypatch):
        monkeypatch.setattr(sys, "path", [])
        machine = questions.read_part(ask("machine"), "machine", Machine)
        assert (machine.python, machine.tensorflow) == (platform.python_version(), "")

    @pytest.mark.process
    def test_its_gpus_with_driver_and_power_limits(self, driver, monkeypatch):
        seen = read_visibility(library=str(driver.library), environ={}, system="Linux", timeout_s=PATIENCE_S)
        monkeypatch.setattr(questions, "find_gpus", lambda python: find_gpus(python, seen))
        found = ask("gpus")
        assert questions.read_part(found, "search", GpuSearch).gpus == (BUSY, IDLE)
        machine = questions.read_part(found, "machine", Machine)
        assert (machine.gpus, machine.driver) == (("NVIDIA Busy", "NVIDIA Idle"), "550.54.15")
        assert (machine.power_limits_w, machine.no_gpu) == ((700.0, 700.0), "")


class TestPaths:
    def test_a_program_is_looked_for_as_a_lane_would_find_it(self, tmp_path, monkeypatch):
        monkeypatch.setenv("PATH", str(tmp_path))
        program = Path(sys.executable).name
        words = {"paths": [], "programs": [program], "folder": str(tmp_path)}
        assert questions.read_part(ask("paths", **words), "missing", tuple[str, ...]) == (program,)
        assert questions.read_part(ask("paths", path_first=True, **words), "missing", tuple[str, ...]) == ()

    def test_files_with_another_content_are_told(self, tmp_path):
        there, here = tmp_path / "there", tmp_path / "here"
        for folder, text in ((there, "old"), (here, "new")):
            (folder / "data").mkdir(parents=True)
            (folder / "same.py").write_text("equal")
            (folder / "train.py").write_text(text)
        found = ask("paths", paths=["same.py", "train.py", "data"], programs=[], folder=str(there))
        assert questions.read_differing_answer(found, str(here)) == ("train.py",)
        assert digest(there / "train.py") == found["digests"]["train.py"]


class TestDoctor:
    @pytest.mark.process
    def test_the_real_facts_travel_and_are_judged_here(self, tmp_path):
        report = questions.read_doctor_answer(ask("doctor", imports=False, folder=str(tmp_path)))
        assert [result.check.id for result in report.results] == [check.id for check in CHECKS]
        assert (report.facts.python.executable, report.facts.imported) == (sys.executable, None)
        assert report.answer

    def test_nothing_is_lost_on_the_way_but_what_steers_a_terminal(self, monkeypatch):
        gpu = Gpu(0, "GPU-1", "NVIDIA H200", 3, instances=(), capability=(9, 0))
        sent = Facts(
            Interpreter("/usr/bin/python3", version=(3, 12, 1), path=("/a",)),
            GpuVisibility("Linux", "x86_64", physical_gpus=(gpu,), failure=NvmlFailure(4)),
            environ={"KERAS_BACKEND": "\x1b[2Jtorch"},
            distributions=(Distribution("keras", "3.1", "/a/keras.dist-info"),),
            wheel=Wheel("tensorflow", "2.21.0", True, ""),
            libraries=(Library("libcudnn.so.9", error="no such file"),),
            samples=(absent_gpu(gpu, 1, "not read"),),
            host=HostFacts(others=OthersLoad(0.5)),
            imported=Import(version="2.21.0", gpus=("/physical_device:GPU:0",), seconds=1.25),
            view=View("copy", "/p", "no overlay"),
            own_pids=(3, 4),
        )
        asked, judged = [], []

        def gather(python: str, **options: object) -> Facts:
            asked.append((python, options["own_pids"], options["others"]))
            return sent

        monkeypatch.setattr("tfmon.doctor.gather_facts.gather_facts", gather)
        monkeypatch.setattr("tfmon.doctor.diagnosis.Diagnosis", judged.append)
        others = plain(OthersLoad(cores=0.5, stolen_share=None, source="this race"))
        words = {"imports": True, "folder": "/nowhere", "python": "~/python", "pids": [3, 4], "others": others}
        questions.read_doctor_answer(ask("doctor", **words))
        assert judged == [replace(sent, environ={"KERAS_BACKEND": "torch"})]
        assert asked == [(str(Path("~/python").expanduser()), (3, 4), OthersLoad(0.5, None, "this race"))]


class TestTrouble:
    def test_what_cannot_be_answered_is_one_line(self):
        assert ask("favourite colour") == {"error": "its tfmon does not know the question 'favourite colour'"}
        said = ask("paths", paths=7)["error"]
        assert said.startswith("the question 'paths' failed: TypeError: ") and "\n" not in said

    @pytest.mark.parametrize("found", [{}, {"machine": 3}, {"machine": {"type": "Machine", "cores": "many"}}])
    def test_an_answer_that_cannot_be_read_is_refused(self, found):
        with pytest.raises(HostError, match="an answer of the agent cannot be read"):
            questions.read_part(found, "machine", Machine)


def test_a_look_at_them_travels_with_loads_and_processes(driver):
    driver.play(TWO_GPUS.replace("4242", str(os.getppid())))
    found = ask("look", gpus=plain((BUSY, IDLE)))
    busy, idle = questions.read_look_answer(found, "gpu2")
    assert (busy.host, busy.load.busy_pct, idle.load.busy_pct) == ("gpu2", 87, 0)
    assert [sample.key for sample in ranked([busy, idle])] == [IDLE.uuid, BUSY.uuid]
    assert busy.processes.names.keys() == {os.getppid()} or busy.processes.no_names_reason
