"""What is told of a lane by itself; and the end of a script's race: time to finish, losses that differ."""

from __future__ import annotations

import itertools
import math
import random
import re
from dataclasses import replace

import pytest
from support.events import MS, SECOND, ended, lane, phase, window
from support.ui import Demo, changed_ten_times

from tfmon.analysis.analysis import analyse
from tfmon.analysis.finish import finish_lines, seconds_left, time_to_finish
from tfmon.analysis.health import concerns, trained_text, waits_of
from tfmon.model.events import LaneEnded, LaneStarted
from tfmon.model.lane_events import Progressed, Window
from tfmon.model.lane_reducer import advance
from tfmon.model.lane_state import DONE, PAUSED, RACING, LaneState
from tfmon.model.lane_statistics import MOST_POINTS, LossCurve, Measurements
from tfmon.model.spec import LaneSpec
from tfmon.model.window_sums import WindowSums, count

STEP_MS = 20


def raced(*events, times_ms=(STEP_MS,) * 100, loss: float | None = 0.5):
    """Return a lane that has trained steps of these times until the second second."""
    bins = count(one * MS for one in times_ms)
    steady = window(2 * SECOND, histogram=bins, steps=len(times_ms), step=len(times_ms), loss=loss)
    return lane("cpu", phase(RACING), steady, *events)


def ids(state, at_s: float = 2.1) -> list[str]:
    return [one.id for one in concerns(state, round(at_s * SECOND))]


@pytest.mark.parametrize(
    ("at_s", "longest_ms", "still"),
    [(6.9, STEP_MS, False), (7.1, STEP_MS, True), (11.0, 2_000, False), (12.5, 2_000, True)],
)
def test_a_lane_stands_still_from_five_seconds_and_five_times_its_longest_step_on(at_s, longest_ms, still):
    state = raced(times_ms=[STEP_MS] * 99 + [longest_ms])
    assert ("stands_still" in ids(state, at_s)) is still


def test_its_text_says_for_how_long():
    told = trained_text(raced(), 9 * SECOND)
    assert told.startswith("cpu: no step has ended for 7.0 s; the longest before took 20.1 ms; 100 steps")


@pytest.mark.parametrize(
    "event",
    [
        Progressed(lane="cpu", at_ns=2 * SECOND, doing="validation"),
        Progressed(lane="cpu", at_ns=2 * SECOND, doing="training", epoch=1, batch=100, batches=100),
        phase(PAUSED, 2 * SECOND),
        phase(DONE, 60 * SECOND),
    ],
)
def test_a_lane_that_does_something_else_or_has_ended_by_itself_does_not_stand_still(event):
    assert not ids(raced(event), 100.0)


def test_a_lane_that_was_ended_while_it_stood_still_is_told_so_afterwards():
    state = raced(ended(signal="SIGKILL"))
    assert [one.text for one in concerns(state, 100 * SECOND)] == [
        "no step has ended for 38.0 s; the longest before took 20.1 ms"
    ]


def test_a_loss_is_lost_from_the_first_step_that_shows_it_until_one_is_a_number():
    lost = window(3 * SECOND, step=110, loss=math.nan), window(4 * SECOND, step=120, loss=math.inf)
    state = raced(*lost)
    assert ids(state) == ["loss_lost"]
    assert "the loss is inf, from step 110 on at the latest; a lower learning rate" in trained_text(
        state, 4 * SECOND
    )
    assert not ids(raced(*lost, window(5 * SECOND, step=130, loss=2.0)))


def test_waits_are_the_steps_over_ten_times_the_median_and_told_from_a_twentieth_of_the_time_on():
    state = raced(times_ms=[STEP_MS] * 97 + [190, 300, 4_000])
    found = waits_of(state)
    assert (found.steps, round(found.longest_s, 1), round(found.share, 2)) == (2, 4.0, 0.67)
    assert ids(state) == ["waits"]
    assert not ids(raced(times_ms=[STEP_MS] * 999 + [250]))
    assert waits_of(lane("cpu", phase(RACING))) is None


