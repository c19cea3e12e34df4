"""The training loop, driven through its mailbox as a child's inbox does."""

from __future__ import annotations

import gc
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tfmon.trainer.scenario import ScenarioError
from tfmon.trainer.control import SLICE_START_NS, WINDOW_NS

from tfmon.model.lane_events import Finished, KnobApplied, KnobRefused, Profiled, ProfileFailed, SliceEnded, Window
from tfmon.model.lane_state import PAUSED, RACING, READY, SLICE_START, WARMING_UP
from tfmon.model.requests import Pause, Profile, Run, RunSlice, SetKnob, Stop
from tfmon.trainer import Scenario, step_clock
from tfmon.trainer.control import PROFILE
from tfmon.trainer.step_clock import COMPILE, TRACE
from trainer.running import DEADLINE_S, Numbers, Running, Steps

pytestmark = pytest.mark.trainer

Start = Callable[..., Running]


BUSY_MACHINE = {COMPILE, "garbage collection"}
"""Marks that a step gets which the machine held up."""


class Uneven(Numbers):
    """Every fourth batch is a short one."""

    def batches(self, examples: Any, batch_size: int) -> Any:
        return examples.take(4 * batch_size - 3).batch(batch_size).repeat()


class UnevenFeatures(Uneven):
    """The same with named features."""

    def data(self) -> Any:
        return {"number": np.arange(1_000, dtype=np.float32)}


class NoSevens(Numbers):
    """No pipeline can be made for a batch of seven."""

    def batches(self, examples: Any, batch_size: int) -> Any:
        if batch_size == 7:
            raise ValueError("not seven")
        return super().batches(examples, batch_size)


class HardToPrepare(Numbers):
    """The pipeline for a batch of 64 is made when the test says so."""

    go_on = threading.Event()

    def batches(self, examples: Any, batch_size: int) -> Any:
        if batch_size == 64:
            assert self.go_on.wait(DEADLINE_S)
        return super().batches(examples, batch_size)


class Once(Numbers):
    """Data that end."""

    def batches(self, examples: Any, batch_size: int) -> Any:
        return examples.batch(batch_size)


def beside(window: Window) -> int:
    """Count the steps before a window that are in none of its other figures: sampled, or under the profiler."""
    return round(window.sampled_examples * window.steps / window.examples)


def follow_each_other(windows: Sequence[Window]) -> None:
    """Check that every window begins where the one before ended, or steps that are left out, and counts on."""
    for before, after in itertools.pairwise(windows):
        sampled = bool(after.sampled_examples)
        assert (after.at_ns - after.span_ns == before.at_ns) is not sampled
        assert after.at_ns - after.span_ns >= before.at_ns
        assert after.step == before.step + after.steps + beside(after)


def steps_in(window: Window) -> int:
    """Count a window's steps, and those before it that are left out."""
    return window.steps + beside(window)


def stopped(loop: Running) -> int:
    """Stop a loop; return how many steps it raced."""
    loop.close()
    assert loop.error is None
    (finished,) = loop.reporter.of(Finished)
    return finished.steps


# ---------------------------------------------------------------- start, end and pauses


def test_a_lane_warms_up_and_waits_for_the_start_signal(running: Start) -> None:
    step = Steps()
    loop = running(step)
    loop.until_ready()
    assert loop.phases == [WARMING_UP, READY]
    assert step.batches
    assert not loop.windows
    assert stopped(loop) == 0


def test_it_finishes_after_exactly_the_steps_it_was_asked_for(running: Start) -> None:
    step = Steps()
    loop = running(step, steps=257)
    loop.until_ready()
    warm_up = len(step.batches)
    loop.tell(Run())
    assert loop.until_event(Finished).steps == 257
    assert sum(map(steps_in, loop.windows)) == 257
    assert len(step.batches) == warm_up + 257


def test_a_knob_change_does_not_change_how_many_steps_are_done(running: Start) -> None:
    step = Steps()
    loop = running(step, steps=1)
    loop.until_ready()
    warm_up = len(step.batches)
    loop.tell(SetKnob(request=1, knob="batch_size", value=20))
    loop.tell(Run())
    assert loop.until_event(Finished).steps == 1
    assert len(step.batches) == warm_up + 1


