"""`tfmon new`: the file it writes, and what it refuses."""

from __future__ import annotations

import pytest

from tfmon.catalog import read_scenario
from tfmon.cli.scenarios import write
from tfmon.errors import UsageError


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_file_is_a_scenario_of_that_name():
    info = read_scenario(write("my-net").resolve(), "file")
    assert info.name == "my-net"
    assert info.title.startswith("My net")
    assert info.examples == 10_000
    assert len(info.contrast) == 2


def test_a_file_that_is_there_is_left_alone(tmp_path):
    (tmp_path / "mine.py").write_text("precious")
    with pytest.raises(UsageError, match="there already"):
        write("mine")
    assert (tmp_path / "mine.py").read_text() == "precious"


@pytest.mark.parametrize("name", ["", "1st", "class", "../up", "a b", "naïve"])
def test_a_name_that_is_none_is_refused(name):
    with pytest.raises(UsageError, match="cannot be a scenario's name"):
        write(name)
