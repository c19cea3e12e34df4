"""Collects similar steps, and reports them together.

A similar step pulls at most one batch, from the same iterator, and makes the same update. A Python call between
steps takes 2 µs.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Sized
from typing import TYPE_CHECKING, Any

from tfmon.hooks.counts import OTHER_ROWS, GradientRows
from tfmon.hooks.graph_marks import MARK
from tfmon.hooks.inspection import path_to
from tfmon.hooks.loop_report import LoopReport
from tfmon.hooks.meter import MOST
from tfmon.hooks.optimizers import Updater
from tfmon.hooks.sources import BatchSource, SeenStep, Sources, nothing
from tfmon.hooks.update_rounds import Rounds
from tfmon.system.lane_clock import lane_clock

if TYPE_CHECKING:
    from tfmon.hooks.script_lane import Lane


class Bundle:
    """Steps since the last report. Thread: the loop's. Units: ns of `lane_clock`."""

    def __init__(self) -> None:
        self.source: BatchSource | None = None
        self.next_pull: Callable[[], Any] | None = None
        self.next_function: Callable[[], Any] = nothing
        self.eager = False
        self.busy = False
        self.begun_ns: list[int] = []
        """The end times of the steps before."""
        self.rows: list[int] = []
        self.waits_ns: list[int] = []
        self.gradient_rows: list[int] = []
        self.loss: Any = None
        self.loss_before: Any = None

    def follow(
        self,
        lane: Lane,
        source: BatchSource | None,
        function: Any,
        updater: Updater,
        rows: int,
        loss: object,
    ) -> None:
        """Collect steps similar to the last step, until the window is due."""
        spec = getattr(source.ref(), "element_spec", None) if source is not None else None
        path = path_to(spec, _is_batch)
        mark = getattr(function, MARK, None)
        ranks = (input_.shape.rank for input_ in function.inputs) if mark else ()
        self.at = next((at for at, rank in enumerate(ranks) if rank), 0)
        self.until_ns = lane.meter.alike_until()
        self.eager = not mark and not hasattr(function, "train_on_batch")
        readable = not self.eager if source is None else path is not None and source.batched
        if not readable or not self.until_ns:
            return
        self.source, self.pull = source, None if source is None else source.ref
        self.function, self.mark = weakref.ref(function), mark or updater
        self.rows_path, self.loss, self.updater = path or (), loss, updater
        self.begun_ns, self.rows, self.gradient_rows = [], [rows], [rows]
        self.waits_ns = [0 if source is None else source.wait_ns]
        self.thread = threading.get_ident()
        self.waiting: Sized = lane.meter.waiting
        traces: Any = lane.control.traces
        self.traces, self.traced = traces, traces.count
        self.next_pull, self.next_function = self.pull, self.function if source is None else nothing

    def begins_with(self, iterator: object) -> BatchSource | None:
        """Record a pull that begins a similar step, and return its source."""
        next_pull = self.next_pull
        if (
            next_pull is None
            or next_pull() is not iterator
            or self.waiting
            or self.traces.count != self.traced
            or threading.get_ident() != self.thread
            or len(self.rows) >= MOST
            or (now_ns := lane_clock.now_ns()) >= self.until_ns
        ):
            return None
        self.next_pull, self.busy = None, True
        self.begun_ns.append(now_ns)
        return self.source

    def receive(self, batch: Any) -> None:
        """Record the pulled batch."""
        self.waits_ns.append(lane_clock.now_ns() - self.begun_ns[-1])
        for key in self.rows_path:
            batch = batch[key]
        self.rows.append(batch._shape_tuple()[0])
        self.next_function, self.busy = self.function, False

    def update_begins(self, function: object, sizes: Collection[int]) -> bool:
        """Record the start of the expected update. Without input, it begins a step of examples of one size.

        Return whether it is the expected update.
        """
        if (
            function is None
            or function is not self.next_function()
            or self.traces.count != self.traced
            or threading.get_ident() != self.thread
            or (self.eager and len(self.gradient_rows) == len(self.begun_ns))
            or (self.source is None and not self._begins(sizes))
        ):
            return False
        self.next_function, self.busy = nothing, True
        return True

    def _begins(self, sizes: Collection[int]) -> bool:
        now_ns = lane_clock.now_ns()
        if len(sizes) != 1 or self.waiting or now_ns >= self.until_ns or len(self.rows) >= MOST:
            return False
        self.begun_ns.append(now_ns)
        self.waits_ns.append(0)
        self.rows += sizes
        return True

    def note_gradient(self, gradient_rows: GradientRows) -> bool:
        """Record the expected eager gradient."""
        expected = (
            self.received
            and self.eager
            and len(self.gradient_rows) == len(self.begun_ns)
            and len(gradient_rows) == 1
        )
        if expected:
            self.gradient_rows += gradient_rows
        return expected

    def update_ends(self, loss: object, rows: int | None) -> None:
        """Record the end of the update, with its gradient if that was not noted."""
        if rows is not None:
            self.gradient_rows.append(rows)
        self.updated_ns, self.loss_before, self.loss = lane_clock.now_ns(), self.loss, loss
        self.next_pull, self.busy = self.pull, False
        if self.source is None:
            self.next_function = self.function

    def report_steps(self, lane: Lane, rounds: Rounds, report: LoopReport) -> int:
        """Report and count the ended steps."""
        rows, ends_ns, updated = self.rows, self.begun_ns, self.updated
        steps = len(ends_ns)
        rounds.add(self.updater, self.updater.made_more(steps - 1 + updated))
        if self.gradient_rows != rows[: len(self.gradient_rows)]:
            report.doubt(OTHER_ROWS, "examples")
        loss, examples = self.loss_before if updated else self.loss, report.examples(sum(rows[:steps]))
        lane.meter.end_steps(ends_ns, loss=loss, examples=examples, input_ns=sum(self.waits_ns[:steps]))
        if self.source is not None:
            self.source.steps += steps
            self.source.pulls += steps
        return steps

    def step_under_way(self, sources: Sources, number: int) -> SeenStep:
        """Return the current step, and record its reads."""
        source, step = self.source, SeenStep()
        step.begun, step.began_ns = True, self.begun_ns[-1]
        if source is not None:
            source.began_ns = source.first_ns = step.began_ns
        if self.received and source is not None:
            sources.pulled[source, frozenset(self.rows[-1:])] = 1
            source.wait_ns = self.waits_ns[-1]
        if self.updated:
            step.fed = sources.feed(number)
            step.updates = step.due = 1
            step.mark, step.updated_ns, step.loss = self.mark, self.updated_ns, self.loss
        if len(self.gradient_rows) > len(self.begun_ns):
            step.gradient_rows[self.gradient_rows[-1],] = 1
        return step

    @property
    def updated(self) -> bool:
        """Whether the current step has its update."""
        return self.next_pull is not None or (self.source is None and not self.busy)

    @property
    def received(self) -> bool:
        """Whether the current step has its batch."""
        return len(self.rows) > len(self.begun_ns)


def _is_batch(spec: Any) -> bool:
    return type(spec).__name__ == "TensorSpec" and bool(spec.shape.rank)
