"""The command line in the test's process: its output and its exit code."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tfmon.api import program, settings
from tfmon.cli.main import main
from tfmon.lanes.group import LaneGroup
from tfmon.probes.find_gpus import GpuSearch

CHILD = Path(__file__).parents[1] / "lanes" / "children" / "trainer.py"


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def no_settings_and_no_gpu(tmp_path, monkeypatch):
    """Point to a settings file that is not there, forget the user's environment, and find no GPU."""
    for setting in settings.SETTINGS:
        monkeypatch.delenv(setting.variable, raising=False)
    monkeypatch.delenv("TFMON_CONFIG", raising=False)
    monkeypatch.setattr("platformdirs.user_config_path", lambda name: tmp_path / name)
    settings.read_file.cache_clear()
    monkeypatch.setattr(program, "find_gpus", lambda python: GpuSearch(reason="no driver", hint="install one"))


@pytest.fixture
def tfmon(monkeypatch, capsys) -> Callable[..., Ran]:
    def run(*words: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["tfmon", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Ran(left.value.code, out, err)

    return run


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The user's folder of recordings, which is not there yet."""
    folder = tmp_path / "state" / "recordings"
    monkeypatch.setenv("TFMON_RECORDINGS", str(folder))
    return folder


@pytest.fixture
def run(tfmon, folder, tmp_path, monkeypatch) -> Callable[..., Ran]:
    """Run a command in a working directory of the test's own."""
    monkeypatch.chdir(tmp_path)
    return tfmon


@pytest.fixture
def scripted(monkeypatch) -> None:
    """Play the lanes by children that train nothing, at a speed that hangs on their settings alone."""
    monkeypatch.setenv("STOPPED", "1e9")
    monkeypatch.setattr(program, "LaneGroup", functools.partial(LaneGroup, script=CHILD))
