"""The doctor beside a race over several machines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tfmon.api import examination
from tfmon.doctor.facts import Facts, Interpreter, OthersLoad
from tfmon.doctor.report import Report
from tfmon.errors import TfmonError
from tfmon.model.codec import plain, read
from tfmon.model.events import LaneStarted
from tfmon.model.race import Machine, Race
from tfmon.model.readings import Missing
from tfmon.model.session import Session
from tfmon.model.spec import LaneSpec, name_lanes
from tfmon.probes.host import unknown_host
from tfmon.probes.obstacles import GpuVisibility, Obstacle

PYTHON = Path("/here/python")


class Connected:
    """Connections whose host gpu2 answers, and whose host gpu3 is lost."""

    def __init__(self) -> None:
        self.words: dict[str, object] = {}

    def place(self, host: str) -> SimpleNamespace:
        return SimpleNamespace(ask=self._answer if host == "gpu2" else self._fail)

    def _answer(self, question: str, **words: object) -> dict[str, object]:
        self.words = {"question": question, **words}
        facts = Facts(Interpreter("/there/python", error="it is gone"), GpuVisibility("Linux", "x86_64"))
        return {"facts": plain(facts), "seconds": 1.0}

    def _fail(self, question: str, **words: object) -> dict[str, object]:
        raise TfmonError("gpu3 is lost: the cable", "r connects again")


def report(python: str, reason: str) -> Report:
    return Report(python=python, results=(), no_gpu=Obstacle(reason))


@pytest.fixture
def here(monkeypatch):
    """What is examined on this machine."""
    examined = []

    def run_checks(python, *, imports, running):
        examined.append((python, imports, running))
        return report(str(python), "no driver here")

    monkeypatch.setattr(examination, "run_checks", run_checks)
    monkeypatch.setattr(examination, "to_text", lambda found: f"{found.python}: {found.answer}")
    return examined


def race(*hosts: str) -> Session:
    session = Session(Machine(cores=2), lambda: 10**9)
    lanes = name_lanes([LaneSpec("cpu", host=host) for host in hosts])
    session.begin(Race(), lanes)
    for pid, lane in enumerate(lanes, 100):
        session.accept(LaneStarted(lane=lane.name, at_ns=1, pid=pid, settings={}))
    for host in {"", *hosts}:
        session.set_machine(Machine(cores=4 if host else 2), host)
        sample = replace(unknown_host(1, Missing("not read")), host=host, others_cpu_pct=50.0, steal_pct=40.0)
        session.accept(sample)
    return session


def test_every_machine_of_the_race_has_its_report_with_its_own_lanes_and_load(here):
    connected = Connected()
    text = examination.examine(race("", "gpu2", "gpu3").snapshot(), PYTHON, [7], connected)
    first, second, third = text.split("\n\nOn ")
    assert first == "On this machine:\n\n/here/python: TensorFlow uses no GPU here: no driver here."
    assert second == "gpu2:\n\n/there/python: TensorFlow cannot be used: Python: /there/python: it is gone."
    assert third == "gpu3:\n\ngpu3 is lost: the cable · r connects again"
    ((python, imports, running),) = here
    assert (python, imports, running.pids, running.others.stolen_share) == (PYTHON, False, (7,), 0.2)
    assert (connected.words["question"], connected.words["imports"]) == ("doctor", False)
    assert connected.words["pids"] == [101], "not the lanes of other machines"
    assert read(connected.words["others"], OthersLoad).stolen_share == 0.1, "of the cores there"


def test_this_machine_is_not_examined_when_no_lane_is_on_it(here):
    text = examination.examine(race("gpu2").snapshot(), PYTHON, [], Connected())
    assert text.startswith("On gpu2:") and "this machine" not in text
    assert not here


def test_without_hosts_the_report_stands_alone(here):
    assert examination.examine(race("").snapshot(), PYTHON, [7], None).startswith("/here/python: TensorFlow")
