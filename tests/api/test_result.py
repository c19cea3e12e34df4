"""The result of a race from Python, and the report that W saves."""

import gzip
import json
from dataclasses import replace

import pytest
from support.recordings import RECORDED
from support.ui import Demo

import tfmon
from tfmon.analysis.analysis import analyse
from tfmon.analysis.summarise import summarise
from tfmon.api.live import RecordedRuns
from tfmon.errors import TfmonError
from tfmon.recordings.reader import Recording
from tfmon.reports.race_report import to_text


@pytest.fixture(scope="module")
def result() -> tfmon.RaceResult:
    analysis = analyse(Demo(mode="turns").go().race(20, (7_663, 2_420)).session.snapshot())
    with Recording(RECORDED) as opened:
        result = summarise(analysis, opened.header)
    return replace(result, table=to_text(analysis, result))


def test_its_figures_are_those_of_the_json_object(result):
    told = result.to_json()
    assert result.winner is result.lane("cpu") is result.lane("C") is result.lanes[0]
    assert (result.ratio, list(result.ratio_ci95)) == (told["verdict"]["ratio"], told["verdict"]["ratio_ci95"])
    assert 2.9 < result.ratio_ci95[0] < result.ratio < result.ratio_ci95[1] < 3.4
    assert result.lanes[1].examples_per_s == told["lanes"][1]["examples_per_s"] == pytest.approx(2_420, rel=0.03)
    assert result.lanes[1].missing == told["lanes"][1]["missing"]
    assert str(result) == result.table and "7 6" in result.table
    assert "<pre>" in result._repr_html_()
    assert repr(result) == f"<RaceResult small-dense: {result.verdict}>"
    assert len({result, *result.lanes}) == 3, "it can be hashed"
    with pytest.raises(tfmon.TfmonError, match="'tpu' is not one lane") as refused:
        result.lane("tpu")
    assert refused.value.hint == "its lanes are C (cpu), G (gpu:0)"


def test_it_is_saved_as_a_new_file(result, tmp_path):
    path = result.save(tmp_path / "result.json")
    assert json.loads(path.read_text()) == result.to_json()
    with pytest.raises(tfmon.TfmonError, match="is there already"):
        result.save(path)
    path.write_text("old")
    result.save(path, force=True)
    assert json.loads(path.read_text())["scenario"] == result.scenario
    with pytest.raises(tfmon.TfmonError, match="cannot be written: No such file"):
        result.save(tmp_path / "nowhere" / "result.json")
    with pytest.raises(tfmon.UsageError, match="path=3 is not possible · it is the path of a new file"):
        result.save(3)


def test_it_is_a_data_frame_where_pandas_is_there_or_says_what_to_install(result, monkeypatch):
    pytest.importorskip("pandas")
    frame = result.to_frame()
    assert list(frame.index) == ["C", "G"]
    assert frame.loc["C", "examples_per_s"] == result.lanes[0].examples_per_s
    assert frame.loc["G", "step_ms.p50"] == result.lanes[1].step_ms["p50"]
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(tfmon.TfmonError, match="needs pandas") as refused:
        result.to_frame()
    assert refused.value.hint == "pip install pandas"


def test_diff_takes_results_and_their_files(result, tmp_path):
    gate = tfmon.diff(result, result.save(tmp_path / "run.json"))
    assert (gate.kind, gate.exit_code, len(gate.lanes)) == ("not slower", 0, 2)
    with pytest.raises(tfmon.TfmonError, match="there is no recording"):
        tfmon.diff("nothing", result)


@pytest.mark.slow
@pytest.mark.process
def test_the_report_is_saved_in_the_working_directory(tmp_path, monkeypatch):
    pytest.importorskip("vl_convert")
    monkeypatch.chdir(tmp_path)
    packed = tmp_path / "race.jsonl.gz"
    packed.write_bytes(gzip.compress(RECORDED.read_bytes()))
    said = RecordedRuns().report(str(packed))
    (saved,) = tmp_path.glob("tfmon-race-*.html")
    assert said == f"saved {saved}" and "Throughput over time" in saved.read_text("utf-8")


@pytest.mark.process
def test_what_went_wrong_with_a_report_is_said_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TfmonError, match="there is no recording") as problem:
        RecordedRuns().report(str(tmp_path / "race.jsonl"))
    assert "\n" not in problem.value.line and not list(tmp_path.glob("*.html"))
