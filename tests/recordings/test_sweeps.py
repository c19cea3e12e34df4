"""The file of a sweep: it is read back unchanged, and an error in it gets one clear line."""

import os

import pytest
from support.sweeps import SimulatedStation, planned
from support.waiting import PATIENCE_S

from tfmon.analysis.sweep_ranking import rank
from tfmon.errors import TfmonError, UsageError
from tfmon.model.series import Pair, PairMeasured, VisitBegan
from tfmon.recordings import sweeps
from tfmon.series.engine import Series
from tfmon.series.sweep import SweepPolicy


def swept(path, state):
    """Return the sweep that wrote a file to its end."""
    file = sweeps.create(path, state)
    sweep = Series(state, SweepPolicy(), [SimulatedStation()], file.write)
    sweep.start()
    assert sweep.join(PATIENCE_S)
    file.close()
    return sweep


@pytest.fixture
def measured(tmp_path):
    """A file of a whole sweep, and its result."""
    path = tmp_path / "night.sweep"
    return path, swept(path, planned({"batch_size": (16, 64, 4_096)})).state


def test_what_was_measured_comes_back_as_it_was_with_the_same_figures(tmp_path):
    state = planned(until_ci=0.012)
    found, again = rank(swept(tmp_path / "night.sweep", state).state), sweeps.read(tmp_path / "night.sweep")
    assert again.attempts == found.state.attempts and again.plan == state.plan
    assert sum(len(attempt.pairs) for attempt in again.attempts) > 100
    killed = sweeps.create(tmp_path / "killed.sweep", state)
    for event in (VisitBegan(0, "cpu"), PairMeasured(0, Pair(0.1, True, 1), 1.0)):
        killed.write(event)
    killed.close()
    assert sweeps.read(killed.path).attempts[0].figures.place == "cpu"
    before, after = ([(row.ratio, row.outcome) for row in ranking.rows] for ranking in (found, rank(again)))
    assert before == after


def test_one_file_has_one_writer_and_none_is_overwritten(measured):
    path, state = measured
    before = path.read_bytes()
    with pytest.raises(UsageError, match="is there already"):
        sweeps.create(path, state)
    assert path.read_bytes() == before
    _, file = sweeps.resume(path)
    with pytest.raises(TfmonError, match="another tfmon writes"):
        sweeps.resume(path)
    file.close()
    sweeps.resume(path)[1].close()


def test_a_disk_that_is_full_ends_no_sweep_and_all_is_written_when_it_has_room_again(tmp_path):
    state = planned({"batch_size": (16, 64)})
    file = sweeps.create(tmp_path / "night.sweep", state)
    room, full = os.dup(file._descriptor), os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, file._descriptor)
    sweep = Series(state, SweepPolicy(), [SimulatedStation()], file.write)
    sweep.start()
    assert sweep.join(PATIENCE_S) and rank(sweep.state).settled == 2
    assert "night.sweep cannot be written: No space left" in file.failure
    assert sweeps.read(file.path).attempts == state.attempts
    os.dup2(room, file._descriptor)
    file.close()
    assert file.failure == "" and sweeps.read(file.path).attempts == sweep.state.attempts
    os.close(room)
    os.close(full)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda data: b"", "is not a sweep"),
        (lambda data: b'{"type":"Race"}\n', "is not a sweep"),
        (lambda data: data.replace(b'"schema":4', b'"schema":7', 1), "in a form that this one cannot read"),
        (lambda data: data.replace(b'"number":1', b'"number":5', 1), "combinations are not in order"),
        (lambda data: data.replace(b'"PairMeasured"', b'"Nonsense"', 1), "line 3: unknown type"),
    ],
)
def test_what_is_no_sweep_gets_one_line_and_stays_as_it_is(measured, spoil, said):
    path, _ = measured
    spoilt = spoil(path.read_bytes())
    path.write_bytes(spoilt)
    for act in (sweeps.read, sweeps.resume):
        with pytest.raises(TfmonError) as caught:
            act(path)
        assert said in caught.value.message and "\n" not in caught.value.message
    assert path.read_bytes() == spoilt
