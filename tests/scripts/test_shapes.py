"""The shapes of Keras' own code examples in a lane: what tfmon counts is what they say they trained."""

from __future__ import annotations

import re

import pytest

from tfmon.model.lane_events import Progressed, Window
from tfmon.model.lane_state import DONE

from .conftest import SHAPES

pytestmark = [pytest.mark.tf, pytest.mark.trainer]


def trained(race) -> tuple[int, int]:
    """Wait for a script's end; return the examples and steps that it says it trained."""
    race.until(lambda: race.lane.ended is not None, "the end")
    lane = race.lane
    assert (lane.phase, lane.ended.exit_code) == (DONE, 0), lane.ended.output_tail[-5:]
    (said,) = re.findall(r"trained (\d+) examples in (\d+) steps", "\n".join(lane.ended.output_tail))
    return int(said[0]), int(said[1])


def counted(race) -> tuple[int, int]:
    """The examples and steps that were seen."""
    windows = race.of(Window)
    assert all(window.step >= window.steps for window in windows)
    return sum(window.examples + window.sampled_examples for window in windows), race.lane.steps


def share_of_input(race) -> float:
    windows = race.of(Window)
    return sum(window.input_ns for window in windows) / sum(window.span_ns for window in windows)


def test_an_image_classifier(watch):
    race = watch(str(SHAPES / "image_classifier.py"))
    assert trained(race) == counted(race)
    lane = race.lane
    assert 0 < lane.last_loss < 5 and lane.tensorflow and lane.keras
    assert lane.parameters == 3 * 3 * 3 * 8 + 8 + 15 * 15 * 8 * 3 + 3
    progress = lane.progress
    assert (progress.epoch, progress.epochs, progress.batch, progress.batches) == (4, 4, 14, 14)
    assert set(progress.metrics) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert progress.validation_ns > 0
    assert "validation" in [event.doing for event in race.of(Progressed)]


def test_text_classification_with_a_step_of_its_own_and_two_fits(watch):
    race = watch(str(SHAPES / "text_classification.py"))
    assert trained(race) == counted(race)
    doing = [event.doing for event in race.of(Progressed)]
    assert "evaluate" in doing and "predict" in doing


def test_a_loop_with_a_gradient_tape_that_reports(watch):
    race = watch(str(SHAPES / "gradient_tape.py"), batch_size=64)
    said, seen = trained(race), counted(race)
    assert said == seen
    assert race.lane.settings["batch_size"] == 64
    assert race.lane.last_loss < race.lane.first_loss
    assert [knob.name for knob in race.session.snapshot().race.knobs] == ["batch_size"]
    assert all(window.call_ns <= window.span_ns for window in race.of(Window))


def test_batches_made_slowly_in_python_are_waited_for(watch):
    race = watch(str(SHAPES / "py_dataset.py"))
    assert trained(race) == counted(race)
    assert share_of_input(race) > 0.5


def test_several_outputs_steps_at_once_and_a_strategy(watch):
    race = watch(str(SHAPES / "several_outputs.py"))
    assert trained(race) == counted(race)
    assert all(window.steps % 5 == 0 for window in race.of(Window))
    assert race.lane.settings["learning_rate"] == pytest.approx(0.01)


def test_examples_of_every_kind_are_counted(watch):
    race = watch(str(SHAPES / "kinds_of_data.py"))
    assert trained(race) == counted(race)
