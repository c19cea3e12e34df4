"""The hosts of a race, and the doctor beside it, with fake connections."""

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.waiting import PATIENCE_S

from tfmon.api import race_hosts as hosts_module
from tfmon.api.race_hosts import Hosts, command_paths
from tfmon.catalog import ScenarioInfo, command_scenario
from tfmon.doctor.facts import Facts
from tfmon.errors import EXIT_DEVICE_ABSENT, TfmonError
from tfmon.lanes.remote.remote_host import Host
from tfmon.lanes.remote.start_program import Greeting
from tfmon.lanes.remote.trouble import HostError
from tfmon.model.codec import plain, read
from tfmon.model.events import LaneStarted
from tfmon.model.race import Machine, Race
from tfmon.model.readings import Missing
from tfmon.model.session import Session
from tfmon.model.spec import LaneSpec, name_lanes
from tfmon.probes.base import Gpu
from tfmon.probes.find_gpus import GpuSearch
from tfmon.probes.host_probe import unknown_host
from tfmon.probes.interpreter import Interpreter
from tfmon.probes.obstacles import GpuVisibility
from tfmon.probes.surroundings import OthersLoad

INFO = ScenarioInfo("net", Path("/scenarios/net.py"), "file", "A net", "", (), ("", ""), 1_000)
FOUND = GpuSearch((Gpu(0, "GPU-b", "B200", 0),), driver="550")
THERE = Machine(hostname="node", boot="b", cores=8, tensorflow="2.20.0", gpus=("B200",))


class FakeConnection:
    """A host that is as `HOSTS` says."""

    opened: list[str]
    closed: list[str]
    answers: dict[str, dict[str, object]]
    unreachable: dict[str, TfmonError]
    together: threading.Barrier | None

    def __init__(self, host: Host, sink) -> None:
        self.host, self.sink, self.greeting = host, sink, Greeting(python="/there/python3")
        self.read: list[object] = []

    def ensure(self) -> None:
        if self.together is not None:
            self.together.wait(PATIENCE_S)
        self.opened.append(self.host.name)
        if self.host.name in self.unreachable:
            raise self.unreachable[self.host.name]

    def ask(self, question: str, **words: object) -> dict[str, object]:
        return self.answers[question] | ({"words": words} if question == "paths" else {})

    def begin_readings(self, gpus) -> None:
        self.read.append(gpus)

    def close(self) -> None:
        self.closed.append(self.host.name)


@pytest.fixture
def fake(monkeypatch):
    """The class of the connections, with their answers."""

    class Fake(FakeConnection):
        pass

    Fake.opened, Fake.closed, Fake.unreachable, Fake.together = [], [], {}, None
    Fake.answers = {
        "gpus": {"search": plain(FOUND), "machine": plain(THERE)},
        "paths": {"missing": [], "digests": {}},
    }
    monkeypatch.setattr(hosts_module, "Connection", Fake)
    monkeypatch.setattr(hosts_module, "find_host", Host)
    return Fake


@pytest.fixture
def hosts(fake):
    return Hosts(Session(Machine(), iter(range(10**6)).__next__), fake)


def test_hosts_are_connected_at_the_same_time_and_what_they_have_is_known(fake, hosts):
    fake.together = threading.Barrier(2)
    hosts.connect(["gpu2", "gpu3"], INFO)
    assert hosts._session.snapshot().hosts["gpu3"].machine == THERE
    assert hosts.search("gpu2") == FOUND
    fake.together = None
    hosts.begin_readings(["gpu2", "gpu2"])
    assert hosts.place("gpu2").read == [FOUND.gpus], "once"
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
    fake.answers["gpus"]["machine"] = plain(replace(THERE, tensorflow=""))
    with pytest.raises(TfmonError, match="/there/python3 on gpu2 has no TensorFlow"):
        hosts.connect(["gpu2"], INFO)
    hosts.connect(["gpu2"], command_scenario(("true",)))


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (["train.py"], "train.py is not there on gpu2"),
        (["/work", "train.py"], "/work and train.py are not there on gpu2"),
    ],
)
def test_what_a_command_needs_and_is_not_there_is_named(fake, hosts, missing, said):
    fake.answers["paths"]["missing"] = missing
    with pytest.raises(TfmonError) as caught:
        hosts.connect(["gpu2"], command_scenario(("python", "train.py")))
    assert caught.value.message == said
    assert "same path" in caught.value.hint


def test_a_file_with_another_content_is_told(fake, hosts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print(1)")
    fake.answers["paths"]["digests"] = {"train.py": "0123456789abcdef"}
    hosts.connect(["gpu2"], command_scenario(("python", "train.py")))
    assert hosts.differing_files() == ("train.py has another content on gpu2",)


def test_the_program_the_folder_and_what_names_a_file_here_must_be_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    for name in ("train.py", "data"):
        (tmp_path / name).touch()
    sought = command_paths(("python", "train.py", "--epochs", "3", "--data", "data", "nothing"))
    assert sought == {"folder": str(tmp_path), "programs": ["python"], "paths": ["train.py", "data"]}


def test_an_interruption_ends_the_connections_that_are_being_made(fake, hosts):
    class Interrupted(BaseException):
        pass

    fake.unreachable = {"gpu2": Interrupted()}
    with pytest.raises(Interrupted):
        hosts.connect(["gpu2"], INFO)
    assert fake.closed == ["gpu2"]


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
        return {"facts": plain(facts)}

    def _fail(self, question: str, **words: object) -> dict[str, object]:
        raise TfmonError("gpu3 is lost: the cable", "r connects again")


@pytest.fixture
def here(monkeypatch):
    """The arguments of each examination of this machine."""
    examined = []

    def gather_facts(python, *, imports, others, own_pids):
        examined.append((python, imports, others, own_pids))
        return Facts(Interpreter(str(python), error="it is no program"), GpuVisibility("Linux", "x86_64"))

    monkeypatch.setattr(hosts_module, "gather_facts", gather_facts)
    monkeypatch.setattr(
        hosts_module, "to_text", lambda report: f"{report.facts.python.executable}: {report.answer}"
    )
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
    text = hosts_module.examine(race("", "gpu2", "gpu3").snapshot(), PYTHON, [7], connected)
    first, second, third = text.split("\n\nOn ")
    assert (
        first
        == "On this machine:\n\n/here/python: TensorFlow cannot be used: Python: /here/python: it is no program."
    )
    assert second == "gpu2:\n\n/there/python: TensorFlow cannot be used: Python: /there/python: it is gone."
    assert third == "gpu3:\n\ngpu3 is lost: the cable · r connects again"
    ((python, imports, others, own_pids),) = here
    assert (python, imports, own_pids, others.stolen_share) == (PYTHON, False, (7,), 0.2)
    assert (connected.words["question"], connected.words["imports"]) == ("doctor", False)
    assert connected.words["pids"] == [101], "not the lanes of other machines"
    assert read(connected.words["others"], OthersLoad).stolen_share == 0.1, "of the cores there"
