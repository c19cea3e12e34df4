"""What a crossover and a tuning came to, in text and JSON."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from support.recordings import record
from support.ui import Demo, crossover_demo

from tfmon.analysis.analysis import Analysis, analyse
from tfmon.model.events import RecordingChanged
from tfmon.model.race import RecordingState
from tfmon.model.readings import Estimate
from tfmon.model.series import KEPT, REFUSED, REVERTED, STOPPED, Attempt, TuneState
from tfmon.model.spec import LaneSpec
from tfmon.reports.race import to_text
from tfmon.reports.series_json import series_to_json

from .pages import page_of


def found(demo: Demo) -> Analysis:
    return analyse(demo.session.snapshot())


def test_the_crossover_in_json():
    told = json.loads(json.dumps(series_to_json(found(crossover_demo())), allow_nan=False))
    assert (told["schema"], told["knob"], told["interrupted"]) == (8, "batch_size", None)
    assert [lane["name"] for lane in told["lanes"]] == ["cpu", "gpu:0"]
    assert [point["value"] for point in told["values"]] == [8, 16, 32, 64, 128, 256]
    *measured, refused = told["values"]
    for point in measured:
        low, high = point["first"]["examples_per_s_ci95"]
        assert low < point["first"]["examples_per_s"] < high
        assert point["ratio_ci95"][0] < point["ratio"] < point["ratio_ci95"][1]
        assert point["pairs"] >= 5 and point["reason"] is None
    assert (refused["ratio"], refused["pairs"], refused["reason"]) == (None, 0, "not possible here")
    (crossing,) = told["crossings"]
    assert crossing["between"][0] <= crossing["about"] <= crossing["between"][1]
    assert (crossing["ahead_above"], crossing["ahead_below"]) == ("gpu:0", "cpu")
    assert "gpu:0 overtakes cpu" in told["text"]


def test_the_crossover_in_text_and_an_interrupted_one():
    demo = crossover_demo()
    demo.session.accept(RecordingChanged(at_ns=1, recording=RecordingState("/there/x.jsonl")))
    lines = to_text(found(demo)).splitlines()
    axis = next(line for line in lines if "└" in line)
    assert axis.count("▲") == 1
    head = next(line for line in lines if line.endswith("ahead"))
    assert head.split() == ["batch", "size", "C", "ex/s", "G", "ex/s", "ahead"]
    rows = lines[lines.index(head) + 1 :]
    assert rows[0].split()[0] == "8" and "  C " in rows[0] and rows[0].endswith("pairs)")
    factor, low, high = map(float, re.search(r"  G (\S+)× \((\S+) to (\S+),", rows[4]).groups())
    assert 1 < low < factor < high
    assert rows[5].split()[:3] == ["256", "–", "–"] and rows[5].endswith("not possible here")
    assert {"C: cpu", "G: gpu:0"} <= {*lines}
    answer = next(at for at, line in enumerate(lines) if line.startswith("gpu:0 overtakes cpu at a batch size of"))
    assert lines[answer + 1 :] == ["all is measured", "recorded in /there/x.jsonl"]
    demo.session.set_experiment(replace(demo.session.snapshot().experiment, ended="stopped"))
    assert series_to_json(found(demo))["interrupted"] == "stopped"
    assert "stopped; these are the values it had" in to_text(found(demo)).splitlines()


def tuned(*attempts: Attempt, **more) -> Demo:
    demo = Demo([LaneSpec("cpu")]).go().race(8)
    demo.session.set_experiment(TuneState("cpu", everything=True, attempts=attempts, over=True, **more))
    return demo


def attempt(change: dict, outcome: str, gain: float | None = None, reason: str = "") -> Attempt:
    before = {"batch_size": 20, "prefetch": "off", "cache": False, "xla": False}
    estimate = None if gain is None else Estimate(gain, gain - 0.05, gain + 0.05, 6)
    return Attempt(
        "cpu", before, {**before, **change}, bottleneck="input", outcome=outcome, gain=estimate, reason=reason
    )


SERIES = (
    attempt({"cache": True}, KEPT, 1.5),
    attempt({"prefetch": "auto"}, REVERTED, 1.0),
    attempt({"xla": True}, REFUSED, reason="no XLA here"),
)


def test_the_tuning_in_json():
    told = json.loads(json.dumps(series_to_json(found(tuned(*SERIES))), allow_nan=False))
    assert (told["schema"], told["lane"]["name"], told["error"], told["interrupted"]) == (8, "cpu", None, None)
    assert told["began_with"]["cache"] is False
    cache, prefetch, xla = told["attempts"]
    assert (cache["tried"], cache["settings"], cache["against"]) == ("cache on", {"cache": True}, "input")
    assert (cache["outcome"], cache["gain"], cache["pairs"]) == ("kept", 1.5, 6)
    assert cache["gain_ci95"] == pytest.approx([1.45, 1.55])
    assert (prefetch["outcome"], prefetch["reason"]) == ("reverted", None)
    assert (xla["outcome"], xla["gain"], xla["reason"]) == ("refused", None, "no XLA here")
    assert told["best"]["settings"] == {"cache": True} and told["best"]["gain"] == 1.5
    assert any(".cache()" in line for line in told["best"]["code"])
    analysed = found(tuned(*SERIES)).lane("cpu")
    assert told["bottleneck"] == analysed.bottleneck.kind and told["bottleneck_text"] == analysed.bottleneck.text


def test_the_tuning_in_text():
    lines = to_text(found(tuned(*SERIES))).splitlines()
    assert lines[0].split() == ["tried", "throughput", "pairs", "outcome"]
    assert lines[1].split()[:3] == ["cache", "on", "+50"] and lines[1].endswith("kept")
    assert lines[2].endswith("reverted")
    assert lines[3].endswith("not possible: no XLA here")
    best = lines.index("best: cache=on: +50 % (CI +45 to +55) in all")
    assert ".cache()" in lines[best + 1]
    assert lines[best + 2] == "no other knob is known to help"


def test_a_tuning_that_kept_nothing_or_ended_early_or_failed_or_tried_nothing_says_so():
    lines = to_text(found(tuned(SERIES[1], ended="stopped"))).splitlines()
    assert lines[-2:] == ["best of what was tried: the settings it began with", "ended early: stopped"]
    lines = to_text(found(tuned(attempt({"xla": True}, STOPPED), ended="stopped"))).splitlines()
    assert lines[-2:] == ["no change was measured to the end", "ended early: stopped"]
    assert to_text(found(tuned())).splitlines()[-2] == "nothing was tried"
    demo = tuned(*SERIES)
    demo.fail("cpu")
    assert "keras_hub" in series_to_json(found(demo))["error"]
    assert "keras_hub" in to_text(found(demo))


@pytest.mark.parametrize(
    ("happen", "answer", "command"),
    [
        (
            crossover_demo,
            "gpu:0 overtakes cpu at a batch size of",
            "tfmon crossover small-dense --knob batch_size",
        ),
        (lambda: tuned(*SERIES), "best: cache=on: +50", "tfmon tune small-dense --lane cpu"),
    ],
)
def test_an_export_has_the_answer_what_was_tried_and_the_command(tmp_path, run, happen, answer, command):
    record(tmp_path / "race.jsonl", happen)
    marked = run("export", tmp_path / "race.jsonl", "--markdown")[1]
    assert marked.startswith(f"**{answer}") and "### What was tried and changed" in marked
    assert command in marked, marked
    told = json.loads(run("export", tmp_path / "race.jsonl", "--json")[1])["result"]
    assert told["verdict"]["text"].startswith(answer)
    rows = (told["tuning"] or {}).get("attempts") or told["crossover"]["values"]
    assert len(rows) > 2 and sum(told[name] is None for name in ("tuning", "crossover")) == 1
    page = page_of(tmp_path / "race.jsonl")
    assert f'<p class="verdict">{answer}' in page and "<h2>What was tried and changed</h2>" in page