def test_hold_stops_the_steps_and_run_goes_on_with_the_same_count(running: Start) -> None:
    step = Steps()
    loop = running(step)
    loop.until_ready()
    warm_up = len(step.batches)
    loop.tell(Run())
    loop.until_windows(1)
    loop.tell(Pause())
    loop.until(lambda: loop.phases[-1] == PAUSED, "a pause")
    held = loop.windows[-1]
    assert len(step.batches) - warm_up == held.step
    run_ns = loop.tell(Run())
    after = loop.until_windows(1)[-1]
    assert after.step == held.step + steps_in(after)
    assert after.at_ns - after.span_ns >= run_ns
    assert after.marks == ("pause",)
    assert loop.phases[-3:] == [RACING, PAUSED, RACING]


def test_the_start_signal_is_no_pause(running: Start) -> None:
    loop = running(Steps())
    loop.until_ready()
    loop.tell(Run())
    assert loop.until_windows(1)[0].marks == ()


def test_stop_ends_a_lane_that_trains(running: Start) -> None:
    step = Steps()
    loop = running(step)
    loop.until_ready()
    warm_up = len(step.batches)
    loop.tell(Run())
    loop.until_windows(1)
    steps = stopped(loop)
    assert steps == len(step.batches) - warm_up == loop.windows[-1].step


def test_stop_ends_a_lane_that_warms_up(running: Start) -> None:
    loop = running(Steps())
    loop.tell(Stop())
    assert loop.until_event(Finished).steps == 0


def test_data_that_end_are_the_scenarios_fault(running: Start) -> None:
    loop = running(Steps(), Once)
    with pytest.raises(ScenarioError, match="the data ended"):
        loop.until_ready()


# ---------------------------------------------------------------- windows


def test_windows_leave_nothing_out_and_count_nothing_twice(running: Start) -> None:
    step = Steps()
    loop = running(step, prefetch="auto")
    loop.until_ready()
    warm_up = len(step.batches)
    loop.tell(Run())
    loop.until_windows(4)
    stopped(loop)
    windows = loop.windows
    follow_each_other(windows)
    assert windows[0].step == steps_in(windows[0])
    assert windows[-1].step == len(step.batches) - warm_up
    examples = sum(window.examples + window.sampled_examples for window in windows)
    assert examples == sum(map(len, step.batches[warm_up:]))
    for window in windows:
        assert sum(window.histogram.values()) == window.steps
        assert window.examples == 10 * window.steps
        shares = window.input_ns + window.call_ns + window.sync_ns + window.report_ns
        assert 0 < shares <= window.span_ns
        assert min(window.input_ns, window.call_ns, window.sync_ns, window.report_ns) >= 0
        assert window.longest_ns <= window.span_ns
        assert window.settings == {"batch_size": 10, "prefetch": "auto"}
    assert all(window.span_ns >= WINDOW_NS for window in windows[:-1])


def test_a_window_that_is_refused_is_part_of_the_next_one(running: Start) -> None:
    step = Steps()
    loop = running(step)
    loop.until_ready()
    warm_up = len(step.batches)
    loop.tell(Run())
    loop.until_windows(2)
    loop.reporter.refuse = 3
    loop.until(lambda: len(loop.reporter.refused) == 3, "three refusals")
    loop.until_windows(2)
    stopped(loop)
    follow_each_other(loop.windows)
    assert loop.windows[-1].step == len(step.batches) - warm_up
    for window in loop.windows:
        assert sum(window.histogram.values()) == window.steps
        assert window.examples == 10 * window.steps
    merged = next(window for window in loop.windows if window.at_ns > loop.reporter.refused[-1].at_ns)
    assert merged.at_ns - merged.span_ns == loop.reporter.refused[0].at_ns - loop.reporter.refused[0].span_ns


def test_a_refused_window_is_not_tried_again_before_another_one_is_due(running: Start) -> None:
    loop = running(Steps())
    loop.until_ready()
    loop.tell(Run())
    loop.until_windows(1)
    loop.reporter.refuse = 3
    loop.until(lambda: len(loop.reporter.refused) == 3, "three refusals")
    for before, after in itertools.pairwise(loop.reporter.refused):
        assert after.at_ns - before.at_ns >= WINDOW_NS


