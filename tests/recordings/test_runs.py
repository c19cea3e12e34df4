"""The list of runs: order, names, failures, deletion, and the port that the screen sees."""

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
from tfmon.recordings.reader import Recording

FIRST, SECOND, THIRD = "20010101-100000-conv", "20010101-110000-dense", "20010102-100000-conv"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Three races; the files were changed in another order than the races began."""
    monkeypatch.setenv(library.FOLDER_VARIABLE, str(tmp_path))
    _, *rest = RECORDED.read_bytes().splitlines(keepends=True)
    with Recording(RECORDED) as opened:
        header = opened.header
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
