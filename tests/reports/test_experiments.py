"""The results of a crossover and a tuning, in text and JSON."""

from support.tunings import tried as attempt_of
from support.tunings import tuning
from support.ui import Demo

from tfmon.analysis.analysis import Analysis, analyse
from tfmon.model.readings import Estimate
from tfmon.model.series import KEPT, REFUSED, REVERTED, STOPPED, Attempt
from tfmon.model.spec import LaneSpec
from tfmon.reports.race import to_text
from tfmon.reports.series_json import series_to_json


def found(demo: Demo) -> Analysis:
    return analyse(demo.session.snapshot())


def tuned(*attempts: Attempt, **more) -> Demo:
    demo = Demo([LaneSpec("cpu")]).go().race(8)
    demo.session.advance_series(tuning("cpu", everything=True, attempts=attempts, over=True, **more))
    return demo


def attempt(change: dict, outcome: str, gain: float | None = None, reason: str = "") -> Attempt:
    before = {"batch_size": 20, "prefetch": "off", "cache": False, "xla": False}
    estimate = None if gain is None else Estimate(gain, gain - 0.05, gain + 0.05, 6)
    return attempt_of(
        "cpu",
        before,
        {**before, **change},
        change={"bottleneck": "input"},
        outcome=outcome,
        gain=estimate,
        refused=reason,
    )


SERIES = (
    attempt({"cache": True}, KEPT, 1.5),
    attempt({"prefetch": "auto"}, REVERTED, 1.0),
    attempt({"xla": True}, REFUSED, reason="no XLA here"),
)


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