@pytest.mark.parametrize("scenario", [Uneven, UnevenFeatures])
def test_batches_of_different_sizes_are_counted_one_by_one(running: Start, scenario: type[Scenario]) -> None:
    sizes: list[int] = []

    def step(batch: Any) -> np.float32:
        sizes.append(len(batch["number"] if isinstance(batch, dict) else batch))
        return np.float32(0)

    loop = running(step, scenario)
    loop.until_ready()
    warm_up = len(sizes)
    loop.tell(Run())
    loop.until_windows(2)
    stopped(loop)
    assert set(sizes) == {10, 7}
    examples = sum(window.examples + window.sampled_examples for window in loop.windows)
    assert examples == sum(sizes[warm_up:])


def test_the_loss_of_a_window_is_that_of_its_last_step(running: Start) -> None:
    loop = running(Steps())
    loop.until_ready()
    loop.tell(Run())
    first, second = loop.until_windows(2)[:2]
    assert first.loss is not None and second.loss is not None
    assert second.loss - first.loss == steps_in(second)


def test_a_step_without_a_loss_has_none(running: Start) -> None:
    loop = running(lambda _batch: None)
    loop.until_ready()
    loop.tell(Run())
    assert loop.until_windows(1)[0].loss is None


def test_a_long_garbage_collection_marks_its_window(running: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = running(Steps())
    loop.until_ready()
    loop.tell(Run())
    loop.until_windows(1)
    monkeypatch.setattr(step_clock, "LONG_COLLECTION_NS", -1)
    gc.collect()
    monkeypatch.undo()
    marked = loop.until_event(Window, lambda window: "garbage collection" in window.marks)
    loop.until_event(Window, lambda window: window.at_ns > marked.at_ns and not window.marks)


def test_windows_are_marked_while_pipelines_are_prepared(running: Start) -> None:
    HardToPrepare.go_on.clear()
    loop = running(Steps(), HardToPrepare)
    loop.until_ready()
    loop.tell(Run())
    loop.tell(SetKnob(request=1, knob="batch_size", value=32))
    applied = loop.until_event(KnobApplied)
    after = [window for window in loop.until_windows(3) if window.at_ns > applied.at_ns]
    HardToPrepare.go_on.set()
    assert len(after) >= 2
    assert all("preparing pipelines" in window.marks for window in after)
    loop.until_event(Window, lambda window: window.at_ns > after[-1].at_ns and not window.marks)


# ---------------------------------------------------------------- knobs


@pytest.mark.parametrize(("knob", "value"), [("batch_size", 20), ("prefetch", 2), ("prefetch", "auto")])
def test_a_knob_takes_effect_at_a_step_boundary(running: Start, knob: str, value: int | str) -> None:
    step = Steps()
    loop = running(step)
    loop.until_ready()
    warm_up = len(step.batches)
    loop.tell(Run())
    loop.until_windows(1)
    asked_ns = loop.tell(SetKnob(request=5, knob=knob, value=value))
    applied = loop.until_event(KnobApplied)
    changed = loop.until_event(Window, lambda window: window.at_ns >= applied.at_ns)
    loop.until_windows(1)
    stopped(loop)
    assert (applied.request, applied.knob, applied.value) == (5, knob, value)
    assert applied.at_ns > asked_ns
    assert 0 < applied.gap_ns < applied.at_ns
    assert "knob change" in changed.marks
    assert applied.step == changed.step - changed.steps + 1
    for window in loop.windows:
        in_force = {"batch_size": 10, "prefetch": "off"}
        if window.step >= applied.step:
            in_force[knob] = value
        assert window.settings == in_force
        assert window.examples == window.steps * in_force["batch_size"]
    sizes = [len(batch) for batch in step.batches[warm_up:]]
    size = value if knob == "batch_size" else 10
    assert set(sizes[: applied.step - 1]) == {10}
    assert set(sizes[applied.step - 1 :]) == {size}
    follow_each_other(loop.windows)


def test_two_knobs_asked_for_at_once_are_both_in_force(running: Start) -> None:
    loop = running(Steps())
    loop.until_ready()
    loop.tell(Run())
    loop.tell(SetKnob(request=1, knob="batch_size", value=20))
    loop.tell(SetKnob(request=2, knob="prefetch", value=1))
    loop.until_event(KnobApplied, lambda event: event.request == 2)
    loop.until_windows(1)
    assert [event.request for event in loop.reporter.of(KnobApplied)] == [1, 2]
    assert loop.windows[-1].settings == {"batch_size": 20, "prefetch": 1}


def test_a_knob_that_is_set_and_set_back_at_once_is_as_it_was(running: Start) -> None:
    step = Steps()
    loop = running(step)
    loop.until_ready()
    loop.tell(Run())
    loop.tell(SetKnob(request=1, knob="batch_size", value=20))
    loop.tell(SetKnob(request=2, knob="batch_size", value=10))
    applied = loop.until_event(KnobApplied, lambda event: event.request == 2)
    loop.until_windows(2)
    stopped(loop)
    assert applied.value == 10
    last = loop.windows[-1]
    assert last.settings["batch_size"] == 10
    assert last.examples == 10 * last.steps
    assert len(step.batches[-1]) == 10


def test_a_wish_that_fails_leaves_nothing_behind_in_the_next_one(running: Start) -> None:
    step = Steps()
    loop = running(step, NoSevens)
    loop.until_ready()
    loop.tell(Run())
    loop.tell(SetKnob(request=1, knob="batch_size", value=7))
    loop.tell(SetKnob(request=2, knob="prefetch", value=2))
    loop.until_event(KnobRefused, lambda event: event.request == 1)
    loop.until(lambda: len(loop.reporter.of(KnobRefused) + loop.reporter.of(KnobApplied)) == 2, "two answers")
    loop.until_windows(2)
    stopped(loop)
    assert loop.windows[-1].settings["batch_size"] == len(step.batches[-1]) == 10


@pytest.mark.parametrize(
    ("scenario", "knob", "value", "reason"),
    [
        (Numbers, "batch_size", 1_001, "larger than the data; it can be at most 1000"),
        (Numbers, "batch_size", 0, "is not possible"),
        (Numbers, "prefetch", "often", "is not possible"),
        (Numbers, "colour", 1, "there is no knob 'colour'"),
        (NoSevens, "batch_size", 7, "it could not be made: ValueError: not seven"),
    ],
)
def test_a_knob_that_cannot_be_set_is_refused_and_the_training_goes_on(
    running: Start, scenario: type[Scenario], knob: str, value: int | str, reason: str
) -> None:
    loop = running(Steps(), scenario)
    loop.until_ready()
    loop.tell(Run())
    loop.tell(SetKnob(request=3, knob=knob, value=value))
    refused = loop.until_event(KnobRefused)
    assert (refused.request, refused.knob, refused.value) == (3, knob, value)
    assert reason in refused.reason
    window = loop.until_windows(1)[-1]
    assert window.settings == {"batch_size": 10, "prefetch": "off"}
    loop.tell(SetKnob(request=4, knob="batch_size", value=20))
    assert loop.until_event(KnobApplied).request == 4


def test_a_knob_set_before_the_start_has_a_gap_without_the_wait_for_it(running: Start) -> None:
    loop = running(Steps())
    loop.tell(SetKnob(request=1, knob="batch_size", value=20))
    loop.until_ready()
    run_ns = loop.tell(Run())
    applied = loop.until_event(KnobApplied)
    window = loop.until_event(Window, lambda window: window.at_ns >= applied.at_ns)
    assert applied.step == 1
    assert applied.at_ns - applied.gap_ns >= run_ns
    assert "knob change" in window.marks


def test_a_knob_set_in_a_pause_has_a_gap_without_the_pause(running: Start) -> None:
    loop = running(Steps(), NoSevens)
    loop.until_ready()
    loop.tell(Run())
    loop.until_windows(1)
    loop.tell(Pause())
    loop.until(lambda: loop.phases[-1] == PAUSED, "a pause")
    loop.tell(SetKnob(request=1, knob="batch_size", value=20))
    loop.tell(SetKnob(request=2, knob="batch_size", value=7))
    loop.until_event(KnobRefused)  # Of the second wish, so the pipeline of the first one is there.
    run_ns = loop.tell(Run())
    applied = loop.until_event(KnobApplied)
    window = loop.until_event(Window, lambda window: window.at_ns >= applied.at_ns)
    assert (applied.request, applied.value) == (1, 20)
    assert applied.at_ns - applied.gap_ns >= run_ns
    assert {"knob change", "pause"} <= set(window.marks)


def test_weights_and_optimizer_survive_knob_changes(running: Start, tf: Any) -> None:
    class FarAway(Scenario):
        """All examples are the same one, far off: every step brings the loss a little down, whatever the batch."""

        def data(self) -> Any:
            return np.ones((1_000, 4), np.float32), np.full((1_000, 1), 100, np.float32)

    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.Adam(1e-4), "mse")
    model.optimizer.build(model.trainable_variables)
    variables = [*model.variables, *model.optimizer.variables]
    signature = [tf.TensorSpec([None, 4]), tf.TensorSpec([None, 1])]
    step = tf.function(FarAway({}).step(model), input_signature=signature)
    loop = running(step, FarAway)
    loop.until_ready()
    warm_up = int(model.optimizer.iterations)
    loop.tell(Run())
    loop.until_windows(1)
    loop.tell(SetKnob(request=1, knob="batch_size", value=20))
    loop.until_event(KnobApplied, lambda event: event.request == 1)
    loop.tell(SetKnob(request=2, knob="prefetch", value="auto"))
    loop.until_event(KnobApplied, lambda event: event.request == 2)
    loop.until_windows(2)
    steps = stopped(loop)
    kept = [*model.variables, *model.optimizer.variables]
    assert all(new is old for new, old in zip(kept, variables, strict=True))
    assert int(model.optimizer.iterations) == warm_up + steps
    assert step.experimental_get_tracing_count() == 1
    losses = [window.loss for window in loop.windows]
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]


