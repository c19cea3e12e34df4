"""A race of one lane in a real child process."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from support.waiting import PATIENCE_S, wait_for

from tfmon.lanes.group import LaneGroup
from tfmon.lanes.plan import LanePlan, RacePlan, lane_environment
from tfmon.model.event_base import Event
from tfmon.model.knobs import BATCH_SCOPE, COMMON, KnobValue
from tfmon.model.lane_events import PhaseEntered
from tfmon.model.lane_state import LaneState
from tfmon.model.race import CONCURRENT, Machine
from tfmon.model.race import Race as RaceInfo
from tfmon.model.requests import Request
from tfmon.model.session import Session
from tfmon.model.spec import LaneSpec

DEADLINE_S = 300.0
"""Children load TensorFlow, and several may at once: of time in which the test itself runs."""
EventType = TypeVar("EventType")


class Race:
    """One lane, with all its events."""

    def __init__(
        self,
        scenario: Path,
        device: str = "cpu",
        *,
        environment: dict[str, str | None] | None = None,
        command: tuple[str, ...] = (),
        mode: str = CONCURRENT,
        grace_s: float = PATIENCE_S,
        **settings: KnobValue,
    ) -> None:
        spec = LaneSpec(device, name=device)
        self.name = device
        self._events: list[Event] = []
        self._change = threading.Condition(threading.RLock())
        self.session = Session(Machine(), time.monotonic_ns)
        self.session.listen(self._hear)
        plan = RacePlan(
            race=RaceInfo(mode=mode, knobs=() if command else (*COMMON, BATCH_SCOPE)),
            scenario=scenario,
            lanes=(
                LanePlan(
                    spec,
                    settings if command else {"batch_size": 10, "prefetch": "off", **settings},
                    {**lane_environment(spec, None), **(environment or {})},
                ),
            ),
            python=Path(sys.executable),
            command=command,
            grace_s=grace_s,
        )
        self.lanes = LaneGroup(self.session, lambda _scenario: plan)
        self.lanes.begin(plan)

    @property
    def lane(self) -> LaneState:
        return self.session.snapshot().lane(self.name)

    @property
    def phases(self) -> list[str]:
        return [event.phase for event in self.of(PhaseEntered)]

    def send(self, request: Request) -> None:
        """Send the lane's process a request that no scheduler sends."""
        self.lanes._processes[self.name].send(request)

    def of(self, kind: type[EventType]) -> list[EventType]:
        with self._change:
            return [event for event in self._events if isinstance(event, kind)]

    def until(self, fits: Callable[[], bool], what: str) -> None:
        """Wait until a condition about the events holds."""
        with self._change:
            with contextlib.suppress(AssertionError):
                wait_for(lambda: fits() or self.lane.end.event is not None, DEADLINE_S, change=self._change)
            tail = self.lane.end.event.output_tail[-5:] if self.lane.end.event else ()
            assert fits(), f"{what}: {self.lane.phase}, {self.lane.trouble}, {tail}"

    def until_event(self, kind: type[EventType], fits: Callable[[EventType], bool] = lambda _: True) -> EventType:
        """Wait for an event, and return the first one of its kind that fits."""
        self.until(lambda: any(fits(event) for event in self.of(kind)), f"no fitting {kind.__name__}")
        return next(event for event in self.of(kind) if fits(event))

    def _hear(self, event: Event) -> None:
        with self._change:
            self._events.append(event)
            self._change.notify_all()
