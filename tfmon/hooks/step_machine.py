"""Finds where steps of a training loop begin and end, from pulls of batches and updates.

A step is an update of the weights, or one round of several optimizers. It ends before the next pull of an iterator
that the loop trains from, or before the next update. A pull of another iterator (second input, or validation)
ends the step with its last update.

The next state by state and event; `!` means that a step ends and is reported:

    state   | own pull  | other pull | end of data | gradient  | update    | leave
    outside | outside   | outside    | outside     | outside   | updated   | outside
    reading | reading   | reading    | outside     | reading   | updated   | outside
    part    | part      | part       | part        | part      | updated   | outside
    updated | reading ! | outside !  | outside !   | reading ! | updated ! | outside !

- `outside`: no step is under way. An update begins a step with the pull of its batch.
- `reading`: a step has begun, and has no update.
- `part`: an update was made that does not complete the round. The table shows the update that does.
- `updated`: the update was made. The step lasts until an event ends it.
- `own pull` is of an iterator that fed an update before. `leave` is the start of a call with another observer,
  such as `fit`, or the end of the loop.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Hashable
from typing import TYPE_CHECKING

from tfmon.hooks import meter
from tfmon.hooks.alike_steps import Bundle
from tfmon.hooks.counts import BOTH, BY_HAND, GradientRows
from tfmon.hooks.epochs import Epochs
from tfmon.hooks.graph_marks import Mark
from tfmon.hooks.inspection import rows_of
from tfmon.hooks.loop_report import TRAINING, VALIDATION, VALIDATION_PULLS, LoopReport
from tfmon.hooks.optimizers import Updater
from tfmon.hooks.retracing import retracing
from tfmon.hooks.sources import BatchSource, SeenStep, Sources, nothing
from tfmon.hooks.update_rounds import SETTLED, Rounds
from tfmon.system.lane_clock import lane_clock
from tfmon.system.threads import ThreadLife

if TYPE_CHECKING:
    from tfmon.hooks.script_lane import Lane


class StepMachine:
    """Follows the loop of the first thread with an update. Units: ns."""

    def __init__(self, join: Callable[[], Lane | None]) -> None:
        self.off = False
        """Whether another process is the lane, or the script reports."""
        self.lane: Lane | None = None
        self.asides: dict[int, int] = {}
        """Calls with another observer, by thread."""
        self.report = LoopReport()
        self._reported = False
        self._thread = 0
        self._claimed = False
        self._life, self._taking = ThreadLife(), threading.Lock()
        self.trains: Callable[[object], None] = nothing
        """Called with each trained iterator."""
        self.all_seen: Callable[[], None] = nothing
        self._all_seen = False
        self._join = join
        self._steps = 0
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.sources, self.rounds = Sources(), Rounds()
        self.report.epochs = Epochs()
        self._by_hand = False
        self.forget()

    def forget(self) -> None:
        """Discard the current step and bundled steps."""
        self.bundle, self.step = Bundle(), SeenStep()
        self.sources.pulled, self.sources.making = Counter(), {}
        self._pulling = self._updating = False

    def finish(self) -> None:
        """End the step with its last update."""
        if self.lane is None:
            return
        self.rounds.cut |= self._updating
        self._catch_up()
        if self.step.due:
            self._end(self.step.updated_ns)
        else:
            self._cancel()
        self.lane.meter.stop_clock()
        self.report.report_unknown(self.lane, self.rounds, sure=True)

    @property
    def aside(self) -> int:
        """Above 0 while another observer follows the calling thread."""
        return self.asides.get(threading.get_ident(), 0) if self.asides else 0

    @property
    def caller_may_train(self) -> bool:
        """Whether the calling thread trains, or none yet."""
        return self.lane is None or threading.get_ident() == self._thread

    @property
    def watches_caller(self) -> bool:
        """Whether the calling thread is watched."""
        if self.off or self._updating or (self.asides and self.aside):
            return False
        return threading.get_ident() == self._thread or self._takes_over()

    def _takes_over(self) -> bool:
        with self._taking:
            if self._claimed and not self._life.over:
                return False
            if self._claimed:
                self.finish()
            self._begin_anew()
            self._thread, self._claimed = threading.get_ident(), False
            return True

    def claims(self) -> bool:
        """Return whether the calling thread, which updates, is followed."""
        if self._claimed and self._thread == threading.get_ident():
            return True
        with self._taking:
            if self._claimed or self._thread != threading.get_ident():
                return self._thread == threading.get_ident()
            self.lane = self._join()
            self.off = self.lane is None
            self._claimed = not self.off
            self._life.begin()
            return self._claimed

    def trains_unseen(self) -> None:
        """Report that an unfollowed thread trains."""
        if self.lane is not None and not (self.off or self.aside) and threading.get_ident() != self._thread:
            self.lane.claims_thread()

    def step_aside(self) -> bool:
        """Leave the calling thread to another observer. Return whether to call `come_back`."""
        if self.off and not self._reported:
            return False
        if self._claimed and threading.get_ident() != self._thread and not self._takes_over():
            return False
        if not self.aside and threading.get_ident() == self._thread:
            self.finish()
            self.report.doing = ""
        self.asides[threading.get_ident()] = self.aside + 1
        return True

    def come_back(self) -> None:
        """Watch again, and restart the comparison with optimizers' counts."""
        self.asides[threading.get_ident()] -= 1
        if self._reported:
            self.off = self._reported = False
        # Only the loop's thread may change the counts.
        for updater in self.rounds.updaters if self._thread in (0, threading.get_ident()) else ():
            updater.rebase()

    def forked(self) -> None:
        """Watch a forked child."""
        self.lane, self._thread, self._claimed, self._taking = None, 0, False, threading.Lock()
        self._begin_anew()

    def retire(self, *, reported: bool = False) -> None:
        """Stop watching. If `reported`, resume after a training of Keras."""
        self.off, self._reported = True, reported
        self.forget()

    def making(self, dataset: object, position: Hashable) -> int:
        """End the step, if steps make such iterators. Return the time, or 0 if unwatched."""
        if self._pulling or self.bundle.busy or not self.watches_caller:
            return 0
        earlier = self.sources.earlier(dataset, position)
        if earlier is not None and earlier.trained:
            self._catch_up()
            if self.step.due:
                self._end(None)
        return lane_clock.now_ns()

    def pull_begins(self, iterator: object) -> BatchSource | None:
        """Record a pull, which may end a step. Return the source, if watched."""
        if self._pulling or self.bundle.busy or not self.watches_caller:
            return None
        self._catch_up()
        source = self.sources.source_of(iterator)
        if self.step.due:
            self._pull_after_step(source)
        elif self.lane is not None and not self.step.begun:
            if not source.pulls or source is self.sources.main:
                self.lane.obey()
            if not source.trained:
                self.lane.meter.passes(meter.VALIDATION)
            source.strange += not source.trained
            if source.strange == VALIDATION_PULLS:
                self.report.report_doing(self.lane, VALIDATION, self.sources)
        source.pulls += 1
        self._pulling = True
        source.began_ns = lane_clock.now_ns()
        return source

    def pull_ends(self, source: BatchSource, batch: object) -> None:
        """Record a received batch."""
        if self.bundle.busy and source is self.bundle.source:
            self.bundle.receive(batch)
            return
        if threading.get_ident() != self._thread:
            return
        self._pulling, retracing.smaller = False, None
        self.sources.received(source, rows_of(batch, batched=source.batched))

    def pull_fails(self, source: BatchSource, *, ended: bool) -> None:
        """Record a pull without a batch."""
        if threading.get_ident() != self._thread:
            return
        if self.bundle.busy:
            self._catch_up()
        self._pulling = False
        if not ended:
            return
        source.over = True
        retracing.epoch_over()
        if not source.trained:
            return
        if not self.step.updates:
            self._cancel()
        if source is self.sources.main:
            self.report.epoch_over(self.lane, source.steps)
        if self.lane is not None and not self.step.updates:
            self.lane.meter.stop_clock(meter.BETWEEN)

    def _pull_after_step(self, source: BatchSource) -> None:
        assert self.lane is not None
        if source.trained:
            self._end(None)
            return
        self._end(self.step.updated_ns)
        self.lane.meter.stop_clock(meter.VALIDATION)
        self.lane.obey()
        source.strange += 1

    def update_begins(self, function: object = None, sizes: Collection[int] = ()) -> bool:
        """Record an update's start. Return whether it is watched.

        Args:
            function: function or optimizer, if its updates may be bundled.
            sizes: first dimensions of its inputs.
        """
        if self.bundle.update_begins(function, sizes):
            self._updating = True
            return True
        if (
            (threading.get_ident() == self._thread and self.bundle.busy)
            or not self.watches_caller
            or not self.claims()
        ):
            self.trains_unseen()
            return False
        self._catch_up()
        if self.step.due:
            self._end(None, in_batch=True)
        step = self.step
        assert self.lane is not None
        if not step.updates:
            step.fed = self.sources.feed(self._steps)
        if not step.begun:
            step.began_ns = min((source.first_ns for source in step.fed), default=lane_clock.now_ns())
            self.lane.begin_step(step.began_ns)
            step.begun = True
            if self.report.doing != TRAINING:
                self.report.report_doing(self.lane, TRAINING, self.sources)
        if not step.updates:
            self.report.step_begins(self.lane, step, self.sources.main)
        self._updating = True
        return True

    def update_ends(
        self,
        updater: Updater,
        loss: object,
        calls: int = 1,
        mark: Mark | None = None,
        function: object = None,
        rows: GradientRows | None = None,
    ) -> None:
        """Record the end of an update. The loss is read later.

        Args:
            calls: number of optimizer calls, which may be 0.
            function: function or optimizer, if its updates may be bundled.
            rows: first dimensions of the gradient's arguments, if it was not recorded.
        """
        assert self.lane is not None
        if self.bundle.busy:
            self._updating = False
            self.bundle.update_ends(loss, rows[0] if rows else None)
            return
        if rows is not None:
            self.gradient(rows)
        self._updating = False
        step, pulled, rounds = self.step, self.sources.pulled, self.rounds
        if updater not in rounds.updaters:
            rounds.updaters.append(updater)
        updates = updater.made_more(calls)
        if not updates:
            return
        if self._by_hand:
            self.report.doubt(BOTH)
        step.updated_ns = lane_clock.now_ns()
        step.updates += 1
        for source in step.fed:
            if not source.trained:
                self.trains(source.ref())
            source.trained, source.strange = True, 0
        step.loss, step.mark = loss, mark or updater
        step.in_graph |= mark is not None and mark.pulls
        step.due += rounds.add(updater, updates)
        if rounds.past.steps and rounds.leader is not None:
            self.report.merge(self.lane, rounds.take_past(), in_graph=step.in_graph)
        read = step.in_graph or bool(pulled)
        self.report.updated(self.lane, step, self._steps, updater.name, read=read)
        alike = step.alike if function is not None and rounds.settled else None
        if alike is not None and alike is step.of_one_batch(pulled):
            ((size, *_),) = step.gradient_rows
            self.bundle.follow(self.lane, next(iter(step.fed), None), function, updater, size, loss)

    def updated_by_hand(self) -> None:
        """Record an update by hand. Earlier steps stay known."""
        if self.lane is not None and not self._by_hand:
            self.finish()
            self._by_hand = True
            self.lane.cannot_know("updates by hand", BY_HAND)

    def update_fails(self) -> None:
        """Record an update that raised an error."""
        self._updating, self.rounds.cut = False, True
        if self.bundle.busy:
            self._catch_up()

    def confirm(self) -> int:
        """Return unreported steps that optimizers counted."""
        missed = 0
        for updater, more in self.rounds.missed():
            missed += more
            known = updater.varies and updater.every == 1 and self.rounds.leader is None
            self.report.doubt(updater.differs(more), *(("examples", "loss") if known else ()))
        return missed

    def _catch_up(self) -> None:
        bundle = self.bundle
        self.rounds.cut |= bundle.busy
        if bundle.begun_ns or bundle.next_pull is not None or bundle.next_function is not nothing:
            self.bundle = Bundle()
        if not bundle.begun_ns or self.lane is None:
            return
        steps = bundle.report_steps(self.lane, self.rounds, self.report)
        self._steps += steps
        self.forget()
        self._pulling = not bundle.received
        self.step = bundle.step_under_way(self.sources, self._steps)

    def _cancel(self) -> None:
        if self.step.begun and self.lane is not None:
            self.lane.meter.cancel_step()
            self.step.begun = False
            self.step.alike = None

    def _end(self, ended_ns: int | None, *, in_batch: bool = False) -> None:
        """End the step at a time, or now, where the next step begins."""
        assert self.lane is not None
        pulled = self.sources.pulled
        alike = None if in_batch and pulled else self.step.of_one_batch(pulled)
        for source in self.step.fed:
            source.steps += 1
        self._steps += 1
        if not self._all_seen and (not in_batch or self._steps >= SETTLED):
            self._all_seen = True
            self.all_seen()
        self.report.step_over(self.lane, self.step, self.sources, self.rounds, ended_ns)
        self.forget()
        if ended_ns is None:
            self.lane.begin_step()
            self.step.begun, self.step.began_ns, self.step.alike = True, lane_clock.now_ns(), alike

    def gradient(self, gradient_rows: GradientRows) -> None:
        """Record gradients of tensors with these first dimensions."""
        if self.bundle.note_gradient(gradient_rows):
            return
        self._catch_up()
        if self.step.due and not self._updating:
            self._end(None, in_batch=True)
        self.step.gradient_rows[gradient_rows] += 1