@pytest.fixture
def race():
    """Return what lets two lanes of a script train to their end."""

    def run(*lanes: tuple[float, float], steps=(400, 400), batches=(32, 32), epochs: int = 3):
        demo = Demo([LaneSpec("cpu"), LaneSpec("cpu")])
        for name, (seconds, apart), last, batch in zip(demo.names, lanes, steps, batches, strict=True):
            noise, now_ns = random.Random(name), demo.clock()
            started = LaneStarted(lane=name, at_ns=now_ns, pid=1, settings={}, command="python train.py")
            demo.session.accept(started)
            for step in range(10, last + 1, 10):
                demo.session.accept(
                    Window(
                        lane=name, at_ns=now_ns + step * SECOND, span_ns=round(seconds * SECOND * 10 / last),
                        steps=10, examples=10 * batch, step=step, input_ns=0, call_ns=0, sync_ns=0, report_ns=0,
                        longest_ns=1, histogram={}, settings={"batch_size": batch},
                        loss=2 * math.exp(-step / 200) + apart + noise.gauss(0, 0.05),
                    )
                )  # fmt: skip
            demo.session.accept(Progressed(lane=name, at_ns=demo.clock(), doing="fit", epochs_done=epochs))
            ended = LaneEnded(lane=name, at_ns=now_ns, exit_code=0, signal=None, requested=False)
            demo.session.accept(ended)
        found = analyse(demo.session.snapshot())
        lines = finish_lines(found.snapshot)
        assert found.outcome.split(";")[0] == (
            lines[0].split(" (")[0] if "sooner" in lines[0] else found.verdict.text
        )
        return lines

    return run


def test_time_to_finish_and_losses_that_agree(race):
    (line,) = race((41.2, 0.0), (18.0, 0.0))
    assert line.startswith(
        "cpu #2 finished the same 3 epochs 2.3× sooner than cpu #1 (cpu #1 41.2 s, cpu #2 18.0 s of training); "
        "loss at the end: cpu #1 "
    )


def test_losses_apart_are_warned_of(race):
    _, warning = race((41.2, 0.0), (18.0, 0.4))
    assert re.match(
        r"losses of cpu #1 and cpu #2 at the same step differ by 0\.[34]\d+, and within a lane", warning
    )


def test_a_loss_that_is_lost_in_one_lane_is_a_difference_and_in_both_is_none(race):
    _, warning = race((41.2, 0.0), (18.0, math.nan))
    assert warning == "the loss of cpu #2 is no longer finite, and that of cpu #1 is: they train differently"
    assert len(race((41.2, math.nan), (18.0, math.inf))) == 1


def test_scripts_that_trained_nothing_did_not_finish_sooner():
    lanes = [LaneState(LaneSpec("cpu", name=name), phase=DONE, command="python train.py") for name in "AB"]
    assert finish_lines(replace(Demo([LaneSpec("cpu")]).session.snapshot(), lanes=tuple(lanes))) == ()


def test_other_amounts_of_work_have_no_time_to_finish(race):
    (line,) = race((41.2, 0.0), (18.0, 0.0), steps=(400, 200))
    expected = "no time to finish: the lanes trained different numbers of examples (cpu #1 12 800, cpu #2 6 400)"
    assert line == expected


@pytest.mark.parametrize(("epochs", "work"), [(7, "7 epochs"), (0, "12 800 examples")])
def test_the_same_examples_in_batches_of_two_sizes_say_who_finished_sooner(race, epochs, work):
    (line,) = race((41.2, 0.0), (18.0, 0.4), steps=(400, 200), batches=(32, 64), epochs=epochs)
    one, other = "cpu batch_size=32 #1", "cpu batch_size=64 #2"
    assert line.startswith(
        f"{other} finished the same {work} 2.3× sooner than {one} ({one} 41.2 s, {other} 18.0 s"
    )


def test_whose_settings_changed_on_the_way_is_said_with_who_finished_sooner():
    known = changed_ten_times().session.snapshot()
    lanes = tuple(replace(one, command="python train.py", phase=DONE, examples=9_000) for one in known.lanes)
    told = time_to_finish(replace(known, lanes=lanes), brief=True)
    assert re.search(
        r" finished the same 9 000 examples .* sooner than .*; settings of C changed on the way$", told
    )


def test_a_loss_curve_stays_small_and_covers_the_race():
    curve = LossCurve()
    for step in range(10_000):
        curve = curve.plus(step, float(step))
    steps = [step for step, _ in curve.points]
    assert MOST_POINTS // 2 <= len(steps) <= MOST_POINTS
    assert steps[0] == 0 and steps[-1] > 9_800
    assert len({later - earlier for earlier, later in itertools.pairwise(steps)}) == 1


def test_the_time_left_includes_what_epochs_take_besides_their_steps():
    measurements = Measurements(steady=WindowSums(steps=100, span_ns=SECOND))
    state = LaneState(LaneSpec("cpu"), measurements=measurements)
    assert seconds_left(state) is None
    progress = {"doing": "fit", "epoch": 2, "epochs": 3, "batch": 50, "batches": 100, "epochs_done": 1}
    state = advance(state, Progressed(at_ns=0, validation_ns=2 * SECOND, between_ns=SECOND, **progress))
    assert seconds_left(state) == pytest.approx(0.5 + 1 + 2 * 3)
    assert seconds_left(replace(state, progress=replace(state.progress, batches=None))) is None
