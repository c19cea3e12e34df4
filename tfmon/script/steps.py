"""Tells where the steps of a training loop begin and end, from what the loop does: pulls of batches, and updates.

A step is an update of the weights, or one round of several optimizers (`rounds`). It ends before the next pull of
an iterator that the loop trains from, or before the next update, whichever comes first.

A pull of another iterator may be the second input of the next step, the first of an epoch, or validation: the step
has ended with its last update, and the time until the next step is in none.

Updates are compared with what the optimizers count, examples and loss with what was read and differentiated. Where
they differ, the lane is told why they are not known.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfmon.script.bundle import Bundle
from tfmon.script.epochs import Epochs
from tfmon.script.followed import LOOP_IN_GRAPH, TRAINING, VALIDATION, Followed
from tfmon.script.looking import line_of, users_frame
from tfmon.script.marks import Mark
from tfmon.script.retracing import retracing
from tfmon.script.rounds import NO_ROUNDS, SETTLED, Rounds, Updater
from tfmon.script.sources import BatchSource, Given, Past, Sources, examples_of, nothing

if TYPE_CHECKING:
    from tfmon.script.lane import Lane

VALIDATION_PULLS = 3
"""So many pulls in a row of an iterator that has never fed an update are validation."""
NO_LOSS = "the training step returns none of what was differentiated"


class StepWatcher(Followed):
    """Follows the loop of one thread.

    Thread: the first one with an update; calls from others are ignored.
    Units: nanoseconds of `time.monotonic_ns`.
    """

    def __init__(self, join: Callable[[], Lane | None]) -> None:
        """Watch nothing yet; `join` returns the lane, or None if this process is not it."""
        super().__init__()
        self.trains: Callable[[object], None] = nothing
        """Is called with each iterator that turns out to be trained from."""
        self.all_seen: Callable[[], None] = nothing
        """Is called once the first steps have shown all optimizers."""
        self._all_seen = False
        self._join = join
        self.updaters: list[Updater] = []
        self._step = 0
        self.begin_anew()

    def begin_anew(self) -> None:
        """Begin to follow a thread: nothing is known of it."""
        self.sources, self.rounds = Sources(), Rounds()
        self._past = Past()
        self._cut = False
        """Whether an update was interrupted: the optimizer may have counted it."""
        self._epochs = Epochs()
        self.forget()

    def forget(self) -> None:
        """Begin a step without anything in it."""
        self.bundle = Bundle()
        self.updates = self._due = 0
        self.sources.pulled = Counter()
        self.given: Counter[Given] = Counter()
        self._begun = self._pulling = self._updating = self._in_graph = False
        self._began_ns = self._last_end_ns = 0
        self._loss: Any = None
        self._mark: Mark | Updater | None = None
        self._alike: Mark | Updater | None = None
        """What made the update of the step before, if that was one that may be noted."""
        self._fed: list[BatchSource] = []

    def finish(self) -> None:
        """End the step under way with its last update: no other follows for a while."""
        if self.lane is None:
            return
        self._cut |= self._updating
        self.catch_up()
        if self._due:
            self._end(self._last_end_ns)
        elif self._begun:
            self.lane.cancel_step()
            self._begun = False
        self.lane.stop_clock()
        self._tell(sure=True)

    def come_back(self) -> None:
        """Watch again, and compare with what the optimizers count from now on."""
        super().come_back()
        # Another thread that had nothing to do with the loop must not touch its counts while it trains.
        for updater in self.updaters if self._thread in (0, threading.get_ident()) else ():
            updater.rebase()

    # ------------------------------------------------------------ pulls

    def pull_begins(self, iterator: object) -> BatchSource | None:
        """Record that a batch is pulled, and end the step before it; return None if it is not watched."""
        if self._pulling or self.bundle.busy or not self.here:
            return None
        self.catch_up()
        source = self.sources.of(iterator)
        if self._due:
            self._pull_after_step(source)
        elif self.lane is not None and not self._begun:
            if not source.pulls or source is self.sources.main:
                self.lane.obey()
            source.strange += not source.trained
            if source.strange == VALIDATION_PULLS:
                self._say(VALIDATION)
        source.pulls += 1
        self._pulling = True
        source.began_ns = time.monotonic_ns()
        return source

    def pull_ends(self, source: BatchSource, rows: frozenset[int]) -> None:
        """Record that a batch of perhaps `rows` examples was received."""
        self._pulling, retracing.smaller = False, None
        self.sources.received(source, rows)

    def pull_fails(self, source: BatchSource, *, ended: bool) -> None:
        """Record that no batch was received; `ended`: there are no more."""
        self._pulling = False
        if not ended:
            return
        source.over = True
        retracing.epoch_over()
        if not source.trained:
            return
        if self._begun and not self.updates and self.lane is not None:
            self.lane.cancel_step()
            self._begun = False
        if source is self.sources.main:
            self.report.epoch_over(source.steps)
            if self.lane is not None:
                self._epochs.ends(source.steps, self.lane.all_waits_ns)
        if self.lane is not None and not self.updates:
            self.lane.stop_clock()

    def _pull_after_step(self, source: BatchSource) -> None:
        """End the step, and begin the next one if the loop is known to train from what is pulled."""
        assert self.lane is not None
        if source.trained:
            alike = self._mark_if_alike
            self._end(None)
            self._begin()
            self._alike = alike
            return
        self._end(self._last_end_ns)
        self.lane.stop_clock()
        self.lane.obey()
        source.strange += 1

    # ------------------------------------------------------------ updates

    def update_begins(self, updater: Updater | None = None) -> bool:
        """Record that weights are about to be updated, eagerly by `updater`; return False if it is not watched."""
        if self.bundle.busy or not self.here:
            return False
        self.lane = self.lane or self._join()
        self.off = self.lane is None
        if self.off:
            return False
        if updater is not None and self.bundle.expects(updater):
            self.bundle.busy = self._updating = True
            return True
        self.catch_up()
        if self._due:
            self._end(None, in_batch=True)
            self._begin()
        if not self.updates:
            self._fed = self.sources.feed(self._step)
        if not self._begun:
            # It is known to be a step only now; it began with the pull of its first batch.
            assert self.lane is not None
            self._began_ns = min((source.first_ns for source in self._fed), default=time.monotonic_ns())
            self.lane.begin_step(self._began_ns)
            self._begun = True
            if self.report.doing != TRAINING:
                self._say(TRAINING)
        self._updating = True
        return True

    def update_ends(
        self, updater: Updater, loss: object, calls: int = 1, mark: Mark | None = None, function: object = None
    ) -> None:
        """Record that `updater` has updated weights; the loss is read later.

        Args:
            calls: How many calls of the optimizer that was; with 0 it was no update.
            function: What did it, if the next steps may be noted in `bundle` where they are like this one.
        """
        assert self.lane is not None
        self._updating = False
        if self.bundle.busy:
            self.bundle.update(loss)
            return
        if updater not in self.updaters:
            self.updaters.append(updater)
        updates = updater.made_more(calls)
        if not updates:
            return
        self._last_end_ns = time.monotonic_ns()
        self.updates += 1
        for source in self._fed:
            if not source.trained:
                self.trains(source.ref())
            source.trained, source.strange = True, 0
        self._loss, self._mark = loss, mark or updater
        self._in_graph |= mark is not None and mark.pulls
        self._due += self.rounds.plus(updater, updates)
        if self._past.steps and self.rounds.leader is not None:
            self._merge()
        if self.report.begins(self._mark, self._step):
            read = self._in_graph or bool(self.sources.pulled)
            self.lane.tell_step(self.report.describe(updater.name, given=any(self.given), read=read))
            self._epochs.place = line_of(users_frame())
        alike = self._alike if function is not None and self.rounds.settled else None
        if alike is not None and alike is self._mark_if_alike:
            ((_, (rows,)),) = self.sources.pulled
            self.bundle.follow(self.lane, self._fed[0], function, updater, rows, loss)

    def update_fails(self) -> None:
        """Record that an update raised an error; it may have been made all the same."""
        self._updating, self._cut = False, True
        if self.bundle.busy:
            self.catch_up()

    def _merge(self) -> None:
        """Take back the updates that were told as steps, and were one round."""
        assert self.lane is not None
        past, self._past = self._past, Past()
        examples = past.examples if self._in_graph else past.of_one_step
        self.report.doubts["examples"] = ""
        self.report.examples(examples)
        self.lane.take_back(past.steps - 1, 0 if isinstance(examples, str) else past.examples - examples)

    def confirm(self) -> int:
        """Return how many more steps the optimizers have counted than were told since the last call."""
        missed = 0
        for updater in self.updaters:
            more = updater.missed()
            if more == 1 and self._cut:
                self._cut = False
                continue
            missed += more
            if more:
                self.report.doubt(updater.differs(more), "examples", "loss")
                self.rounds.unsteady |= self.rounds.leader is not None or updater.every > 1
        return missed

    # ------------------------------------------------------------ steps that are alike

    @property
    def _mark_if_alike(self) -> Mark | Updater | None:
        """What made the one update of a step that read one batch, of the size that it was given; or None."""
        pulled, given = [*self.sources.pulled.elements()], [*self.given.elements()]
        if self._in_graph or not self.updates == self._due == len(pulled) == len(self._fed) == len(given) == 1:
            return None
        return self._mark if given[0] and pulled[0][1] == {given[0][0]} else None

    def catch_up(self) -> None:
        """Tell the lane of the steps that were noted, and go on with the one under way."""
        bundle = self.bundle
        self._cut |= bundle.busy
        if bundle.begun_ns or bundle.next_pull is not None:
            self.bundle = Bundle()
        if not bundle.begun_ns or self.lane is None:
            return
        steps = bundle.tell(self.lane, self.rounds, self.report)
        self._step += steps
        self.forget()
        self._begun, self._began_ns, self._pulling = True, bundle.begun_ns[-1], not bundle.received
        bundle.hand_on(self.sources)
        if bundle.updated:
            self._fed = self.sources.feed(self._step)
            self.updates = self._due = 1
            self._mark, self._last_end_ns, self._loss = bundle.mark, bundle.updated_ns, bundle.loss
        if len(bundle.given) > steps:
            self.given[bundle.given[-1],] = 1

    # ------------------------------------------------------------ steps

    def _begin(self) -> None:
        """Begin a step now, as soon as the lane may train."""
        assert self.lane is not None
        self.lane.begin_step()
        self._begun, self._began_ns = True, time.monotonic_ns()

    def _end(self, ended_ns: int | None, *, in_batch: bool = False) -> None:
        """End the step, now or with its last update, and tell the lane what it was; more may come of its batch."""
        assert self.lane is not None
        steps, pulled, given, loss = self._due, self.sources.pulled, self.given, self._loss
        for source in self._fed:
            source.steps += 1
        self._step += 1
        if not self._all_seen and (not in_batch or self._step >= SETTLED):
            self._all_seen = True
            self.all_seen()
        examples: int | str = 0
        if steps > 1:
            loss = None
        if not self._in_graph:
            examples = LOOP_IN_GRAPH if steps > 1 else examples_of(pulled, given, self.updates)
        examples_done = self.report.examples(examples)
        self.report.doubts["loss"] = "" if loss is not None else NO_LOSS if steps == 1 else LOOP_IN_GRAPH
        if not self.rounds.settled and self.rounds.leader is None:
            self._past.add(pulled, given, examples_done)
        elif self._past.steps:
            self._past = Past()
        input_ns = sum(source.wait_ns for source in self._fed if source.first_ns >= self._began_ns)
        self.lane.end_step(steps=steps, loss=loss, examples=examples_done, input_ns=input_ns, ended_ns=ended_ns)
        self._tell(sure=self.rounds.settled or self.rounds.leader is not None)
        main = self.sources.main
        if main is not None and main.steps == 1 and main in self._fed:
            self._epochs.begins(time.monotonic_ns() - self._began_ns)
            self._epochs.first_step(self.lane.all_waits_ns)
        self.forget()

    def _tell(self, *, sure: bool) -> None:
        """Tell the lane what is not known, once it is sure what a step is."""
        assert self.lane is not None
        if self.rounds.unsteady:
            self.report.doubt(NO_ROUNDS)
        if sure or self.rounds.unsteady:
            self.report.tell(self.lane)

    def gradient(self, given: Given) -> None:
        """Record that gradients were computed, in a function that was given tensors of these first dimensions."""
        if self.bundle.note_given(given):
            return
        self.catch_up()
        if self._due and not self._updating:
            self._end(None, in_batch=True)
            self._begin()
        self.given[given] += 1

    def _say(self, doing: str) -> None:
        """Report what the loop does from now on."""
        assert self.lane is not None
        self.report.doing = doing
        self.lane.report_progress(lambda: self.report.progress(self.sources.main))
