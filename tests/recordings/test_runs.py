"""The list of runs: order, names, failures, deletion; and which recording a word means."""

import os
from dataclasses import replace

import pytest
from support.recordings import RECORDED, record
from support.ui import Demo

from tfmon.api.live import RecordedRuns
from tfmon.model import codec
from tfmon.model.ports import NOT_CLOSED
from tfmon.recordings import library
from tfmon.recordings.header_lines import RecordingError

FIRST, SECOND, THIRD = "20010101-100000-conv", "20010101-110000-dense", "20010102-100000-conv"


@pytest.fixture(autouse=True)
def place(header, tmp_path, monkeypatch):
    """Three races; the files were changed in another order than the races began."""
    monkeypatch.setenv("TFMON_RECORDINGS", str(tmp_path))
    _, *rest = RECORDED.read_bytes().splitlines(keepends=True)
    for age, name in ((3, FIRST), (1, SECOND), (2, THIRD)):
        day, clock, scenario = name.split("-")
        started = f"2001-01-{day[6:]}T{clock[:2]}:00:00+00:00"
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(codec.encode(replace(header, started=started, scenario=scenario)) + b"".join(rest))
        os.utime(path, (age, age))
    return tmp_path


def test_a_race_that_still_runs_is_listed_and_is_not_the_last(place):
    path, fd = library.create("conv")
    try:
        os.write(fd, RECORDED.read_bytes()[: -len(RECORDED.read_bytes().splitlines(keepends=True)[-1])])
        latest = RecordedRuns().list()[-1]
        assert (latest.path, latest.running, latest.outcome) == (str(path), True, "still running")
        assert library.find("last") == place / f"{THIRD}.jsonl"
        with pytest.raises(RecordingError, match="being written"):
            RecordedRuns().delete(latest.id)
    finally:
        os.close(fd)
    assert RecordedRuns().list()[-1].outcome == NOT_CLOSED
    assert library.find("last") == path


def test_a_run_is_replayed_to_its_end():
    runs = RecordedRuns()
    opened = runs.replay(FIRST)
    opened.playback.go_to(opened.playback.state().to_ns)
    assert opened.snapshot().lanes[1].totals.steps > 0
    opened.stop()
    for id in ("20250101-000000-gone", "../elsewhere"):
        with pytest.raises(RecordingError, match="there is no recording"):
            runs.replay(id)


def test_one_of_two_lanes_that_failed_is_named_by_its_id():
    def fails() -> Demo:
        demo = Demo()
        demo.fail("gpu:0")
        return demo

    record(None, fails)
    assert RecordedRuns().list()[-1].outcome == "G failed: no module named 'keras_hub'"


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("2001", "3 recordings begin with '2001'"),
        ("last~3", "there are 3 recordings"),
        ("./nothing.jsonl", "there is no recording ./nothing.jsonl"),
    ],
)
def test_what_is_not_there_or_not_clear_is_said(word, problem):
    with pytest.raises(RecordingError) as caught:
        library.find(word)
    assert problem in caught.value.message
    assert caught.value.hint or "recordings in" in caught.value.message


def test_an_exact_id_wins_over_longer_ones_and_a_named_pipe_is_no_recording(place):
    (place / f"{THIRD}-2.jsonl").touch()
    os.mkfifo(place / f"{THIRD}-3.jsonl")
    assert library.find(THIRD) == place / f"{THIRD}.jsonl"
    assert {run.id for run in library.runs()} == {FIRST, SECOND, THIRD, f"{THIRD}-2"}


def test_names_of_scenarios_make_safe_names_of_files(place):
    path, fd = library.create("../../evil name\x1b[31m/" + "x" * 200)
    os.close(fd)
    assert path.parent == place
    assert library.run_id(path).endswith("-evil-name-31m-" + "x" * 26)
