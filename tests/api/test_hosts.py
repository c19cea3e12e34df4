"""The hosts of a race, and the doctor beside it, with fake connections."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from support.waiting import PATIENCE_S

from tfmon.api import race_hosts as hosts_module
from tfmon.api.race_hosts import Hosts
from tfmon.catalog import command_scenario
from tfmon.doctor.facts import Facts
from tfmon.errors import EXIT_DEVICE_ABSENT, TfmonError
from tfmon.lanes.remote import questions
from tfmon.lanes.remote.remote_host import Host
from tfmon.lanes.remote.trouble import HostError
from tfmon.model.events import LaneStarted
from tfmon.model.race import Machine, Race, ScenarioInfo
from tfmon.model.readings import Missing
from tfmon.model.session import Session
from tfmon.model.spec import LaneSpec, name_lanes
from tfmon.probes.base import Gpu
from tfmon.probes.find_gpus import GpuSearch, GpuVisibility
from tfmon.probes.host_probe import unknown_host
from tfmon.probes.interpreter import Interpreter

INFO = ScenarioInfo("net", Path("/scenarios/net.py"), "file", "A net", "", (), ("", ""), 1_000)
FOUND = GpuSearch((Gpu(0, "GPU-b", "B200", 0),), driver="550")
THERE = Machine(hostname="node", boot="b", cores=8, tensorflow="2.20.0", gpus=("B200",))


@pytest.fixture
def fake(monkeypatch):
    """What the hosts answer, and what happened to their connections."""
    answers = {"gpus": (FOUND, THERE), "paths": ((), {})}
    fake = SimpleNamespace(answers=answers, words={}, unreachable={}, closed=[], together=None)

    class Connection:
        python = "/there/python3"

        def __init__(self, host: Host, sink) -> None:
            self.host, self.read = host, []

        def ensure(self) -> None:
            if fake.together is not None:
                fake.together.wait(PATIENCE_S)
            if self.host.name in fake.unreachable:
                raise fake.unreachable[self.host.name]

        def ask(self, question: Callable[..., object], *words: object) -> object:
            fake.words[question.__name__] = words
            return fake.answers[question.__name__]

        def begin_readings(self, gpus) -> None:
            self.read.append(gpus)

        def close(self) -> None:
            fake.closed.append(self.host.name)

    monkeypatch.setattr(hosts_module, "Connection", Connection)
    monkeypatch.setattr(hosts_module, "find_host", Host)
    return fake


@pytest.fixture
def hosts(fake):
    return Hosts(Session(Machine(), iter(range(10**6)).__next__), {})


def test_hosts_are_connected_at_the_same_time_and_what_they_have_is_known(fake, hosts):
    fake.together = threading.Barrier(2)
    hosts.connect(["gpu2", "gpu3"], INFO)
    assert hosts._session.snapshot().hosts["gpu3"].machine == THERE
    assert hosts.searches["gpu2"] == FOUND
    fake.together = None
    hosts.begin_readings(["gpu2", "gpu2"])
    assert hosts.connections["gpu2"].read == [FOUND.gpus], "once"
    hosts.close()
    assert sorted(fake.closed) == ["gpu2", "gpu3"]


def test_every_host_that_cannot_be_used_has_its_line(fake, hosts):
    fake.unreachable = {
        "gpu2": HostError("gpu2 cannot be reached: refused", "`ssh gpu2 true` tries it"),
        "gpu4": TfmonError("there is no Python on gpu4"),
    }
    with pytest.raises(TfmonError) as one:
        hosts.connect(["gpu2", "gpu3"], INFO)
    assert (one.value.message, one.value.hint) == ("gpu2 cannot be reached: refused", "`ssh gpu2 true` tries it")
    with pytest.raises(TfmonError) as several:
        hosts.connect(["gpu2", "gpu4"], INFO)
    assert several.value.message.splitlines() == [
        "gpu2 cannot be reached: refused · `ssh gpu2 true` tries it",
        "tfmon: there is no Python on gpu4",
    ]
    assert several.value.exit_code == one.value.exit_code == EXIT_DEVICE_ABSENT
    fake.unreachable = dict.fromkeys(("ray", "ray:2"), HostError("there is no Ray"))
    with pytest.raises(TfmonError, match=r"\Athere is no Ray\Z"):
        hosts.connect(["ray", "ray:2"], INFO)


def test_a_host_without_tensorflow_cannot_race_a_scenario_but_a_command(fake, hosts):
    fake.answers["gpus"] = FOUND, replace(THERE, tensorflow="")
    with pytest.raises(TfmonError, match="/there/python3 on gpu2 has no TensorFlow"):
        hosts.connect(["gpu2"], INFO)
    hosts.connect(["gpu2"], command_scenario(("true",)))


def test_what_a_command_needs_must_be_there_with_the_same_content(fake, hosts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    for name in ("train.py", "data"):
        (tmp_path / name).touch()
    fake.answers["paths"] = (), {"train.py": "0123456789abcdef"}
    command = command_scenario(("python", "train.py", "--epochs", "3", "--data", "data", "nothing"))
    hosts.connect(["gpu2"], command)
    assert fake.words["paths"] == (("train.py", "data"), ("python",), str(tmp_path), False)
    assert hosts.differing == {"gpu2": ["train.py has another content on gpu2"]}
    fake.answers["paths"] = ["/work", "train.py"], {}
    with pytest.raises(TfmonError, match=r"\A/work and train\.py are not there on gpu2") as caught:
        hosts.connect(["gpu2"], command)
    assert "same path" in caught.value.hint


def test_an_interruption_ends_the_connections_that_are_being_made(fake, hosts):
    class Interrupted(BaseException):
        pass

    fake.unreachable = {"gpu2": Interrupted()}
    with pytest.raises(Interrupted):
        hosts.connect(["gpu2"], INFO)
    assert fake.closed == ["gpu2"]


def test_every_machine_of_the_race_has_its_report_with_its_own_lanes_and_load(monkeypatch):
    session = Session(Machine(cores=2), lambda: 10**9)
    lanes = name_lanes([LaneSpec("cpu", host=host) for host in ("", "gpu2", "gpu3")])
    session.begin(Race(), lanes)
    for pid, lane in enumerate(lanes, 100):
        session.accept(LaneStarted(lane=lane.name, at_ns=1, pid=pid, settings={}))
        session.set_machine(Machine(cores=4 if lane.host else 2), lane.host)
        sample = unknown_host(1, Missing("not read"))
        session.accept(replace(sample, host=lane.host, others_cpu_pct=50.0, steal_pct=40.0))

    def facts(python: str, error: str) -> Mock:
        return Mock(return_value=Facts(Interpreter(python, error=error), GpuVisibility("Linux", "x86_64")))

    here, there = facts("/here/python", "it is no program"), facts("/there/python", "it is gone")
    lost = Mock(side_effect=TfmonError("gpu3 is lost: the cable", "r connects again"))
    monkeypatch.setattr(hosts_module, "gather_facts", here)
    monkeypatch.setattr(
        hosts_module, "to_text", lambda report: f"{report.facts.python.executable}: {report.answer}"
    )
    connections = {"gpu2": SimpleNamespace(ask=there), "gpu3": SimpleNamespace(ask=lost)}
    connected = SimpleNamespace(connections=connections)
    text = hosts_module.examine(session.snapshot(), Path("/here/python"), connected)
    no_use = "TensorFlow cannot be used: Python"
    assert text.split("\n\nOn ") == [
        f"On this machine:\n\n/here/python: {no_use}: /here/python: it is no program.",
        f"gpu2:\n\n/there/python: {no_use}: /there/python: it is gone.",
        "gpu3:\n\ngpu3 is lost: the cable · r connects again",
    ]
    asked = here.call_args.kwargs
    hosts = session.snapshot().hosts
    assert (asked["imports"], asked["own_pids"], asked["samples"]) == (False, (100,), hosts[""].history)
    assert there.call_args.args == (questions.doctor,)
    asked = there.call_args.kwargs
    assert (asked["imports"], asked["own_pids"]) == (False, (101,)), "not the lanes of other machines"
    assert asked["samples"] == hosts["gpu2"].history