# ---------------------------------------------------------------- turns


def test_a_turn_lasts_as_long_as_asked_and_then_the_lane_holds(running: Start) -> None:
    step = Steps()
    loop = running(step)
    loop.until_ready()
    warm_up = len(step.batches)
    asked_ns = loop.tell(RunSlice(round=3, seconds=0.4))
    ended = loop.until_event(SliceEnded)
    windows = loop.windows
    assert ended.round == 3
    assert ended.at_ns - asked_ns >= 0.4e9
    assert ended.at_ns == windows[-1].at_ns
    assert all(window.round == 3 for window in windows)
    assert all(window.at_ns - asked_ns < 0.4e9 for window in windows[:-1])
    follow_each_other(windows)
    assert len(step.batches) - warm_up == windows[-1].step


def test_the_start_of_each_turn_is_marked_and_the_rest_is_not(running: Start) -> None:
    loop = running(Steps())
    loop.until_ready()
    for number in (1, 2):
        loop.tell(RunSlice(round=number, seconds=0.3))
        loop.until_event(SliceEnded, lambda event, number=number: event.round == number)
        first, *rest = [window for window in loop.windows if window.round == number]
        assert first.marks == (SLICE_START,)
        assert first.span_ns >= SLICE_START_NS and first.steps >= 2
        assert rest and all(set(window.marks) <= BUSY_MACHINE for window in rest)


