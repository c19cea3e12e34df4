"""The state of tfmon in a process. The first process that trains becomes the lane."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import threading
from typing import TYPE_CHECKING, Any

from tfmon.hooks.cause_reports import causes
from tfmon.hooks.optimizers import Updater
from tfmon.hooks.patches import hooks
from tfmon.hooks.step_machine import StepMachine
from tfmon.hooks.tf_feed import the_feed
from tfmon.system.lane_pipes import HOLDER, LanePipes, is_open, read_pipes, reopened
from tfmon.trainer.time_parts import account

if TYPE_CHECKING:
    from tfmon.hooks.pipeline_knobs import Pipeline
    from tfmon.hooks.script_lane import Lane
    from tfmon.hooks.tf_hooks import TensorFlowHooks
    from tfmon.model.event_base import LaneEvent

FEW_PARTS = 16
"""Parts that fit into one atomic write."""


class Process:
    """The lane of this process, if any. Thread: any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lane: Lane | None = None
        self._refused = False
        self._forked = False
        self.restored: tuple[int, str] | None = None
        """Epochs before the first `fit`, and the backup folder."""
        self.steps_in_call: int | None = None
        """Requested steps per call of `fit`."""
        self.begin()

    def begin(self) -> None:
        """Reset all state except the lane."""
        self.steps = StepMachine(self._join_loop)
        self.tensorflow: TensorFlowHooks | None = None
        self.pipeline: Pipeline | None = None
        self.fit: Any = None

    def join(self) -> Lane | None:
        """Make this process the lane, and measure the calling thread, if possible. Return the lane."""
        if self._forked:
            pipes, self._forked = read_pipes(os.environ), False
            if pipes is not None and is_open(pipes):
                report_unmeasured(pipes, "processes", f"process {os.getpid()}")
        if self._lane is not None or self._refused:
            return self._lane
        with self._lock:
            if self._lane is None and not self._refused:
                self._lane = self._take_lane()
                self._refused = self._lane is None
        return self._lane

    def joined(self) -> Lane | None:
        """Return the lane of this process, if any."""
        return self._lane

    def leave(self) -> None:
        """End the lane. The process may become a lane again."""
        with self._lock:
            lane, self._lane, self._refused = self._lane, None, False
        if lane is not None:
            lane.leave()

    def report_untrained(self) -> None:
        """Report a process that has not trained."""
        pipes = read_pipes(os.environ)
        if self._lane is not None or self._refused or self._forked or pipes is None or not is_open(pipes):
            return
        for seen in causes.news(all_of_them=True):
            _write(pipes, seen)
        _write(pipes, account.report(last=True, most=FEW_PARTS))

    def updater_of(self, optimizer: Any) -> Updater:
        """Return the updater of a Keras optimizer."""
        return (
            self.tensorflow.updater_of([optimizer])
            if self.tensorflow is not None
            else Updater((), "the optimizer")
        )

    def _join_loop(self) -> Lane | None:
        lane = self.join()
        if lane is None or not lane.claims_thread():
            return None
        if self.tensorflow is not None:
            lane.meter.samples_steps = True
            lane.meter.feed = the_feed()
        if self.pipeline is not None:
            self.pipeline.joined(lane)
        lane.finish, lane.meter.confirm = self.steps.finish, self.steps.confirm
        return lane

    def _take_lane(self) -> Lane | None:
        pipes = read_pipes(os.environ)
        if pipes is not None and not is_open(pipes):
            pipes = reopened(pipes, os.environ.get(HOLDER, ""))
        if pipes is None:
            return None
        try:
            fcntl.lockf(pipes.lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            rank, ranks = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
            which = f" (rank {rank} of {ranks})" if rank and ranks else ""
            report_unmeasured(pipes, "processes", f"process {os.getpid()}{which}")
            return None
        from tfmon.hooks.script_lane import Lane

        _follow_forks()
        return Lane(pipes)

    def abandon(self) -> None:
        """Stop reporting in a forked child."""
        if self._lane is not None:
            self._lane.reporter.abandon()
        self._lane, self._refused, self._forked = None, True, True


@functools.cache
def _follow_forks() -> None:
    os.register_at_fork(after_in_child=hooks.guard(lambda: process.abandon()))


def report_unmeasured(pipes: LanePipes, what: str, reason: str) -> None:
    """Report an unmeasured value without a lane."""
    from tfmon.model.lane_events import NotMeasured

    _write(pipes, NotMeasured(what=what, reason=reason))


def _write(pipes: LanePipes, event: LaneEvent) -> None:
    from tfmon.model.codec import encode_message

    with contextlib.suppress(OSError):  # a short line is written atomically
        os.write(pipes.metric_fd, encode_message(event))


process = Process()
