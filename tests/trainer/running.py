"""A training loop in a thread, with a reporter that keeps the events."""

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
from support.waiting import PATIENCE_S, wait_for

from tfmon.model.event_base import LaneEvent
from tfmon.model.knobs import KnobValue
from tfmon.model.lane_events import READY, Finished, PhaseEntered, Window
from tfmon.model.requests import Assign, Request, Run, Stop
from tfmon.trainer import Scenario
from tfmon.trainer.batch_feed import Pipelines
from tfmon.trainer.channel import Mailbox
from tfmon.trainer.loop import Loop

EventType = TypeVar("EventType")


class Numbers(Scenario):
    """1,000 numbers in order."""

    def data(self) -> Any:
        return np.arange(1_000, dtype=np.float32)


class FakeReporter:
    """Keeps every event in its order."""

    def __init__(self) -> None:
        self._events: list[LaneEvent] = []
        self.change = threading.Condition(threading.RLock())

    def send(self, event: LaneEvent) -> None:
        with self.change:
            self._events.append(event)
            self.change.notify_all()

    def offer(self, event: Window, *, later: bool = False) -> bool:
        self.send(event)
        return True

    def fail(self, message: str) -> None:
        raise AssertionError(message)

    def drain(self, timeout_s: float) -> None:
        pass

    def of(self, kind: type[EventType]) -> list[EventType]:
        with self.change:
            return [event for event in self._events if isinstance(event, kind)]


class Steps:
    """A step that remembers the batches it got."""

    def __init__(self) -> None:
        self.batches: list[np.ndarray[Any, Any]] = []

    def __call__(self, batch: Any) -> np.float32:
        self.batches.append(batch.numpy())
        return np.float32(len(self.batches))


class Running:
    """A loop that trains in a thread, as in a child's main thread."""

    def __init__(
        self,
        step: Callable[..., Any],
        scenario: type[Scenario] = Numbers,
        *,
        steps: int | None = None,
        **settings: KnobValue,
    ) -> None:
        settings = {"batch_size": 10, "prefetch": "off", **settings}
        one_step = SimpleNamespace(knobs=(), check=lambda _settings: None, make=lambda _settings: step)
        self.mailbox: Mailbox[Any] = Mailbox()
        self.reporter = FakeReporter()
        self.error: BaseException | None = None
        self._loop = Loop(
            Pipelines(scenario(settings)),
            one_step,
            Assign(scenario="", device="cpu", settings=settings, steps=steps),
            self.mailbox,
            self.reporter,
        )
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def tell(self, request: Request) -> int:
        """Send a request; return when."""
        at_ns = time.monotonic_ns()
        self.mailbox.post(request)
        return at_ns

    def until(self, fits: Callable[[], Any], what: str) -> Any:
        """Wait until a condition about the reports holds, and return its value."""
        with self.reporter.change:
            wait_for(lambda: fits() or self.error, what=what, change=self.reporter.change)
            if self.error is not None:
                raise self.error
            return fits()

    def until_event(self, kind: type[EventType], fits: Callable[[EventType], bool] = lambda _: True) -> EventType:
        """Wait for an event, and return the first one of its kind that fits."""
        what = f"a fitting {kind.__name__}"
        self.until(lambda: any(fits(event) for event in self.reporter.of(kind)), what)
        return next(event for event in self.reporter.of(kind) if fits(event))

    def until_windows(self, count: int) -> list[Window]:
        """Wait until so many windows more than now are reported; return all."""
        count += len(self.windows)
        self.until(lambda: len(self.windows) >= count, f"{count} windows")
        return self.windows

    def until_ready(self) -> None:
        self.until_event(PhaseEntered, lambda event: event.phase == READY)

    def race(self, step: Steps | None = None) -> None:
        """Start the race after the warm-up, whose batches the step forgets."""
        self.until_ready()
        if step is not None:
            step.batches.clear()
        self.tell(Run())

    @property
    def windows(self) -> list[Window]:
        return self.reporter.of(Window)

    @property
    def phases(self) -> list[str]:
        return [event.phase for event in self.reporter.of(PhaseEntered)]

    def close(self) -> None:
        self.tell(Stop())
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()

    def _run(self) -> None:
        try:
            self._loop.run()
        except BaseException as error:  # noqa: BLE001 - the test raises it
            with self.reporter.change:
                self.error = error
                self.reporter.change.notify_all()


def stopped(loop: Running) -> None:
    """Stop a loop, and check that it finished."""
    loop.close()
    assert loop.error is None
    assert len(loop.reporter.of(Finished)) == 1