def test_what_is_left_out_at_the_start_of_a_turn_lasts_until_the_lane_is_no_longer_getting_faster(
    running: Start,
) -> None:
    rising_s = 0.15
    began: list[float] = []

    def step(_batch: Any) -> np.float32:
        """Take 32 ms at first, and half as long with every 30 ms that pass, down to 1 ms."""
        if began:
            time.sleep(max(0.001, 0.032 * 0.5 ** ((time.monotonic() - began[0]) / 0.03)))
        return np.float32(0)

    loop = running(step)
    loop.until_ready()
    began.append(time.monotonic())
    loop.tell(RunSlice(round=1, seconds=2.0))
    loop.until_event(SliceEnded)
    first, *rest = loop.windows
    assert first.marks == (SLICE_START,) and first.span_ns >= rising_s * 0.8e9
    assert rest and all(set(window.marks) <= BUSY_MACHINE for window in rest)


def test_half_a_turn_is_left_out_at_most(running: Start) -> None:
    turn_s = 0.6
    began: list[float] = []

    def step(_batch: Any) -> np.float32:
        """Get faster all the time."""
        if began:
            time.sleep(0.02 * 0.5 ** ((time.monotonic() - began[0]) / 0.05))
        return np.float32(0)

    loop = running(step)
    loop.until_ready()
    began.append(time.monotonic())
    loop.tell(RunSlice(round=1, seconds=turn_s))
    loop.until_event(SliceEnded)
    assert any(window.marks == () for window in loop.windows)


