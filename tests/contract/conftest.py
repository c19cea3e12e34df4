"""Run commands as a user does, and read the screen of a replay."""

import time

import pytest
from cli.conftest import no_settings_and_no_gpu, tfmon

__all__ = ["no_settings_and_no_gpu", "tfmon"]


@pytest.fixture(autouse=True)
def same_place_and_time(tmp_path, monkeypatch):
    """Run in an empty folder without recordings, in UTC: reports write the local time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFMON_RECORDINGS", str(tmp_path / "recordings"))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
