"""The result: every documented key, with the reason for every unknown value."""

import json
import math
import sys

import pytest
from support.events import SECOND, ended, phase, started, window
from support.results import to_json
from support.ui import Demo

from tfmon.analysis.analysis import analyse
from tfmon.model.event_base import Event
from tfmon.model.events import LaneEnded, RecordingChanged
from tfmon.model.knobs import COMMON
from tfmon.model.lane_events import RACING, NotMeasured, Progressed
from tfmon.model.race import TURNS, Machine, Race, RecordingState
from tfmon.model.readings import Missing, TreeSample
from tfmon.model.session import Session
from tfmon.model.spec import LaneSpec, name_lanes
from tfmon.reports.race_report import to_text
from tfmon.reports.text import fitted


class Raced:
    """A session with a lane that was fed by hand."""

    def __init__(self, lane: str = "cpu") -> None:
        machine = Machine("node7", "Linux", "AMD EPYC 9554", 16, 8.0, 2**37, ("NVIDIA H200",))
        self.session = Session(machine, lambda: 100 * SECOND)
        self.session.begin(Race(scenario="net", title="A net", knobs=COMMON), name_lanes([LaneSpec(lane)]))
        self.session.start_clock(SECOND)

    def tell(self, *events: Event) -> None:
        for event in events:
            self.session.accept(event)

    def json(self) -> dict:
        """The object as a reader gets it."""
        return json.loads(json.dumps(to_json(analyse(self.session.snapshot())), allow_nan=False))

    def lane(self) -> dict:
        return self.json()["lanes"][0]

    def text(self) -> str:
        return to_text(analyse(self.session.snapshot()))


def nulls(value: object, at: str = "") -> set[str]:
    if isinstance(value, dict):
        return {found for key, item in value.items() for found in nulls(item, f"{at}.{key}".strip("."))}
    return {at} if value is None else set()


def sample(at_s: int, cpu_pct: float | Missing = 150.0, private_bytes: float | Missing = 3e8) -> TreeSample:
    at_ns = at_s * SECOND
    return TreeSample(lane="cpu", at_ns=at_ns, cpu_pct=cpu_pct, private_bytes=private_bytes, processes=1)


def test_a_race_that_ends_while_its_lane_starts_again_was_as_long_and_has_no_memory_of_that_process():
    raced = Raced()
    raced.tell(phase(RACING, SECOND), window(3 * SECOND, SECOND), *map(sample, (2, 3, 4)))
    assert raced.lane()["private_bytes"] == 3e8
    raced.tell(started(5 * SECOND), sample(6, 9.0, 9e6))
    raced.tell(LaneEnded(lane="cpu", at_ns=7 * SECOND, exit_code=None, signal="SIGTERM", requested=True))
    assert (raced.json()["seconds"], raced.lane()["private_bytes"]) == (2.0, None)
    assert raced.lane()["missing"]["private_bytes"] == "not sampled while the lane raced"


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("lanes", [2, 6])
def test_the_text_fits_the_terminal_and_breaks_no_word(monkeypatch, width, lanes):
    specs = [LaneSpec("cpu", {"prefetch": "off", "batch_size": 2**power}) for power in range(lanes)]
    demo = Demo(specs, mode="turns").go().race(40)
    demo.apply(demo.names[0], "prefetch", "auto")
    wide = to_text(analyse(demo.session.snapshot()))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    text = fitted(to_text(analyse(demo.session.snapshot())))
    assert max(map(len, text.splitlines())) <= width
    assert {*wide.split()} - {"lane", "time"} <= {*text.split()}, "but for the heads of the first columns"
    assert "A prefetch off → auto" in text


@pytest.mark.parametrize("device", ["cpu", "gpu:0"])
def test_every_unknown_is_null_and_named_with_its_reason(device):
    lane = Raced(device).lane()
    assert nulls({key: value for key, value in lane.items() if key != "error"}) == set(lane["missing"])
    assert all(isinstance(reason, str) and reason for reason in lane["missing"].values())
    never_zero = {"examples_per_s", "step_ms.p50", "loss.first", "loss.last", "private_bytes", "cpu_pct"}
    assert never_zero <= set(lane["missing"])


