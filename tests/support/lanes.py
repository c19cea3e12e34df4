"""A group of real children that train nothing, with its session."""

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from support.waiting import PATIENCE_S, wait_for
from tfmon.lanes import lane_process
from tfmon.lanes.group import LaneGroup
from tfmon.lanes.lane_process import LaneProcess
from tfmon.lanes.launch import ProcessPlan
from tfmon.lanes.plan import LanePlan, RacePlan
from tfmon.model.event_base import Event
from tfmon.model.events import BadLine, LaneEnded, LanePrinted
from tfmon.model.knobs import COMMON, Knob
from tfmon.model.lane_events import Hello, PhaseEntered
from tfmon.model.race import CONCURRENT, Machine, Race
from tfmon.model.session import Session
from tfmon.model.spec import ANY_GPU, name_lanes, parse_lane

CHILDREN = Path(__file__).parents[1] / "lanes" / "children"
SPEAKER = CHILDREN / "speaker.py"
KNOBS = (*COMMON, Knob("width", default=128, help="Units.", kind="restart", low=1))


def plan_of(says: str, lane: str = "cpu", **environment: str | None) -> ProcessPlan:
    """Return the plan of a child that runs a function of `speaker.py`."""
    return ProcessPlan(
        lane=lane, python=sys.executable, environment={"SAYS": says, **environment}, script=str(SPEAKER)
    )


class Heard:
    events: list[Event]
    process: LaneProcess
    pid: int

    @property
    def phases(self) -> list[str]:
        return [event.phase for event in self.events if isinstance(event, PhaseEntered)]

    @property
    def problems(self) -> list[str]:
        return [event.problem for event in self.events if isinstance(event, BadLine)]

    @property
    def printed(self) -> list[str]:
        return [line for event in self.events if isinstance(event, LanePrinted) for line in event.lines]

    def said_pid(self) -> int:
        wait_for(lambda: any(isinstance(event, Hello) for event in self.events), what="a hello")
        return next(event.pid for event in self.events if isinstance(event, Hello))

    @property
    def end(self) -> LaneEnded:
        wait_for(lambda: self.process.ended, what="the child has ended")
        (end,) = [event for event in self.events if isinstance(event, LaneEnded)]
        assert self.events[-1] is end
        return end

    def wait_for_phase(self, phase: str, times: int = 1) -> None:
        wait_for(lambda: self.phases.count(phase) >= times, what=f"{phase} {times} times")


class RacingGroup(LaneGroup):
    def __init__(self, logs: Path, script: Path = CHILDREN / "trainer.py") -> None:
        self.logs = logs
        self.session = Session(Machine(), time.monotonic_ns)
        super().__init__(self.session, lambda scenario: self.plan("cpu", scenario=scenario), script)

    def plan(
        self,
        *lanes: str,
        mode: str = CONCURRENT,
        scenario: str = "fake",
        environment: dict[str, dict[str, str]] | None = None,
        python: str = sys.executable,
        command: tuple[str, ...] = (),
        **race,
    ) -> RacePlan:
        parsed = [parse_lane(text, KNOBS) for text in lanes]
        specs = name_lanes([replace(one, device="gpu:0") if one.device == ANY_GPU else one for one in parsed])
        defaults = {knob.name: knob.default for knob in KNOBS}
        plans = tuple(
            LanePlan(
                spec,
                {**defaults, **spec.settings},
                {"LOG": str(self.log_of(spec.name)), **(environment or {}).get(spec.name, {})},
            )
            for spec in specs
        )
        planned = Race(**{"scenario": scenario, "mode": mode, "knobs": KNOBS, "slice_s": 0.05, **race})
        return RacePlan(planned, Path(f"{scenario}.py"), plans, Path(python), command)

    def lane(self, name: str):
        return self.session.snapshot().lane(name)

    def pid(self, name: str) -> int:
        return self.pids()[name]

    def log_of(self, name: str) -> Path:
        return self.logs / name.replace("/", "-")

    def requests(self, name: str) -> list[str]:
        """Return the requests that the lane's process got, in words."""
        log = self.log_of(name)
        return log.read_text().splitlines() if log.exists() else []

    def wait_for(self, phase: str, *names: str) -> None:
        wait_for(lambda: all(self.lane(name).phase == phase for name in names), what=f"{names} {phase}")

    def wait_for_steps(self, name: str, more: int = 1) -> None:
        before = self.lane(name).totals.steps
        wait_for(lambda: self.lane(name).totals.steps >= before + more, what=f"{name} trains")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give lanes enough time to end on a busy machine, so that tfmon does not kill them."""
    monkeypatch.setattr(lane_process, "ASK_S", PATIENCE_S)


@pytest.fixture
def group(tmp_path: Path, patient: None) -> Iterator[RacingGroup]:
    group = RacingGroup(tmp_path)
    yield group
    group.stop()
