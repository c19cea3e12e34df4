"""Which recording a word means."""

import os

import pytest

from tfmon.recordings import library
from tfmon.recordings.header_lines import RecordingError
from tfmon.recordings.library import find, run_id

NAMES = ("20260101-100000-conv.jsonl.gz", "20260101-110000-dense.jsonl.gz", "20260102-100000-conv.jsonl")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv(library.FOLDER_VARIABLE, str(tmp_path))
    for age, name in enumerate(NAMES):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (age, age))
    return tmp_path


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("2026", "3 recordings begin with '2026'"),
        ("last~3", "there are 3 recordings"),
        ("nothing", "there is no recording nothing"),
        ("./nothing.jsonl", "there is no recording ./nothing.jsonl"),
        ("", "3 recordings begin with ''"),
    ],
)
def test_what_is_not_there_or_not_clear_is_said(word, problem):
    with pytest.raises(RecordingError) as caught:
        find(word)
    assert problem in caught.value.message
    assert caught.value.hint or "recordings in" in caught.value.message


def test_an_exact_id_wins_over_longer_ones(place):
    (place / "20260102-100000-conv-2.jsonl").touch()
    assert find("20260102-100000-conv") == place / NAMES[2]


def test_names_of_scenarios_make_safe_names_of_files(place):
    path, fd = library.create("../../evil name\x1b[31m/" + "x" * 200)
    os.close(fd)
    assert path.parent == place
    assert run_id(path).endswith("-evil-name-31m-" + "x" * 26)


def test_a_named_pipe_is_no_recording(place):
    os.mkfifo(place / "20260103-100000-conv.jsonl")
    assert {run.file.name for run in library.runs()} == set(NAMES)
