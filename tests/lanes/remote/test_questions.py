"""Questions to a host, and its readings: arguments, answers and samples travel as JSON, and arrive unchanged."""

import json
import os
import platform
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.events import reread
from support.nvml import BUSY, IDLE, TWO_GPUS
from support.waiting import PATIENCE_S

from tfmon.analysis.others import ranked
from tfmon.doctor.facts import Facts
from tfmon.lanes.plan import digest
from tfmon.lanes.remote import questions
from tfmon.lanes.remote.connection import Connection
from tfmon.lanes.remote.remote_host import Host
from tfmon.lanes.remote.trouble import HostError
from tfmon.model.codec import plain
from tfmon.model.folder_views import IN_PLACE, View
from tfmon.model.gpu_samples import ClockReason, GpuFault, GpuSample, SlowReading
from tfmon.model.readings import NOT_READ, Missing
from tfmon.probes import find_gpus
from tfmon.probes.base import Gpu, absent_gpu
from tfmon.probes.find_gpus import GpuVisibility, read_visibility
from tfmon.probes.host_probe import unknown_host
from tfmon.probes.interpreter import Distribution, Interpreter
from tfmon.probes.nvidia.nvml import NvmlFailure


class Host2(Connection):
    """A connection whose agent answers in this process."""

    def _call(self, do: str, timeout_s: float, **message: object) -> dict[str, object]:
        sent = json.loads(json.dumps(message))
        return json.loads(json.dumps(questions.answer(sent["question"], sent["arguments"])))


@pytest.fixture
def host():
    return Host2(Host("gpu2"), lambda _: None)


@pytest.mark.process
def test_a_machine_has_its_python_and_gpus_with_driver_and_power_limits(host, driver, monkeypatch):
    assert host.ask(questions.machine).python == platform.python_version()
    seen = read_visibility(library=str(driver.library), environ={}, system="Linux", timeout_s=PATIENCE_S)
    monkeypatch.setattr(find_gpus, "read_visibility", lambda: seen)
    search, machine = host.ask(questions.gpus)
    assert search.gpus == (BUSY, IDLE)
    assert (machine.gpus, machine.driver) == (("NVIDIA Busy", "NVIDIA Idle"), "550.54.15")
    assert (machine.power_limits_w, machine.no_gpu) == ((700.0, 700.0), "")


def test_a_program_is_looked_for_as_a_lane_would_find_it(host, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    program = Path(sys.executable).name
    words = {"paths": (), "programs": (program,), "folder": str(tmp_path)}
    assert host.ask(questions.paths, path_first=False, **words) == ((program,), {})
    assert host.ask(questions.paths, path_first=True, **words) == ((), {})
    (tmp_path / "train.py").write_text("new")
    _, digests = host.ask(questions.paths, ("train.py",), (), str(tmp_path), False)
    assert digests == {"train.py": digest(tmp_path / "train.py")}


@pytest.mark.process
def test_lanes_on_a_host_without_a_writable_home_have_views_that_are_not_kept(host, monkeypatch, tmp_path):
    monkeypatch.setenv("TFMON_RECORDINGS", "/dev/null/recordings")
    monkeypatch.setattr(questions, "BOOTSTRAP", tmp_path / "agent" / "tfmon" / "trainer" / "bootstrap.py")
    (tmp_path / "work").mkdir()
    view = host.ask(questions.view, str(tmp_path / "work"), 1, True)
    assert view.kind != IN_PLACE and view.store.startswith(f"{tmp_path}/agent/")
    assert "is not kept (" in view.text and "nothing can be written in /dev/null/recordings" in view.text


def test_nothing_is_lost_on_the_way_but_what_steers_a_terminal(host, monkeypatch):
    sent = Facts(
        Interpreter("/usr/bin/python3", version=(3, 12, 1), path=("/a",)),
        GpuVisibility("Linux", "x86_64", physical_gpus=(GPU,), failure=NvmlFailure(4)),
        environ={"KERAS_BACKEND": "\x1b[2Jtorch"},
        distributions=(Distribution("keras", "3.1", "/a/keras.dist-info"),),
        view=View("copy", "/p", "no overlay"),
        own_pids=(3, 4),
    )
    asked = []

    def gather(python: str, **options: object) -> Facts:
        asked.append((python, options["own_pids"], options["samples"]))
        return sent

    monkeypatch.setattr("tfmon.doctor.facts.gather_facts", gather)
    samples = (unknown_host(7, NOT_READ),)
    facts = host.ask(questions.doctor, True, "/nowhere", "~/python", own_pids=(3, 4), samples=samples)
    assert facts == replace(sent, environ={"KERAS_BACKEND": "torch"})
    assert asked == [(str(Path("~/python").expanduser()), (3, 4), samples)]


def test_trouble_is_one_line(host, monkeypatch):
    with pytest.raises(TypeError):
        host.ask(questions.paths, wrong=7)
    error = questions.answer("paths", {"paths": 7})["error"]
    assert error.startswith("the question 'paths' failed: CodecError: ") and "\n" not in error
    for answer in ({}, {"answer": 3}, {"answer": {"type": "Machine", "cores": "many"}}):
        monkeypatch.setattr(questions, "answer", lambda *_, answer=answer: answer)
        with pytest.raises(HostError, match="an answer of the agent cannot be read"):
            host.ask(questions.machine)


def test_a_look_at_gpus_travels_with_loads_and_processes(host, driver):
    driver.play(TWO_GPUS.replace("4242", str(os.getppid())))
    busy, idle = host.ask(questions.look, (BUSY, IDLE))
    assert (busy.load.busy_pct, idle.load.busy_pct) == (87, 0)
    assert [sample.key for sample in ranked([busy, idle])] == [IDLE.uuid, BUSY.uuid]
    assert busy.processes.names.keys() == {os.getppid()} or busy.processes.no_names_reason


GPU = Gpu(index=1, uuid="GPU-1", name="NVIDIA H200", physical_gpu=3, power_limit_w=700.0)
SAMPLE = reread(
    absent_gpu(GPU, 2**56 + 1, "broken"),
    busy_pct=float("nan"),
    power_w=0.1 + 0.2,
    reasons=(ClockReason("hot", "warning"),),
    faults=(GpuFault(7, 79, "the GPU fell off the bus (XID 79)"),),
    used_by_pid={4242: None, 4243: 10**11},
    busy_by_pid={4242: 12.5},
)


@pytest.mark.process
def test_a_host_cannot_pass_for_another_nor_steer_a_terminal(ssh):
    link = ssh.connect()
    sent = reread(SAMPLE, host="gpu9", name="\x1b[31mH200\x07", busy_pct=Missing("\x9b2Jno"))
    link._tell_sample(plain(sent))
    link._tell_sample({"type": "RaceBegan", "at_ns": 1})
    (found,) = link.heard(GpuSample)
    assert (found.host, found.name, found.load.busy_pct) == ("gpu2", "H200", Missing("no"))


def test_all_stamps_of_a_sample_are_put_on_the_monitors_clock():
    sample = reread(SAMPLE, at_ns=30, since_ns=10, until_ns=20, slow=(SlowReading("load", 60.0, 6.0, 25),))
    moved = sample.on_clock(lambda there_ns: there_ns + 1_000)
    assert (moved.at_ns, moved.processes.since_ns, moved.processes.until_ns) == (1_030, 1_010, 1_020)
    assert (moved.slow[0].at_ns, moved.faults[0].at_ns) == (1_025, 1_007)
    assert moved.age_s("load") == sample.age_s("load")
    assert SAMPLE.on_clock(lambda there_ns: 0).processes.since_ns is None
