"""Real children over real pipes, without TensorFlow; and processes that only log their requests."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.lanes import CHILDREN, Heard
from support.scheduling import begin, race
from support.waiting import PATIENCE_S, wait_for

from tfmon.lanes.lane_process import LocalProcess
from tfmon.lanes.pipe_reader import PipeReader
from tfmon.model.events import Event, LaneEnded

__all__ = ["begin", "race"]


class Child(Heard, LocalProcess):
    """A child that runs the function SAYS of `speaker.py`, with all its events."""

    def __init__(self, says: str, lane: str, **environment: str | None) -> None:
        self.events: list[Event] = []
        python, script = Path(sys.executable), CHILDREN / "speaker.py"
        variables = {"SAYS": says, **environment}
        super().__init__(lane, python, variables, lambda _, event: self.events.append(event), script)

    @property
    def process(self) -> LocalProcess:
        return self

    @property
    def end(self) -> LaneEnded:
        wait_for(lambda: self.ended, what="the child has ended")
        (end,) = [event for event in self.events if isinstance(event, LaneEnded)]
        assert self.events[-1] is end
        return end


@pytest.fixture
def gate(tmp_path):
    """A file that a lane waits for before it is ready."""
    return tmp_path / "gate"


@pytest.fixture
def reader() -> Iterator[PipeReader]:
    failures: list[str] = []
    reader = PipeReader(failures.append)
    yield reader
    reader.close()
    wait_for(
        lambda: "tfmon-reader" not in [one.name for one in threading.enumerate()], what="the thread has ended"
    )
    assert not failures


@pytest.fixture
def start(reader) -> Iterator[Callable[..., Child]]:
    """Start a child by the name of its function, and read it."""
    children: list[Child] = []

    def speak(says: str, lane: str = "cpu", **environment: str | None) -> Child:
        children.append(Child(says, lane, **environment))
        reader.watch(children[-1])
        return children[-1]

    yield speak
    for child in children:
        if not child.ended:
            child.kill(signal.SIGKILL)
    assert reader.wait_ended(children, PATIENCE_S)
