"""The report of a sweep: what is in its file, in its Markdown, and what bad input is told."""

from __future__ import annotations

import json
import math
import random
import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.sweeps import planned

from tfmon.model.knobs import KnobValue
from tfmon.model.race import Machine
from tfmon.model.series import Figures, Pair, PairMeasured, VisitBegan, VisitEnded
from tfmon.recordings import sweeps
from tfmon.reports.series import command_line

from .pages import data_of, page_of, visible

Over = Mapping[str, tuple[KnobValue, ...]]
TWO: Over = {"batch_size": (16, 32, 64, 128, 4_096), "mixed_precision": ("off", "bfloat16")}
VERSIONS = {"tensorflow": "2.21.0"}
RATIOS = {16: 0.8, 32: 1.0, 64: 1.6, 128: 1.3}


def swept(path: Path, over: Over = TWO, **more) -> Path:
    """Write the file of a sweep whose fastest batch is 64, and in which larger batches take more memory."""
    state = planned(over, **more)
    file = sweeps.create(path, state)
    for one in state.combinations:
        if one.baseline or one.refused:
            continue
        batch, rng = int(one.settings.get("batch_size", 32)), random.Random(one.number)
        ratio = RATIOS.get(batch, 1.0) * (1.2 if one.settings.get("mixed_precision") == "bfloat16" else 1)
        file.write(VisitBegan(one.number, one.kind))
        for place in range(16):
            log = math.log(ratio) + rng.gauss(0, 0.01)
            file.write(PairMeasured(one.number, Pair(log, bool(place % 2), 1, 1.0)))
        memory = (300 + batch) * 2.0**20
        file.write(
            VisitEnded(
                one.number,
                Figures(one.kind, 7_663 * ratio, 7_663.0, 1.2, memory, bottleneck="input", versions=VERSIONS),
            )
        )
    file.close()
    return path


class TestHtml:
    def test_of_two_knobs_the_number_has_a_curve_for_each_value_of_the_other(self, tmp_path):
        page = page_of(swept(tmp_path / "night.sweep"))
        (curve,) = data_of(page, "tfmon-charts").values()
        line = curve["layer"][-1]["data"]["values"]
        assert {(row["s"], row["n"]) for row in line} == {
            ("A", "mixed_precision=bfloat16"),
            ("B", "mixed_precision=off"),
        }
        ratios = {(row["s"], row["t"]): row["v"] for row in line}
        assert ratios["A", 64] == pytest.approx(1.92, rel=0.02) and ratios["B", 32] == 1.0
        text = visible(page)
        assert "best so far: batch_size=64 mixed_precision=bfloat16" in text and "trains differently" in text
        assert "refused: too large" in text and page.count('scope="row"') > 10
        assert data_of(page, "tfmon-result")["file"] == "night.sweep"

    def test_it_says_on_what_it_was_measured(self, tmp_path):
        text = visible(
            page_of(swept(tmp_path / "night.sweep", hardware={"cpu": Machine(cpu_name="AMD EPYC", cores=8)}))
        )
        assert "cpu: processor AMD EPYC, 8 cores" in text and "cpu: versions TensorFlow 2.21.0" in text

    def test_one_number_is_a_curve_with_its_intervals(self, tmp_path):
        page = page_of(swept(tmp_path / "one.sweep", {"batch_size": (64, 16, 32, 128)}))
        curve = next(iter(data_of(page, "tfmon-charts").values()))
        line = curve["layer"][-1]["data"]["values"]
        assert [row["t"] for row in line] == [16, 32, 64, 128]
        spans = curve["layer"][0]["data"]["values"]
        assert all(low["v"] <= row["v"] <= low["u"] for low, row in zip(spans, line, strict=True))

    def test_each_kind_of_device_has_its_curve(self, tmp_path):
        page = page_of(swept(tmp_path / "three.sweep", {**TWO, "prefetch": ("off", "auto")}, kinds=("cpu", "gpu")))
        told = visible(page)
        assert "Ratio over batch size on cpu" in told and "Ratio over batch size on gpu" in told
        assert len(data_of(page, "tfmon-charts")) == 2

    def test_names_of_machines_and_secrets_stay_out(self, tmp_path):
        words = ("python", "/home/alice/train.py", "--api-key=hunter2", "</script><b>")
        path = swept(
            tmp_path / "own.sweep", kinds=("cpu",), command=words, machines={"me@node7/gpu": "NVIDIA H100"}
        )
        text = path.read_text().replace('"places":["cpu"]', '"places":["me@node7/gpu","ray:H100/gpu"]')
        path.write_text(text)
        page = page_of(path)
        assert not [secret for secret in ("alice", "node7", "hunter2", "</script><b>") if secret in page]
        assert "NVIDIA H100" in page and "ray:H100" in page
        assert all(secret in page_of(path, everything=True) for secret in ("alice", "node7", "hunter2"))


