"""Real children over real pipes, without TensorFlow; and processes that only log their requests."""

import signal
import threading
from collections.abc import Callable, Iterator

import pytest
from support.lanes import Heard, plan_of
from support.waiting import PATIENCE_S, wait_for

from tfmon.lanes.lane_process import LocalProcess, wait_ended


class Child(Heard, LocalProcess):
    """A child that runs the function SAYS of `speaker.py`, with all its events."""

    def __init__(self, says: str, lane: str, **environment: str | None) -> None:
        self.events = []
        super().__init__(plan_of(says, lane, **environment), lambda _, event: self.events.append(event))

    @property
    def process(self) -> LocalProcess:
        return self


@pytest.fixture
def start() -> Iterator[Callable[..., Child]]:
    children: list[Child] = []
    failures: list[str] = []

    def speak(says: str, lane: str = "cpu", **environment: str | None) -> Child:
        children.append(Child(says, lane, **environment))
        children[-1].start_reading(failures.append)
        return children[-1]

    yield speak
    for child in children:
        if not child.ended:
            child.kill(signal.SIGKILL)
    assert wait_ended(children, PATIENCE_S)
    wait_for(
        lambda: "tfmon-reader" not in [one.name for one in threading.enumerate()], what="the threads have ended"
    )
    assert not failures
