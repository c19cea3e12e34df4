"""Reports a loop to the lane."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tfmon.hooks.cause_reports import causes
from tfmon.hooks.counts import LOOP_IN_GRAPH, examples_of
from tfmon.hooks.epochs import Epochs
from tfmon.hooks.graph_marks import Mark
from tfmon.hooks.inspection import line_now
from tfmon.hooks.sources import BatchSource, Past, SeenStep, Sources
from tfmon.hooks.step_causes import step_causes
from tfmon.hooks.update_rounds import NO_ROUNDS, SETTLED, Rounds
from tfmon.model.lane_events import EAGER, Progressed
from tfmon.system.lane_clock import lane_clock

if TYPE_CHECKING:
    from tfmon.hooks.script_lane import Lane

TRAINING, VALIDATION = "training", "validation"
VALIDATION_PULLS = 3
"""Consecutive untrained pulls that show a validation."""
NO_LOSS = "the training step returns no value that was differentiated"


class LoopReport:
    """Progress of a loop. Thread: the loop's."""

    def __init__(self) -> None:
        self.doing = ""
        self._epoch = 1
        self._batches: int | None = None
        self._reported: set[str] = set()
        self.doubts: dict[str, str] = {}
        """Reasons for unknown values. An empty reason means known again."""
        self._kinds: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()
        self.epochs = Epochs()
        self.variables: Callable[[], list[Any]] = list
        self.of_keras: Sequence[str] = ()

    def report_doing(self, lane: Lane, doing: str, sources: Sources) -> None:
        """Report the loop's progress from now on."""
        self.doing = doing
        lane.report_progress(lambda: self.progress(sources.main))

    def updated(self, lane: Lane, step: SeenStep, number: int, name: str, *, read: bool) -> None:
        """Report the meaning of a step once per kind."""
        if step.mark in self._kinds:
            return
        begins = number >= max(self._kinds.values(), default=-SETTLED) + SETTLED
        self._kinds[step.mark] = number
        if begins:
            first_dimension = "the first dimension of what it is given"
            examples = first_dimension if any(step.gradient_rows) else "what is read for it" if read else "n/a"
            self.epochs.line = line_now()
            eager = not isinstance(step.mark, Mark) and not self.of_keras
            if eager:
                step_causes.rows = max((rows for dims in step.gradient_rows for rows in dims), default=0)
                step_causes.runs_eagerly(self.epochs.line, self.variables())
            lane.describe_step(
                f"{self.epochs.line}: an update by {name}; examples: {examples}",
                self.of_keras or [EAGER] * eager,
            )

    def step_begins(self, lane: Lane, step: SeenStep, main: BatchSource | None) -> None:
        """Report the first update of a step."""
        if main is not None and not main.steps and main in step.fed:
            self.epochs.begins(lane.meter.all_waits_ns, lane_clock.now_ns() - step.began_ns)

    def step_over(
        self, lane: Lane, step: SeenStep, sources: Sources, rounds: Rounds, ended_ns: int | None
    ) -> None:
        """Report an ended step."""
        steps, pulled, main, sure = step.due, sources.pulled, sources.main, rounds.sure
        examples = self.examples(step.examples(pulled))
        loss = step.loss if steps == 1 else None
        if not self.doubts.get("steps"):
            self.doubts["loss"] = "" if loss is not None else NO_LOSS if steps == 1 else LOOP_IN_GRAPH
        if not sure:
            rounds.past.add(pulled, step.gradient_rows, examples)
        elif rounds.past.steps:
            rounds.take_past()
        input_ns = 0
        for source in step.fed:
            input_ns += source.wait_ns if source.first_ns >= step.began_ns else 0
            if source.anew:
                causes.saw("iterator_anew", source.anew, cost_ns=source.wait_ns)
        lane.meter.end_step(steps=steps, loss=loss, examples=examples, input_ns=input_ns, ended_ns=ended_ns)
        self.report_unknown(lane, rounds, sure=sure)
        if main is not None and main.steps == 1 and main in step.fed:
            self.epochs.first_step(lane.meter.all_waits_ns)
            lane.look()

    def merge(self, lane: Lane, past: Past, *, in_graph: bool) -> None:
        """Replace reported steps by a single step."""
        examples = past.examples if in_graph else examples_of(past.pulled, past.gradient_rows, past.steps)
        self.doubts["examples"] = ""
        self.examples(examples)
        lane.control.clock.take_back(past.steps - 1, 0 if isinstance(examples, str) else past.examples - examples)

    def epoch_over(self, lane: Lane | None, batches: int) -> None:
        """Record the end of an epoch."""
        self._batches = batches
        self._epoch += 1
        if lane is not None:
            self.epochs.ends(batches, lane.meter.all_waits_ns)

    def progress(self, main: BatchSource | None) -> Progressed:
        """Return the loop's progress."""
        begun = self._epoch - int(main is not None and main.over)
        return Progressed(
            doing=self.doing,
            epoch=begun if self._batches is not None or main is not None else 0,
            batch=main.steps if main is not None else 0,
            batches=self._batches,
            epochs_done=self._epoch - 1,
        )

    def examples(self, counted: int | str) -> int:
        """Return a known number of examples, or store the reason and return 0."""
        if isinstance(counted, str):
            self.doubts["examples"] = self.doubts.get("examples") or counted
        return 0 if isinstance(counted, str) or "examples" in self._reported else counted

    def doubt(self, reason: str, *parts: str) -> None:
        """Mark values of the steps as unknown."""
        self.doubts.update(dict.fromkeys(parts or ("steps", "examples", "loss"), reason))

    def report_unknown(self, lane: Lane, rounds: Rounds, *, sure: bool) -> None:
        """Report each unknown value once."""
        if rounds.unsteady:
            self.doubt(NO_ROUNDS)
        for figure, reason in self.doubts.items() if sure or rounds.unsteady else ():
            if reason and figure not in self._reported:
                lane.cannot_know(figure, reason)
                self._reported.add(figure)