def test_a_wish_at_the_start_of_a_turn_does_not_shorten_what_is_left_out(running: Start) -> None:
    race_options: list[SetKnob] = []

    def step(_batch: Any) -> np.float32:
        if race_options:
            loop.tell(race_options.pop())
        return np.float32(0)

    loop = running(step)
    loop.until_ready()
    race_options.append(SetKnob(request=1, knob="colour", value=1))
    asked_ns = loop.tell(RunSlice(round=1, seconds=0.5))
    loop.until_event(SliceEnded)
    assert loop.reporter.of(KnobRefused)
    steady = [window for window in loop.windows if SLICE_START not in window.marks]
    assert steady
    assert all(window.at_ns - window.span_ns >= asked_ns + SLICE_START_NS for window in steady)


def test_hold_ends_a_turn(running: Start) -> None:
    loop = running(Steps())
    loop.until_ready()
    loop.tell(RunSlice(round=1, seconds=60))
    loop.until_windows(1)
    loop.tell(Pause())
    loop.until(lambda: loop.phases[-1] == PAUSED, "a pause")
    assert not loop.reporter.of(SliceEnded)
    loop.tell(Run())
    assert loop.until_windows(1)[-1].round is None


# ---------------------------------------------------------------- where the time goes


def test_a_step_is_sampled_now_and_then_and_has_no_part_in_the_window(running: Start) -> None:
    loop = running(Steps())
    loop.until_ready()
    loop.tell(Run())
    loop.until(lambda: sum(window.sampled for window in loop.windows) >= 2, "two sampled steps")
    sampled = [window for window in loop.windows if window.sampled]
    for window in sampled:
        assert window.sampled == 1 and window.sampled_examples == 10
        assert window.sampled_call_ns > 0 and window.sampled_tail_ns >= 0
        assert window.sampled_copy_ns is None, "there is no device to copy to"
    assert sampled[1].at_ns - sampled[0].at_ns >= 0.9e9, "once a second at most"
    assert any(not window.sampled_examples for window in loop.windows)


def test_the_first_sampled_step_after_a_change_is_dropped(running: Start) -> None:
    loop = running(Steps())
    loop.until_ready()
    loop.tell(Run())
    loop.until(lambda: any(window.sampled for window in loop.windows), "a sampled step")
    assert next(window.sampled for window in loop.windows if window.sampled_examples) == 0


def test_a_step_that_traces_a_function_is_counted_with_its_cause(running: Start, tf: Any) -> None:
    double = tf.function(lambda number, times: number * times)

    def step(batch: Any) -> Any:
        step.done += 1
        return tf.reduce_sum(double(batch, step.done if step.retraces else 2))

    step.done, step.retraces = 0, False
    loop = running(step)
    loop.until_ready()
    step.retraces = True
    loop.tell(Run())
    loop.until(lambda: len(loop.windows) > 5, "some windows")
    first, *_, last = loop.windows
    assert first.traced_steps > 0 and first.marks == (TRACE,)
    assert last.marks == (), "what every window has is what this lane's steps are like"
    assert last.traced_steps >= last.steps - 1 and 0 < last.traced_ns <= last.call_ns
    assert "was the Python value" in last.traced


def test_a_single_trace_is_left_out(running: Start, tf: Any) -> None:
    double = tf.function(lambda number: number * 2)

    def step(batch: Any) -> Any:
        return tf.reduce_sum(double(batch))

    loop = running(step)
    loop.until_ready()
    loop.tell(Run())
    loop.until_windows(1)
    loop.tell(SetKnob(request=1, knob="batch_size", value=20))
    applied = loop.until_event(KnobApplied)
    loop.until(lambda: loop.windows[-1].at_ns > applied.at_ns + 0.5e9, "windows after the change")
    steady = [window for window in loop.windows if not window.marks]
    assert steady and all(window.traced_steps == 0 for window in steady)


def test_a_call_far_longer_than_the_others_marks_its_window(running: Start) -> None:
    long_one: list[float] = []

    def step(_batch: Any) -> np.float32:
        if long_one:
            time.sleep(long_one.pop())
        return np.float32(0)

    loop = running(step)
    loop.until_ready()
    loop.tell(Run())
    loop.until_windows(2)
    long_one.append(0.08)
    loop.until(lambda: any(COMPILE in window.marks for window in loop.windows), "the mark")
    assert sum(COMPILE in window.marks for window in loop.windows) == 1


