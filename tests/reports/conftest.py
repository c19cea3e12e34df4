"""The command line and reports, without the script that draws."""

from __future__ import annotations

import sys

import pytest

from tfmon.cli.main import main
from tfmon.recordings.library import FOLDER_VARIABLE
from tfmon.reports import html


@pytest.fixture
def without_charts(monkeypatch):
    """Reports without the script that draws, which takes seconds to put together."""
    monkeypatch.setattr(html, "charts_script", lambda: "window.vegaEmbed = () => {};")


@pytest.fixture
def run(tmp_path, monkeypatch, capsys, without_charts):
    """Run `tfmon` in this process; return its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "recordings"))

    def start(*words: object) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["tfmon", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        said = capsys.readouterr()
        return left.value.code, said.out, said.err

    return start
