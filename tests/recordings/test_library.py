"""Which recording a word means."""

from __future__ import annotations

import os

import pytest

from tfmon.recordings import library
from tfmon.recordings.header import RecordingError
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
    ("word", "found"),
    [
        ("last", 2),
        ("last~1", 1),
        ("last~2", 0),
        ("20260101-110000-dense", 1),
        ("20260101-11", 1),
        ("20260102", 2),
        ("20260101-100000-conv.jsonl.gz", 0),
    ],
)
def test_a_run_is_found_by_what_a_user_says(word, found, place):
    assert find(word) == place / NAMES[found]


def test_a_path_comes_first(place, tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "last").touch()
    assert find(str(folder / "last")) == folder / "last"
    monkeypatch.chdir(folder)
    assert find("last").name == "last"


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


def test_two_races_in_one_second_have_two_names(place):
    made = []
    for _ in range(2):
        path, fd = library.create("conv")
        os.close(fd)
        made.append(path)
    assert made[0] != made[1]


def test_a_named_pipe_is_no_recording(place):
    os.mkfifo(place / "20260103-100000-conv.jsonl")
    assert {run.path.name for run in library.runs()} == set(NAMES)