def test_a_profile_is_taken_between_two_windows_and_the_lane_trains_on(running: Start, tmp_path: Path) -> None:
    step = Steps()
    loop = running(step)
    loop.until_ready()
    warm_up = len(step.batches)
    loop.tell(Run())
    loop.until_windows(1)
    loop.tell(Profile(folder=str(tmp_path), steps=7))
    profiled = loop.until_event(Profiled)
    assert profiled.folder == str(tmp_path) and Path(profiled.path).is_file()
    loop.until(lambda: loop.windows[-1].at_ns > profiled.at_ns, "a window after it")
    stopped(loop)
    assert all(window.longest_ns < 5e9 for window in loop.windows)
    marks = [window.marks for window in loop.windows if window.marks]
    assert marks == [(PROFILE,)], "the pipeline filled its buffer while the trace was written"
    examples = sum(window.examples + window.sampled_examples for window in loop.windows)
    assert examples == sum(map(len, step.batches[warm_up:])), "captured steps are counted, in no window"


class TestSplit:
    def computing(self, tf: Any) -> Any:
        matrix = tf.ones((300, 300))
        return tf.function(lambda batch: tf.reduce_sum(matrix @ (matrix * batch[0])))

    def test_every_window_tells_how_much_of_the_call_computes(self, running: Start, tf: Any) -> None:
        loop = running(self.computing(tf))
        loop.until_ready()
        loop.tell(Run())
        loop.until_windows(2)
        assert all(0 < window.computing_share <= 1 and PROFILE not in window.marks for window in loop.windows)

    def test_it_is_found_once_for_each_settings(self, running: Start, tf: Any) -> None:
        loop = running(self.computing(tf))
        loop.until_ready()
        loop.tell(Run())
        loop.until_windows(1)

        def steady_with(size: int) -> bool:
            last = loop.windows[-1]
            return last.settings["batch_size"] == size and not last.marks and last.computing_share is not None

        for request, size in enumerate((20, 10, 20), start=1):
            loop.tell(SetKnob(request=request, knob="batch_size", value=size))
            loop.until(partial(steady_with, size), "a steady window")
        stopped(loop)
        assert sum(PROFILE in window.marks for window in loop.windows) == 1, "for 20, the first time"

    def test_in_turns_it_is_found_where_a_slice_starts(self, running: Start, tf: Any) -> None:
        loop = running(self.computing(tf))
        loop.until_ready()

        def take_turn(number: int) -> None:
            loop.tell(RunSlice(round=number, seconds=0.5))
            loop.until(lambda: any(end.round == number for end in loop.reporter.of(SliceEnded)), "the slice's end")

        take_turn(1)
        loop.tell(SetKnob(request=1, knob="batch_size", value=20))
        for number in (2, 3, 4):
            take_turn(number)
        stopped(loop)
        last = [window for window in loop.windows if window.round == 4]
        assert last[-1].settings["batch_size"] == 20 and all(window.computing_share for window in last)
        assert not any(PROFILE in window.marks for window in loop.windows)

    def test_where_the_profiler_is_taken_it_stays_unknown_and_the_lane_trains_on(
        self, running: Start, tf: Any, tmp_path: Path
    ) -> None:
        tf.profiler.experimental.start(str(tmp_path))
        try:
            loop = running(self.computing(tf))
            loop.until_ready()
            loop.tell(Run())
            loop.until_windows(2)
        finally:
            tf.profiler.experimental.stop(save=False)
        assert all(window.computing_share is None for window in loop.windows)


def test_a_profile_that_cannot_be_taken_is_refused_and_the_lane_trains_on(
    running: Start, tf: Any, tmp_path: Path
) -> None:
    loop = running(Steps())
    loop.until_ready()
    loop.tell(Run())
    tf.profiler.experimental.start(str(tmp_path / "other"))
    try:
        loop.tell(Profile(folder=str(tmp_path), steps=7))
        failed = loop.until_event(ProfileFailed)
    finally:
        tf.profiler.experimental.stop(save=False)
    assert "another profile is being taken" in failed.reason
    loop.until(lambda: any(window.at_ns > failed.at_ns for window in loop.windows), "a window after it")
