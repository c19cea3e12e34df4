"""The report of a sweep: the content of its file and Markdown, and the messages about bad input."""

from collections.abc import Mapping
from pathlib import Path

from support.sweeps import planned, visit_events

from tfmon.analysis.sweep_ranking import rank
from tfmon.model.knobs import KnobValue
from tfmon.model.series import state_after
from tfmon.recordings import sweeps
from tfmon.reports.series_report import happened

from .pages import data_of, page_of, visible

Over = Mapping[str, tuple[KnobValue, ...]]
TWO: Over = {"batch_size": (16, 32, 64, 128, 4_096), "mixed_precision": ("off", "bfloat16")}
RATIOS = {16: 0.8, 32: 1.0, 64: 1.6, 128: 1.3}


def swept(path: Path, over: Over = TWO, **more) -> Path:
    """Write the file of a sweep whose fastest batch is 64, and in which larger batches take more memory."""
    state = planned(over, **more)
    file = sweeps.create(path, state)
    for attempt in state.attempts:
        if attempt.baseline or attempt.refused:
            continue
        batch = int(attempt.settings.get("batch_size", 32))
        ratio = RATIOS.get(batch, 1.0) * (1.2 if attempt.settings.get("mixed_precision") == "bfloat16" else 1)
        for event in visit_events(attempt.number, ratio, (300 + batch) * 2.0**20, attempt.kind):
            file.write(event)
    file.close()
    return path


def test_each_kind_of_device_has_its_curve(tmp_path):
    page = page_of(swept(tmp_path / "three.sweep", {**TWO, "prefetch": ("off", "auto")}, kinds=("cpu", "gpu")))
    told = visible(page)
    assert "Ratio over batch size on cpu" in told and "Ratio over batch size on gpu" in told
    assert len(data_of(page, "tfmon-charts")) == 2


def test_names_of_machines_and_secrets_stay_out(tmp_path):
    words = ("python", "/home/alice/train.py", "--api-key=hunter2", "</script><b>")
    path = swept(tmp_path / "own.sweep", kinds=("cpu",), command=words, machines={"me@node7/gpu": "NVIDIA H100"})
    text = path.read_text().replace('"places":["cpu"]', '"places":["me@node7/gpu","ray:H100/gpu"]')
    path.write_text(text)
    page = page_of(path)
    assert not [secret for secret in ("alice", "node7", "hunter2", "</script><b>") if secret in page]
    assert "NVIDIA H100" in page and "ray:H100" in page
    assert all(secret in page_of(path, everything=True) for secret in ("alice", "node7", "hunter2"))


def test_the_list_of_runs_has_the_answer_of_each_kind_of_device(run, tmp_path, monkeypatch):
    monkeypatch.setenv("TFMON_RECORDINGS", str(tmp_path / "recordings"))
    (tmp_path / "sweeps").mkdir()
    swept(tmp_path / "sweeps" / "x.sweep", {"batch_size": (16, 64)}, kinds=("cpu", "gpu"))
    listed = run("runs")[1]
    assert "best so far on cpu: batch_size=64" in listed and "; best so far on gpu: batch_size=64" in listed


def test_a_last_line_that_is_cut_off_does_not_count(run, tmp_path):
    path = swept(tmp_path / "night.sweep")
    path.write_text(path.read_text()[:-20])
    assert run("export", path, "--markdown")[0] == 0


def test_a_combination_that_is_open_again_for_a_moment_is_reported_once():
    state, told = planned({"batch_size": (16, 32)}, each_s=9.0), {}
    done = state
    for event in visit_events(0, 0.8, 1.0):
        done = state_after(done, event)
    before, ranking = rank(state), rank(done)
    assert len([*happened(before, ranking, told)]) == 1
    assert not [*happened(before, ranking, told)]
