"""Each cell of the table of states and events in the docstring of the step machine."""

import itertools
import tracemalloc
from types import SimpleNamespace

import pytest

from tfmon.hooks import step_machine
from tfmon.hooks.optimizers import Updater
from tfmon.hooks.step_machine import StepMachine

OUTSIDE, READING, PART, UPDATED = "outside", "reading", "part", "updated"
PULL, OTHER, END, GRADIENT, UPDATE, LEAVE = "own pull", "other pull", "end of data", "gradient", "update", "leave"
EVENTS = (PULL, OTHER, END, GRADIENT, UPDATE, LEAVE)


LINES = [line for line in str(step_machine.__doc__).splitlines() if " | " in line]
(_, *HEADINGS), *ROWS = [[part.strip() for part in line.split("|")] for line in LINES]
assert tuple(HEADINGS) == EVENTS
TABLE = {state: cells for state, *cells in ROWS}


class Lane:
    def __init__(self) -> None:
        self.steps = 0
        self.meter = self.control = self.clock = self
        self.waiting = ()
        self.traces = None

    def end_step(self, *, steps, **_more) -> None:
        self.steps += steps

    def __getattr__(self, _name: str):
        return lambda *_args, **_more: 0


class Batches:
    """An iterator that can be referred to weakly."""


class Loop:
    """A training loop with one or two optimizers, and the machine's reports about it."""

    def __init__(self, optimizers: int = 1) -> None:
        self.lane = Lane()
        self.machine = StepMachine(lambda: self.lane)
        self.machine.report.of_keras = ("not eager",)  # the cause of eager steps is measured with TensorFlow
        self.own, self.other = Batches(), Batches()
        self.optimizers = [Updater((), f"optimizer {number}") for number in range(optimizers)]
        self.turns = itertools.cycle(self.optimizers)

    def pull(self, iterator: Batches) -> None:
        source = self.machine.pull_begins(iterator)
        self.machine.pull_ends(source, SimpleNamespace(shape=(32,)))

    def happens(self, event: str) -> None:
        machine = self.machine
        if event in (PULL, OTHER):
            self.pull(self.own if event == PULL else self.other)
        elif event == END:
            machine.pull_fails(machine.pull_begins(self.own), ended=True)
        elif event == GRADIENT:
            machine.gradient((32,))
        elif event == UPDATE:
            updater = next(self.turns)
            assert machine.update_begins(updater)
            machine.update_ends(updater, None)
        else:
            machine.finish()
            machine.forget()

    @property
    def state(self) -> str:
        step = self.machine.step
        if step.updates:
            return UPDATED if step.due else PART
        return READING if step.begun else OUTSIDE


def loop_in(state: str) -> Loop:
    """Return a loop in this state. It has trained before."""
    loop = Loop(2 if state == PART else 1)
    for _ in range(3 if state == PART else 1):
        for event in (PULL, *(GRADIENT, UPDATE) * len(loop.optimizers)):
            loop.happens(event)
    for event in {OUTSIDE: [OTHER], READING: [PULL], PART: [PULL, GRADIENT, UPDATE], UPDATED: []}[state]:
        loop.happens(event)
    assert loop.state == state
    return loop


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", TABLE)
def test_a_state_and_an_event_lead_to_what_the_table_says(state, event):
    loop = loop_in(state)
    before = loop.lane.steps
    loop.happens(event)
    ended = loop.lane.steps - before
    assert loop.state + " !" * ended == TABLE[state][EVENTS.index(event)]


@pytest.mark.parametrize("event", [PULL, OTHER, GRADIENT])
def test_a_loop_that_trains_no_more_takes_no_memory_in_the_script(event):
    loop = loop_in(UPDATED)
    for _ in range(500):  # fills the free lists of the interpreter
        loop.happens(event)
    tracemalloc.start()
    try:
        for _ in range(2_000):
            loop.happens(event)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 4_000, "2 bytes for a batch or gradient"
