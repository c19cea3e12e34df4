"""Tells where the steps of a training loop begin and end, from what the loop does: pulls of batches, and updates.

A step is a batch with at least one update. It ends before the next pull of the iterator that the loop reads first,
so that several updates on a batch, or several batches for an update, are one step. A loop that reads no iterator
ends its step where it makes the same update again.

A pull of an iterator that has fed no update may be the second input of the step, or validation. If no update
follows before the loop goes on, it was validation: the step ended with its last update, and the time since then is
in no step.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Hashable
from typing import Any

from tfmon.script.looking import place
from tfmon.script.loop_report import TRAINING, VALIDATION, LoopReport, Recorder

MOST_REPEATS = 16
"""The same update this often on one batch is one step; once more, and each of them is a step."""
VALIDATION_PULLS = 3
"""So many pulls in a row of an iterator that has never fed an update are validation."""
LOOP_NS = 200_000_000
"""Shortest time between two counts of the steps of a loop inside of a graph: a count waits for the device."""


class Source:
    """An iterator that the script pulls batches from."""

    __slots__ = ("began_ns", "fed", "first_ns", "in_row", "last_step", "over", "pulls", "ref", "rows", "steps",
                 "strange", "trained", "wait_ns")  # fmt: skip

    def __init__(self, iterator: object) -> None:
        self.ref = weakref.ref(iterator)
        self.over = self.fed = self.trained = False
        self.pulls = self.strange = self.steps = self.in_row = 0
        self.last_step = -1
        self.began_ns = self.first_ns = self.wait_ns = self.rows = 0

    @property
    def open(self) -> bool:
        """Whether it may still be pulled from."""
        return not self.over and self.ref() is not None

    def in_step(self, step: int) -> None:
        """Record that it was pulled from for a step, and for how many in a row."""
        if self.last_step != step:
            self.in_row = self.in_row + 1 if self.last_step == step - 1 else 1
            self.last_step = step


class StepWatcher:
    """Follows the loop of one thread.

    Thread: the first one with an update; calls from others are ignored.
    Units: nanoseconds of `time.monotonic_ns`.
    """

    def __init__(self, join: Callable[[], Recorder | None]) -> None:
        """Watch nothing yet; `join` returns the lane, or None if this process is not it."""
        self.off = False
        """True once this process is known not to be the lane, or the script reports its steps itself."""
        self.lane: Recorder | None = None
        self._reported = False
        self._join = join
        self.aside = 0
        """More than 0 while another watcher follows what the script does."""
        self.forget()
        self._thread = 0
        self._sources: dict[int, Source] = {}
        self._primary: Source | None = None
        self._by_site = False
        self._step = self._last_rows = 0
        self._report = LoopReport()

    def forget(self) -> None:
        """Begin a step without anything in it."""
        self.updates = 0
        self._pulled: list[Source] = []
        self._sites: dict[Hashable, int] = {}
        self._begun = self._foreign = self._pulling = self._updating = False
        self._began_ns = self._rows = self._last_end_ns = 0
        self._loss: Any = None
        self._iterations: Callable[[], int] | None = None
        self._iterations_before = 0

    # ------------------------------------------------------------ who is watched

    @property
    def mine(self) -> bool:
        """Whether the calling thread trains, or no thread is known to train yet."""
        return self.lane is None or threading.get_ident() == self._thread

    @property
    def reads(self) -> object:
        """The iterator that the loop reads first; None if it reads none, or that is not known."""
        return None if self._primary is None or self.aside else self._primary.ref()

    @property
    def here(self) -> bool:
        """Whether the calling thread is watched now."""
        if self.off or self.aside or self._updating:
            return False
        ident = threading.get_ident()
        if ident == self._thread:
            return True
        if self.lane is not None:
            return False
        self.forget()
        self._thread = ident
        self._sources.clear()
        return True

    def step_aside(self) -> bool:
        """Leave what follows to another watcher; return whether `come_back` must be called."""
        if self.off and not self._reported:
            return False
        if self.lane is not None and threading.get_ident() != self._thread:
            return False
        if not self.aside:
            self.finish()
            self._report.doing = ""
        self.aside += 1
        return True

    def come_back(self) -> None:
        """Watch again, also a script that reported its steps before."""
        self.aside -= 1
        if self._reported:
            self.off = self._reported = False

    def finish(self) -> None:
        """End the step under way with its last update: no other follows for a while."""
        if self.lane is None:
            return
        if self.updates:
            self._end(self._last_end_ns)
        elif self._begun:
            self.lane.cancel_step()
            self._begun = False
        self.lane.stop_clock()

    def retire(self, *, reported: bool = False) -> None:
        """Watch no more; until Keras has trained if the script has `reported` a step itself."""
        self.off, self._reported = True, reported
        self.forget()

    # ------------------------------------------------------------ pulls

    def pull_begins(self, iterator: object) -> Source | None:
        """Record that a batch is pulled, and end the step before it; return None if it is not watched."""
        if self._pulling or not self.here:
            return None
        source = self._sources.get(id(iterator))
        if source is None or source.ref() is not iterator:
            source = self._opened(iterator)
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
        if source not in self._pulled:
            self._pulled.append(source)
            source.first_ns, source.wait_ns, source.rows, source.fed = source.began_ns, 0, 0, False
        source.wait_ns += waited_ns
        source.rows += rows

    def pull_fails(self, source: Source, *, ended: bool) -> None:
        """Record that no batch was received; `ended`: there are no more."""
        self._pulling = False
        if not ended:
            return
        source.over = True
        if source in self._pulled and not source.fed:
            self._pulled.remove(source)
        if not source.trained:
            return
        if self._begun and not self.updates and self.lane is not None:
            self.lane.cancel_step()
            self._begun = False
        if self._primary is None or source is self._primary or not self._primary.open:
            self._report.epoch_over(source.steps)
        if self.lane is not None and not self.updates:
            self.lane.stop_clock()

    def _opened(self, iterator: object) -> Source:
        for key in [key for key, source in self._sources.items() if not source.open]:
            del self._sources[key]
        source = self._sources[id(iterator)] = Source(iterator)
        return source

    def _pull_before_step(self, lane: Recorder, source: Source) -> None:
        """Wait while the lane is paused where a step may begin, and tell validation from that."""
        if not source.pulls or source is self._primary:
            lane.obey()
        source.strange += not source.trained
        if source.strange == VALIDATION_PULLS:
            self._say(VALIDATION)

    def _pull_after_update(self, source: Source) -> None:
        """End the step if this pull begins the next one, or if it shows that validation has begun."""
        if self._iterations is not None and not self._loop_is_due():
            return
        fed = [one for one in self._pulled if one.fed and one.open]
        assert self.lane is not None
        if not fed:
            # A loop was left by `break`, or reads no iterator: what this one is for is not known yet.
            self._end(self._last_end_ns)
            self.lane.stop_clock()
            self.lane.obey()
        elif source is self._primary if self._primary in fed else source in fed:
            self._end(self._last_end_ns if self._foreign else None)
            self._begin()
        else:
            self._foreign = True
            source.strange += 1
            if not source.trained and source.strange >= VALIDATION_PULLS:
                self._end(self._last_end_ns)
                self.lane.stop_clock()
                self._say(VALIDATION)

    # ------------------------------------------------------------ updates

    def update_begins(self, site: int, iterations: Callable[[], int] | None = None) -> bool:
        """Record that weights are about to be updated; return False if it is not watched.

        Args:
            site: what makes the update.
            iterations: returns the number of updates made so far, for an update that makes many of them.
        """
        if not self.here or (self.lane is None and not self._joined()):
            return False
        if self.updates:
            self._update_again(self._place(site))
        else:
            self._drop_closed()
        if not self._begun:
            self._begin_late()
        if iterations is not None and self._iterations is None:
            self._iterations, self._iterations_before = iterations, iterations()
        self._site, self._foreign, self._updating = self._place(site), False, True
        return True

    def update_ends(self, loss: object, rows: int) -> None:
        """Record that weights were updated.

        Args:
            loss: a tensor or a function that returns the loss, or None; it is read later.
            rows: the examples of the update as far as its arguments tell; 0 if they do not, -1 if they are counted
                in another way.
        """
        self._updating = False
        self._last_end_ns = time.monotonic_ns()
        self.updates += 1
        self._sites[self._site] = self._sites.get(self._site, 0) + 1
        for source in self._pulled:
            source.fed = source.trained = True
            source.strange = 0
        self._rows = self._rows or rows
        if loss is not None:
            self._loss = loss

    def update_fails(self) -> None:
        """Record that an update raised an error."""
        self._updating = False

    def _place(self, site: int) -> Hashable:
        """Return the site, with the line of the script where nothing else tells where a step ends."""
        return place(site) if self._by_site or not self._pulled else site

    def _drop_closed(self) -> None:
        """Forget iterators that are closed before the first update: the loop does not read them."""
        closed = [source for source in self._pulled if not source.open]
        if closed:
            self._pulled = [source for source in self._pulled if source.open]
            self._last_rows = closed[-1].rows

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
        elif self._by_site or not self._pulled:
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
            for source in self._pulled:
                source.in_step(self._step)
            # What is pulled now and then is for validation; what is pulled for each step is its input.
            self._by_site = not any(source.in_row > 1 for source in self._pulled)
            self._pulled = [] if self._by_site else self._pulled
        firsts = [source.first_ns for source in self._pulled if source.open or source.fed]
        if self._primary in self._pulled and self._primary is not None:
            firsts = [self._primary.first_ns]
        self._began_ns = min(firsts, default=time.monotonic_ns())
        self.lane.begin_step(self._began_ns)
        self._begun = True
        if self._report.doing != TRAINING:
            self._say(TRAINING)

    def _end(self, ended_ns: int | None, steps: int = 1) -> None:
        """End the step, now or with its last update, and tell the lane what it was."""
        assert self.lane is not None
        fed = [source for source in self._pulled if source.fed]
        for source in fed:
            source.in_step(self._step)
            source.steps += 1
        self._step += 1
        giver = self._giver(fed)
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
            self._report.tell_unknown(
                self.lane,
                examples=counted or examples > 0,
                loss=self._loss is not None,
                in_graph=self._iterations is not None,
            )
        else:
            self.lane.cancel_step()
        self.forget()

    def _giver(self, fed: list[Source]) -> Source | None:
        """Return the iterator whose batch has the step's examples; remember the one that the loop reads first."""
        again = next((source for source in fed if source.in_row > 1), None)
        if self._primary not in fed:
            self._primary = again
        return self._primary or (fed[-1] if fed else None)

    def _say(self, doing: str) -> None:
        """Report what the loop does from now on."""
        assert self.lane is not None
        self._report.doing = doing
        self.lane.report_progress(lambda: self._report.progress(self._primary.steps if self._primary else None))
