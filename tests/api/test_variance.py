"""What is remembered of equal processes from race to race."""

from __future__ import annotations

import json

import pytest

from tfmon.analysis.intervals import Center
from tfmon.analysis.statistics import MOST_DEGREES, Between, LogRatio
from tfmon.api import variance
from tfmon.model.race import BetweenProcesses, Machine

HERE = (Machine(hostname="here", cpu_name="a CPU", usable_cores=2.0),)
CPUS = ("cpu", "cpu")


@pytest.fixture(autouse=True)
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("TFMON_STATE", str(tmp_path / "state"))
    return tmp_path / "state" / "between-processes.json"


def test_a_race_is_remembered_for_its_machine_scenario_and_devices_alone():
    variance.remember(HERE, "small-dense", CPUS, BetweenProcesses(2e-4, 2.0, 1))
    variance.remember(HERE, "small-dense", CPUS, BetweenProcesses(1e-4, 1.0, 1))
    assert variance.recall(HERE, "small-dense", CPUS) == BetweenProcesses(pytest.approx(3e-4), 3.0, 2)
    assert variance.recall(HERE, "small-dense", ("cpu", "gpu")) is None
    assert variance.recall(HERE, "conv-net", CPUS) is None
    assert variance.recall((Machine(hostname="there"),), "small-dense", CPUS) is None


def test_earlier_races_fade_and_never_count_for_more_than_ten_degrees():
    for _ in range(20):
        variance.remember(HERE, "one", CPUS, BetweenProcesses(4 * 0.02**2, 4.0, 1))
    for _ in range(20):
        variance.remember(HERE, "one", CPUS, BetweenProcesses(4 * 0.01**2, 4.0, 1))
    found = variance.recall(HERE, "one", CPUS)
    assert found.degrees == MOST_DEGREES and found.races == 40
    assert found.squares / found.degrees == pytest.approx(0.01**2, rel=0.02)


def test_a_negative_sum_is_remembered_because_a_mean_over_races_needs_it():
    variance.remember(HERE, "one", CPUS, BetweenProcesses(-1e-5, 1.0, 1))
    variance.remember(HERE, "one", CPUS, BetweenProcesses(3e-5, 1.0, 1))
    assert variance.recall(HERE, "one", CPUS).squares == pytest.approx(2e-5)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"KEY": 3}', '{"KEY": {"squares": "x", "degrees": 1, "races": 1}}',
     '{"KEY": {"squares": NaN, "degrees": 1, "races": 1}}', '{"KEY": {"squares": 1, "degrees": 0, "races": 1}}',
     "[" * 100_000],
)  # fmt: skip
def test_a_broken_file_tells_nothing_and_is_replaced(file, text):
    variance.remember(HERE, "one", CPUS, BetweenProcesses(1e-4, 1.0, 1))
    (key,) = json.loads(file.read_text())
    file.write_text(text.replace("KEY", key))
    assert variance.recall(HERE, "one", CPUS) is None
    variance.remember(HERE, "one", CPUS, BetweenProcesses(1e-4, 1.0, 1))
    assert variance.recall(HERE, "one", CPUS) == BetweenProcesses(1e-4, 1.0, 1)
    assert [one.name for one in file.parent.iterdir()] == [file.name], "no temporary file is left"


def test_the_oldest_are_dropped(monkeypatch, file):
    monkeypatch.setattr(variance, "MOST", 2)
    for name in ("one", "two", "one", "three"):
        variance.remember(HERE, name, CPUS, BetweenProcesses(1e-4, 1.0, 1))
    assert [name.split()[0] for name in json.loads(file.read_text())] == ["one", "three"]


@pytest.mark.parametrize(("error", "remembered"), [(0.005, True), (0.02, False)])
def test_a_race_that_is_too_noisy_to_tell_is_not_remembered(error, remembered):
    learnt = BetweenProcesses(2e-4, 2.0, 1)
    for between in (None, Between(0.01, 6.0, 3.0), Between(0.01, 6.0, 3.0, learnt)):
        found = LogRatio(Center(0.0, error, 30, 50), between)
        assert variance.recall(HERE, "one", CPUS) is None
        variance.remember_race(HERE, "one", CPUS, found)
    assert (variance.recall(HERE, "one", CPUS) == learnt) is remembered


def test_where_nothing_can_be_written_nothing_is_remembered(tmp_path, monkeypatch):
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("TFMON_STATE", str(tmp_path / "a file"))
    variance.remember(HERE, "one", CPUS, BetweenProcesses(1e-4, 1.0, 1))
    assert variance.recall(HERE, "one", CPUS) is None
