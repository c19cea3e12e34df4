"""The variance between processes that is kept from race to race."""

import json
from dataclasses import replace

import pytest
from support.verdicts import ended, lane, noisy, with_slices

from tfmon.analysis.statistics import MOST_DEGREES
from tfmon.api import state
from tfmon.model.race import BetweenProcesses, Machine

HERE = (Machine(hostname="here", cpu_name="a CPU", usable_cores=2.0),)


@pytest.fixture(autouse=True)
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("TFMON_STATE", str(tmp_path / "state"))
    return tmp_path / "state" / "between-processes.json"


def test_a_race_is_remembered_for_its_machines():
    state.remember(HERE, BetweenProcesses(2e-4, 2.0, 1))
    state.remember(HERE, BetweenProcesses(1e-4, 1.0, 1))
    assert state.recall(HERE) == state.recall(2 * HERE) == BetweenProcesses(pytest.approx(3e-4), 3.0, 2)
    assert state.recall((Machine(hostname="there"),)) is None


def test_earlier_races_fade_and_never_count_for_more_than_ten_degrees():
    for _ in range(20):
        state.remember(HERE, BetweenProcesses(4 * 0.02**2, 4.0, 1))
    for _ in range(20):
        state.remember(HERE, BetweenProcesses(4 * 0.01**2, 4.0, 1))
    found = state.recall(HERE)
    assert found.degrees == MOST_DEGREES and found.races == 40
    assert found.squares / found.degrees == pytest.approx(0.01**2, rel=0.02)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"KEY": 3}', '{"KEY": {"squares": "x", "degrees": 1, "races": 1}}',
     '{"KEY": {"squares": NaN, "degrees": 1, "races": 1}}', '{"KEY": {"squares": 1, "degrees": 0, "races": 1}}',
     "[" * 100_000],
)  # fmt: skip
def test_a_broken_file_tells_nothing_and_is_replaced(file, text):
    state.remember(HERE, BetweenProcesses(1e-4, 1.0, 1))
    (key,) = json.loads(file.read_text())
    file.write_text(text.replace("KEY", key))
    assert state.recall(HERE) is None
    state.remember(HERE, BetweenProcesses(1e-4, 1.0, 1))
    assert state.recall(HERE) == BetweenProcesses(1e-4, 1.0, 1)
    assert [one.name for one in file.parent.iterdir()] == [file.name], "no temporary file is left"


@pytest.mark.parametrize(
    ("scatter", "each_rounds", "remembered"),
    [(0.004, 20, True), (0.004, 60, False), (0.4, 20, False)],
    ids=["several processes", "one process", "too noisy"],
)
def test_only_a_race_with_several_processes_and_little_noise_is_remembered(scatter, each_rounds, remembered):
    lanes = [lane(name, noisy(100, 60, scatter, seed=at)) for at, name in enumerate(("cpu", "gpu:0"))]
    several = [with_slices(one, lambda part: replace(part, process=part.round // each_rounds)) for one in lanes]
    raced = ended(*several, fresh=True)
    state.remember_race(raced)
    assert (state.recall([raced.machine]) is not None) is remembered
