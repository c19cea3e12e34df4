"""Tells where the steps of a training loop begin and end, from what the loop does: pulls of batches, and updates.

A step is a batch with at least one update. It ends before the next pull of the iterator that the loop reads first,
so that several updates on a batch, or several batches for an update, are one step. A loop that reads no iterator
ends its step where it makes the same update again.

A pull of an iterator that has fed no update may be the second input of the step, or validation. If no update
follows before the loop goes on, it was validation: the step ended with its last update, and the time since then is
in no step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any

from tfmon.model.lane_events import Progressed
from tfmon.script.bundle import Bundle
from tfmon.script.followed import Followed
from tfmon.script.looking import place
from tfmon.script.loop_report import TRAINING, VALIDATION, Recorder
from tfmon.script.marks import Mark
from tfmon.script.sources import Source, Sources, nothing

MOST_REPEATS = 16
"""The same update this often on one batch is one step; once more, and each of them is a step."""
VALIDATION_PULLS = 3
"""So many pulls in a row of an iterator that has never fed an update are validation."""
LOOP_NS = 200_000_000
"""Shortest time between two counts of the steps of a loop inside of a graph: a count waits for the device."""


class StepWatcher(Followed):
    """Follows the loop of one thread.

    Thread: the first one with an update; calls from others are ignored.
    Units: nanoseconds of `time.monotonic_ns`.
    """

    def __init__(self, join: Callable[[], Recorder | None]) -> None:
        """Watch nothing yet; `join` returns the lane, or None if this process is not it."""
        super().__init__()
        self.trains: Callable[[object], None] = nothing
        """Is called with each iterator that turns out to be trained from."""
        self.first_step_over: Callable[[], None] = nothing
        """Is called after the first step."""
        self._join = join
        self.sources = Sources()
        self.bundle = Bundle()
        self._by_site = False
        self._step = self._last_rows = 0
        self.forget()

    def begin_anew(self) -> None:
        """Begin to follow a thread: nothing is known of it."""
        self.forget()
        self.sources = Sources()

    def forget(self) -> None:
        """Begin a step without anything in it."""
        self.bundle.stop()
        self.updates = 0
        self.sources.pulled = []
        self._sites: dict[Hashable, int] = {}
        self._begun = self._foreign = self._pulling = self._updating = False
        self._began_ns = self._rows = self._last_end_ns = self._iterations_before = 0
        self._loss: Any = None
        self._site: Hashable = None
        self._alike: Hashable = None
        """What made the update of the step before, if that was one that may be noted."""
        self._iterations: Callable[[], int] | None = None

    def finish(self) -> None:
        """End the step under way with its last update: no other follows for a while."""
        if self.lane is None:
            return
        self.catch_up()
        if self.updates:
            self._end(self._last_end_ns)
        elif self._begun:
            self.lane.cancel_step()
            self._begun = False
        self.lane.stop_clock()

    # ------------------------------------------------------------ pulls

    def pull_begins(self, iterator: object) -> Source | None:
        """Record that a batch is pulled, and end the step before it; return None if it is not watched."""
        if self._pulling or self.bundle.busy or not self.here:
            return None
        self.catch_up()
        source = self.sources.of(iterator)
        if self.updates:
            self._pull_after_update(source)
        elif self.lane is not None and not self._begun:
            self._pull_before_step(self.lane, source)
        source.pulls += 1
        self._pulling = True
        source.began_ns = time.monotonic_ns()
        return source

    def pull_ends(self, source: Source, rows: int) -> None:
        """Record that a batch of `rows` examples was received."""
        waited_ns = time.monotonic_ns() - source.began_ns
        self._pulling = False
        if source not in self.sources.pulled:
            self.sources.pulled.append(source)
            source.first_ns, source.wait_ns, source.rows, source.fed = source.began_ns, 0, 0, False
        source.wait_ns += waited_ns
        source.rows += rows

    def pull_fails(self, source: Source, *, ended: bool) -> None:
        """Record that no batch was received; `ended`: there are no more."""
        self._pulling = False
        if not ended:
            return
        source.over = True
        if source in self.sources.pulled and not source.fed:
            self.sources.pulled.remove(source)
        if not source.trained:
            return
        if self._begun and not self.updates and self.lane is not None:
            self.lane.cancel_step()
            self._begun = False
        if self.sources.primary is None or source is self.sources.primary or not self.sources.primary.open:
            self.report.epoch_over(source.steps)
        if self.lane is not None and not self.updates:
            self.lane.stop_clock()

    def _pull_before_step(self, lane: Recorder, source: Source) -> None:
        """Wait while the lane is paused where a step may begin, and tell validation from that."""
        if not source.pulls or source is self.sources.primary:
            lane.obey()
        source.strange += not source.trained
        if source.strange == VALIDATION_PULLS:
            self._say(VALIDATION)

    def _pull_after_update(self, source: Source) -> None:
        """End the step if this pull begins the next one, or if it shows that validation has begun."""
        if self._iterations is not None and not self._loop_is_due():
            return
        fed = [one for one in self.sources.pulled if one.fed and one.open]
        assert self.lane is not None
        if not fed:
            # A loop was left by `break`, or reads no iterator: what this one is for is not known yet.
            self._end(self._last_end_ns)
            self.lane.stop_clock()
            self.lane.obey()
        elif source is self.sources.primary if self.sources.primary in fed else source in fed:
            alike = self._update_if_alike
            self._end(self._last_end_ns if self._foreign else None)
            self._begin()
            self._alike = alike
        else:
            self._foreign = True
            source.strange += 1
            if not source.trained and source.strange >= VALIDATION_PULLS:
                self._end(self._last_end_ns)
                self.lane.stop_clock()
                self._say(VALIDATION)

    # ------------------------------------------------------------ updates

    def update_begins(self, site: Hashable, iterations: Callable[[], int] | None = None) -> bool:
        """Record that weights are about to be updated; return False if it is not watched.

        Args:
            site: what makes the update.
            iterations: returns the number of updates made so far, for an update that makes many of them.
        """
        if self.bundle.busy or not self.here or (self.lane is None and not self._joined()):
            return False
        self.catch_up()
        if self.updates:
            self._update_again(self._place(site))
        else:
            self._last_rows = self.sources.drop_closed() or self._last_rows
        if not self._begun:
            self._begin_late()
        if iterations is not None and self._iterations is None:
            self._iterations, self._iterations_before = iterations, iterations()
        self._site, self._foreign, self._updating = self._place(site), False, True
        return True

    def update_ends(self, loss: object, rows: int, function: object = None) -> None:
        """Record that weights were updated.

        Args:
            loss: a tensor or a function that returns the loss, or None; it is read later.
            rows: the examples of the update as far as its arguments tell; 0 if they do not, -1 if they are counted
                in another way.
            function: what made it, if the next steps may be noted in `bundle` where they are like this one.
        """
        self._updating = False
        self._last_end_ns = time.monotonic_ns()
        self.updates += 1
        self._sites[self._site] = self._sites.get(self._site, 0) + 1
        for source in self.sources.pulled:
            if not source.trained:
                self.trains(source.ref())
            source.fed = source.trained = True
            source.strange = 0
        self._rows = self._rows or rows
        if loss is not None:
            self._loss = loss
        if function is not None and self._alike is not None and self._alike is self._update_if_alike:
            assert self.lane is not None
            until_ns = self.lane.alike_until()
            if until_ns:
                assert isinstance(self._site, Mark)
                self.bundle.follow(self.lane, self.sources.pulled[0], self._site, function, self._loss, until_ns)

    def update_fails(self) -> None:
        """Record that an update raised an error."""
        self._updating = False

    def _place(self, site: Hashable) -> Hashable:
        """Return the site, with the line of the script where nothing else tells where a step ends."""
        return place(site) if self._by_site or not self.sources.pulled else site

    def _joined(self) -> bool:
        self.lane = self._join()
        self.off = self.lane is None
        return not self.off

    def _update_again(self, site: Hashable) -> None:
        """End the step if the loop reads nothing that could tell where the step ends."""
        repeats = self._sites.get(site, 0)
        if self._iterations is not None:
            if repeats and self._loop_is_due():
                self._end(None)
        elif self._by_site or not self.sources.pulled:
            if repeats:
                self._by_site = True
                self._end(None)
                self._begin()
        elif repeats >= MOST_REPEATS:
            self._end(None, steps=repeats)
            self._by_site = True
            self._begin()

    def _loop_is_due(self) -> bool:
        return time.monotonic_ns() - self._began_ns >= LOOP_NS

    # ------------------------------------------------------------ steps that are alike

    @property
    def _update_if_alike(self) -> Hashable | None:
        """What made the one update of a step that read the primary iterator alone, once; None for other steps."""
        if self.updates != 1 or self._by_site or self._foreign or self._iterations is not None:
            return None
        primary = self.sources.primary
        return self._site if primary is not None and primary.rows and self.sources.pulled == [primary] else None

    def catch_up(self) -> None:
        """Tell the lane of the steps that were noted, and go on with the one under way."""
        bundle, ends_ns = self.bundle, self.bundle.begun_ns
        steps = len(ends_ns)
        if not steps or self.lane is None:
            bundle.stop()
            return
        source, mark, rows, waits_ns = bundle.source, bundle.mark, bundle.rows, bundle.waits_ns
        received, updated, updated_ns, loss = bundle.received, bundle.updated, bundle.updated_ns, bundle.loss
        self.lane.end_steps(
            ends_ns,
            loss=bundle.loss_before if updated else loss,
            examples=sum(rows[:steps]),
            input_ns=sum(waits_ns[:steps]),
        )
        source.in_step(self._step, steps)
        source.steps += steps
        source.pulls += steps
        self._step += steps
        self.forget()
        self._begun, self._began_ns, self._pulling = True, ends_ns[-1], not received
        source.began_ns = source.first_ns = ends_ns[-1]
        self._last_rows = rows[-1]
        if received:
            self.sources.pulled = [source]
            source.wait_ns, source.rows, source.fed = waits_ns[-1], rows[-1], updated
        if updated:
            self.updates, self._sites, self._site = 1, {mark: 1}, mark
            self._last_end_ns, self._loss = updated_ns, loss

    # ------------------------------------------------------------ steps

    def _begin(self) -> None:
        """Begin a step now, as soon as the lane may train."""
        assert self.lane is not None
        self.lane.begin_step()
        self._begun, self._began_ns = True, time.monotonic_ns()

    def _begin_late(self) -> None:
        """Begin the step with the pull of its first batch: that it is one is known only at its update."""
        assert self.lane is not None
        if self._by_site:
            for source in self.sources.pulled:
                source.in_step(self._step)
            # What is pulled now and then is for validation; what is pulled for each step is its input.
            self._by_site = not any(source.in_row > 1 for source in self.sources.pulled)
            self.sources.pulled = [] if self._by_site else self.sources.pulled
        firsts = [source.first_ns for source in self.sources.pulled if source.open or source.fed]
        if self.sources.primary in self.sources.pulled and self.sources.primary is not None:
            firsts = [self.sources.primary.first_ns]
        self._began_ns = min(firsts, default=time.monotonic_ns())
        self.lane.begin_step(self._began_ns)
        self._begun = True
        if self.report.doing != TRAINING:
            self._say(TRAINING)

    def _end(self, ended_ns: int | None, steps: int = 1) -> None:
        """End the step, now or with its last update, and tell the lane what it was."""
        assert self.lane is not None
        fed = [source for source in self.sources.pulled if source.fed]
        for source in fed:
            source.in_step(self._step)
            source.steps += 1
        self._step += 1
        if self._step == 1:
            self.first_step_over()
        giver = self.sources.giver(fed)
        if giver is not None:
            self._last_rows = examples = giver.rows
        else:
            examples = self._rows or (self._last_rows if self._by_site else 0)
        counted, examples = examples < 0, max(0, examples)
        if self._iterations is not None:
            steps = self._iterations() - self._iterations_before
        elif examples:
            examples *= steps
        if steps > 0:
            input_ns = sum(source.wait_ns for source in fed if source.first_ns >= self._began_ns)
            self.lane.end_step(
                steps=steps, loss=self._loss, examples=examples, input_ns=input_ns, ended_ns=ended_ns
            )
            self.report.tell_unknown(
                self.lane,
                examples=counted or examples > 0,
                loss=self._loss is not None,
                in_graph=self._iterations is not None,
            )
        else:
            self.lane.cancel_step()
        self.forget()

    def _say(self, doing: str) -> None:
        """Report what the loop does from now on."""
        assert self.lane is not None
        self.report.doing = doing
        self.lane.report_progress(self._progress)

    def _progress(self) -> Progressed:
        primary = self.sources.primary
        return self.report.progress(primary.steps if primary is not None else None)