def test_the_command_reads_back(tmp_path):
    plan = planned(
        {"learning_rate": (0.001, 1e-7)}, settings=("epochs=3",), command=("python", "t.py"), each_s=9.0
    ).plan
    words = shlex.split(command_line(plan))
    assert words[:4] == ["tfmon", "sweep", "--over", "learning_rate=0.001,1e-07"]
    assert words[4:] == [
        *("--on", "cpu", "--set", "epochs=3", "--until-ci", "3%", "--limit", "9", "--slice", "0.5"),
        *("--", "python", "t.py"),
    ]


class TestCommand:
    def test_every_way_writes_the_ranking(self, run, tmp_path):
        path = swept(tmp_path / "night.sweep")
        code, _, said = run("export", path, "--html", "night.html")
        assert code == 0 and "a sweep of 10 combinations" in visible((tmp_path / "night.html").read_text()), said
        marked = run("export", path, "--markdown")[1]
        ranked = marked.partition("### Ranking")[2].partition("\n#")[0]
        rows = [line for line in ranked.splitlines() if line.startswith("|") and line.endswith("|")]
        assert marked.startswith("**best so far: batch_size=64") and len(rows) == 12
        assert len({line.count(" | ") for line in rows}) == 1 and "tfmon sweep simulated" in marked
        told = json.loads(run("export", path, "--json")[1])
        assert told["best"]["cpu"]["batch_size"] == 64

    def test_the_baseline_is_named_in_every_way_also_if_it_is_no_combination(self, run, tmp_path, monkeypatch):
        monkeypatch.setenv("TFMON_RECORDINGS", str(tmp_path / "recordings"))
        (tmp_path / "sweeps").mkdir()
        path, name = swept(tmp_path / "sweeps" / "x.sweep", {"batch_size": (16, 64)}), "the baseline batch_size=32"
        for words in (("export", path, "--markdown"), ("export", path, "--text"), ("runs",)):
            assert f"the throughput of {name} (" in run(*words)[1].replace("\\_", "_"), words
        assert name in visible(page_of(path))
        told = json.loads(run("export", path, "--json")[1])
        assert name in told["text"][0] and told["baseline"]["batch_size"] == 32

    def test_the_list_of_runs_has_the_answer_of_each_kind_of_device(self, run, tmp_path, monkeypatch):
        monkeypatch.setenv("TFMON_RECORDINGS", str(tmp_path / "recordings"))
        (tmp_path / "sweeps").mkdir()
        swept(tmp_path / "sweeps" / "x.sweep", {"batch_size": (16, 64)}, kinds=("cpu", "gpu"))
        listed = run("runs")[1]
        assert "best so far on cpu: batch_size=64" in listed and "; best so far on gpu: batch_size=64" in listed

    def test_a_last_line_that_is_cut_off_does_not_count(self, run, tmp_path):
        path = swept(tmp_path / "night.sweep")
        path.write_text(path.read_text()[:-20])
        assert run("export", path, "--markdown")[0] == 0
