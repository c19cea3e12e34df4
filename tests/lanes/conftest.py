"""Real children over real pipes, without TensorFlow."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from support.waiting import wait_for

from tfmon.lanes.group import LaneGroup
from tfmon.lanes.plan import LanePlan, RacePlan
from tfmon.lanes.process import LaneProcess
from tfmon.lanes.pump import Pump
from tfmon.model.events import BadLine, Event, LaneEnded, PhaseEntered
from tfmon.model.knobs import COMMON, Knob
from tfmon.model.session import CONCURRENT, Machine, Race, Session
from tfmon.model.spec import name_lanes, parse_lane

CHILDREN = Path(__file__).parent / "children"
KNOBS = (*COMMON, Knob("width", default=128, help="Units.", kind="restart", low=1))


def gone(pid: int) -> bool:
    """Whether a process has ended; one that is dead and not yet reaped by init counts."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def frozen(pid: int) -> bool:
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED


class Child(LaneProcess):
    """A child that says what SAYS names, and all that was heard of it."""

    def __init__(self, says: str, lane: str, **environment: str | None) -> None:
        self.events: list[Event] = []
        python, script = Path(sys.executable), CHILDREN / "speaker.py"
        super().__init__(lane, python, {"SAYS": says, **environment}, self.events.append, script)

    @property
    def phases(self) -> list[str]:
        return [event.phase for event in self.events if isinstance(event, PhaseEntered)]

    @property
    def problems(self) -> list[str]:
        return [event.problem for event in self.events if isinstance(event, BadLine)]

    @property
    def end(self) -> LaneEnded:
        wait_for(lambda: self.ended, 30, "the child has ended")
        (end,) = [event for event in self.events if isinstance(event, LaneEnded)]
        assert self.events[-1] is end
        return end

    def wait_for_phase(self, phase: str) -> None:
        wait_for(lambda: phase in self.phases, 30, phase)


@pytest.fixture
def pump() -> Iterator[Pump]:
    pump = Pump()
    pump.start()
    yield pump
    pump.close()
    pump.join(10)
    assert not pump.is_alive()


@pytest.fixture
def start(pump) -> Iterator[Callable[..., Child]]:
    """Start a child that says what is named, and read it."""
    children: list[Child] = []

    def begin(says: str, lane: str = "cpu", **environment: str | None) -> Child:
        children.append(Child(says, lane, **environment))
        pump.watch(children[-1])
        return children[-1]

    yield begin
    for child in children:
        if not child.ended:
            child.kill(signal.SIGKILL)
    assert pump.wait_ended(children, 10)


class RacingGroup(LaneGroup):
    """A group of fake trainers, and what its session knows of them."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self.session = Session(Machine(), lambda: 0)
        super().__init__(
            self.session, lambda scenario: self.plan("cpu", scenario=scenario), CHILDREN / "trainer.py"
        )

    def plan(
        self,
        *lanes: str,
        mode: str = CONCURRENT,
        scenario: str = "fake",
        environment: dict[str, dict[str, str]] | None = None,
        python: str = sys.executable,
        **more,
    ) -> RacePlan:
        specs = name_lanes([parse_lane(text, KNOBS) for text in lanes])
        defaults = {knob.name: knob.default for knob in KNOBS}
        plans = tuple(
            LanePlan(
                spec,
                {**defaults, **spec.settings},
                {"LOG": str(self.logs / spec.name), **(environment or {}).get(spec.name, {})},
            )
            for spec in specs
        )
        race = Race(scenario=scenario, mode=mode, knobs=KNOBS)
        return RacePlan(race, Path(f"{scenario}.py"), plans, Path(python), **{"slice_s": 0.05, **more})

    def lane(self, name: str):
        return self.session.snapshot().lane(name)

    def pid(self, name: str) -> int:
        return self.pids()[name]

    def requests(self, name: str) -> list[str]:
        """What the lane's child was asked, in words."""
        log = self.logs / name
        return log.read_text().splitlines() if log.exists() else []

    def wait_for(self, phase: str, *names: str) -> None:
        wait_for(lambda: all(self.lane(name).phase == phase for name in names), 30, f"{names} {phase}")

    def wait_for_steps(self, name: str, more: int = 1) -> None:
        before = self.lane(name).steps
        wait_for(lambda: self.lane(name).steps >= before + more, 30, f"{name} trains")


@pytest.fixture
def group(tmp_path) -> Iterator[RacingGroup]:
    group = RacingGroup(tmp_path)
    yield group
    group.stop()
