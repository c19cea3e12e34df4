"""The watchers of this process: training loops, TensorFlow and the pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfmon.script import process
from tfmon.script.rounds import Updater
from tfmon.script.steps import StepWatcher
from tfmon.script.tf_feed import the_feed

if TYPE_CHECKING:
    from tfmon.script.lane import Lane
    from tfmon.script.pipeline import Pipeline
    from tfmon.script.tf_hooks import TensorFlowHooks

tensorflow: TensorFlowHooks | None = None
pipeline: Pipeline | None = None


def begin() -> None:
    """Create a new watcher."""
    global watcher, tensorflow, pipeline
    watcher, tensorflow, pipeline = StepWatcher(_join), None, None


def updater_of(optimizer: Any) -> Updater:  # noqa: ANN401
    """Return the updater of an optimizer of Keras."""
    return tensorflow.updater_of([optimizer]) if tensorflow is not None else Updater((), "the optimizer")


def _join() -> Lane | None:
    lane = process.join()
    if lane is None or not lane.claims_thread():
        return None
    if tensorflow is not None:
        lane.meter.samples_steps = True
        lane.meter.feed = the_feed()
    if pipeline is not None:
        pipeline.joined(lane)
    lane.finish, lane.meter.confirm = watcher.finish, watcher.confirm
    return lane


watcher = StepWatcher(_join)