def test_what_is_missing_keeps_its_own_reason():
    raced = Raced()
    raced.tell(sample(0, Missing("first sample"), Missing("hidden by the kernel")), window(loss=None))
    missing = raced.lane()["missing"]
    assert missing["private_bytes"] == "hidden by the kernel"
    assert missing["loss.first"] == "no loss was read"
    assert missing["bottleneck"] == missing["time_pct.input"] == "it needs 3 steady windows, and there were 1"
    for field in ("gpu_busy_pct", "gpu_memory_used_bytes", "gpu_memory_allocated_bytes"):
        assert missing[field] == "no GPU in this lane"


@pytest.mark.parametrize("loss", [math.nan, -math.inf])
def test_a_loss_that_is_no_number_is_null_and_said_so(loss):
    raced = Raced()
    raced.tell(window(loss=2.0), window(loss=loss))
    lane = raced.lane()
    assert lane["loss"] == {"first": 2.0, "last": None}
    assert lane["missing"]["loss.last"] == f"it is {loss}"


def test_a_lane_that_was_ended_before_it_trained_says_what_it_was_doing():
    raced = Raced()
    raced.tell(phase("importing"), ended(0, requested=True))
    assert "cpu: ended while it was loading TensorFlow" in raced.text()


def test_it_says_where_the_race_was_recorded_and_why_no_longer():
    raced = Raced()
    told = raced.json()
    assert (told["recording"], told["recording_stopped"]) == (None, None)
    raced.tell(RecordingChanged(at_ns=1, recording=RecordingState("/there/x.jsonl", 5, "disk full")))
    told = raced.json()
    assert (told["recording"], told["recording_stopped"]) == ("/there/x.jsonl", "disk full")
    text = raced.text()
    assert text.endswith("\nrecorded in /there/x.jsonl until 0:00, and no further: disk full")
    assert text.count("record") == 1


def test_a_script_tells_its_command_and_how_far_its_fit_came():
    raced = Raced()
    raced.tell(started(0, command="python train.py"))
    assert raced.lane()["fit"] is None
    assert raced.lane()["missing"]["fit"] == "no Keras fit was seen"
    metrics = {"loss": 0.5, "accuracy": math.nan}
    told = {"doing": "fit", "epoch": 2, "epochs": 3, "batch": 5, "batches": 10, "metrics": metrics}
    raced.tell(Progressed(lane="cpu", at_ns=0, validation_ns=SECOND, **told))
    lane = raced.lane()
    assert lane["command"] == "python train.py"
    assert (lane["fit"]["epoch"], lane["fit"]["batches"], lane["fit"]["validation_s"]) == (2, 10, 1.0)
    assert lane["fit"]["metrics"] == {"loss": 0.5, "accuracy": None}


def test_no_count_or_time_of_steps_is_shown_of_a_lane_whose_steps_are_unknown():
    demo = Demo([LaneSpec("cpu")], mode=TURNS).go().race(6)
    known = to_json(analyse(demo.session.snapshot()))["lanes"][0]
    assert known["steps"] and known["measured_steps"] and known["step_ms"]["p50"]
    reason = "several optimizers update the weights in no steady order"
    demo.session.accept(NotMeasured(lane="cpu", at_ns=demo.clock(), what="steps", reason=reason))
    analysis = analyse(demo.session.snapshot())
    lane = to_json(analysis)["lanes"][0]
    unknown = (lane["steps"], lane["measured_steps"], lane["step_ms"]["p50"], lane["waits"])
    assert unknown == (None, None, None, None)
    assert lane["missing"]["steps"] == lane["missing"]["step_ms.p50"] == reason
    assert "steps/s" not in to_text(analysis) and "p50" not in to_text(analysis)
    assert "steps n/a" in analysis.verdict.answer
