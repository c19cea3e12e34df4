"""The report that `W` saves, written by a child."""

from __future__ import annotations

import gzip

import pytest
from support.recordings import RECORDED

from tfmon.api.live import RecordedRuns
from tfmon.errors import TfmonError

pytestmark = pytest.mark.process
pytest.importorskip("vl_convert")


def test_it_is_saved_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    packed = tmp_path / "race.jsonl.gz"
    packed.write_bytes(gzip.compress(RECORDED.read_bytes()))
    said = RecordedRuns().report(str(packed))
    (saved,) = tmp_path.glob("tfmon-race-*.html")
    assert said == f"saved {saved}" and "Throughput over time" in saved.read_text("utf-8")


def test_what_went_wrong_is_said_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "race.jsonl").write_text("nonsense")
    with pytest.raises(TfmonError, match="is not a recording of tfmon") as problem:
        RecordedRuns().report(str(tmp_path / "race.jsonl"))
    assert "\n" not in problem.value.line and not list(tmp_path.glob("*.html"))
