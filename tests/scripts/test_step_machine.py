"""Each cell of the table of states and events in the docstring of the step machine."""

from types import SimpleNamespace

import pytest

from tfmon.hooks import step_machine
from tfmon.hooks.optimizers import Updater
from tfmon.hooks.step_machine import StepMachine

OUTSIDE, READING, PART, UPDATED = "outside", "reading", "part", "updated"
PULL, OTHER, END, GRADIENT, UPDATE, LEAVE = "own pull", "other pull", "end of data", "gradient", "update", "leave"
EVENTS = (PULL, OTHER, END, GRADIENT, UPDATE, LEAVE)


def rows_of_table() -> dict[str, list[str]]:
    """Return the cells of the table in the docstring, by state."""
    lines = [line for line in str(step_machine.__doc__).splitlines() if " | " in line]
    assert tuple(part.strip() for part in lines[0].split("|"))[1:] == EVENTS
    rows = [[part.strip() for part in line.split("|")] for line in lines[1:]]
    return {state: cells for state, *cells in rows}


TABLE = rows_of_table()


class Lane:
    """Counts the steps that are reported to it."""

    def __init__(self) -> None:
        self.steps = 0
        self.meter = self.control = self.clock = self
        self.waiting = ()
        self.traces = None

    def alike_until(self) -> int:
        return 0

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
        self.turn = 0

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
            updater = self.optimizers[self.turn % len(self.optimizers)]
            self.turn += 1
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
    leads_there = {OUTSIDE: [OTHER], READING: [PULL], PART: [PULL, GRADIENT, UPDATE], UPDATED: []}
    for event in leads_there[state]:
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
