"""Places of a sweep that start nothing: lanes whose speed follows a formula, simulated."""

import itertools
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfmon.analysis.sweep_ranking import combine
from tfmon.errors import TfmonError
from tfmon.model.codec import decode_event, encode_message
from tfmon.model.events import LaneEnded, LaneStalled, LaneStarted
from tfmon.model.knobs import KnobValue, Settings
from tfmon.model.lane_events import Built, LaneFailed, PhaseEntered, SliceEnded, Window, histogram_of
from tfmon.model.race import TURNS, Machine, Race
from tfmon.model.series import (
    SWEEP,
    Attempt,
    Figures,
    Pair,
    PairMeasured,
    SeriesPlan,
    SeriesState,
    VisitBegan,
    VisitEnded,
)
from tfmon.model.session import Session
from tfmon.model.spec import LaneSpec
from tfmon.series.engine import RaceStation

BASELINE = {"batch_size": 32, "mixed_precision": "off"}
GRID: dict[str, tuple[KnobValue, ...]] = {"batch_size": (16, 32, 64, 128), "mixed_precision": ("off", "bfloat16")}
WINDOW_NS = 100_000_000
BASE, CHANGED = "base", "changed"


def speed_of(settings: Settings) -> float:
    """A formula with one best: batch 64 and bfloat16."""
    batch = {16: 0.7, 32: 1.0, 64: 1.6, 128: 1.3}.get(int(settings["batch_size"]), 1.0)
    return 1_000 * batch * (1.15 if settings["mixed_precision"] == "bfloat16" else 1.0)


def planned(
    over: Mapping[str, tuple[KnobValue, ...]] = GRID,
    kinds: tuple[str, ...] = ("cpu",),
    baseline: Settings = BASELINE,
    **more: Any,
) -> SeriesState:
    settings = {"scenario": "simulated", "baseline": dict(baseline), **more}
    plan = SeriesPlan(SWEEP, dict(over), places=kinds, words=kinds, kinds=kinds, **settings)
    return SeriesState(
        plan, combine(plan, baseline, lambda settings, kind: "too large" * (settings["batch_size"] == 4_096))
    )


def visit_events(
    number: int, ratio: float, memory_bytes: float, kind: str = "cpu"
) -> Iterator[VisitBegan | PairMeasured | VisitEnded]:
    """Yield the events of a visit whose 16 pairs have about this ratio."""
    yield VisitBegan(number, kind)
    rng = random.Random(number)
    for place in range(16):
        yield PairMeasured(number, Pair(math.log(ratio) + rng.gauss(0, 0.01), bool(place % 2), 1), 1.0)
    versions = {"tensorflow": "2.21.0"}
    figures = Figures(kind, 7_663 * ratio, 7_663.0, 1.2, memory_bytes, bottleneck="input", versions=versions)
    yield VisitEnded(number, figures)


@dataclass(eq=False)
class SimulatedStation(RaceStation):
    """A place whose lanes train in a thread, as fast as configured."""

    place: str = "cpu"
    kind: str = "cpu"
    machine: str = ""
    speed: Callable[[Settings], float] = speed_of
    noise: float = 0.01
    dies: Callable[[Settings, int], str] = lambda settings, visit: ""
    """Why a process dies in this visit of the place; if it says so itself, "KIND: …" with the kind of failure."""
    hangs: Callable[[Settings], bool] = lambda settings: False
    """Whether the lane that could die says nothing instead, while the other trains on."""
    dying: str = CHANGED
    """The lane whose process that is."""
    windows: int = 2
    """Windows of a slice."""
    pause_s: float = 0.0
    """Time from one window to the next."""
    visited: list[dict[str, KnobValue]] = field(default_factory=list)
    unusable: str = ""
    training: int = 0
    """How many of its lanes train now."""
    made_s: float = 0.0
    """CPU time that the lanes themselves took: making messages, and waking up for them."""

    def __post_init__(self) -> None:
        super().__init__()
        self.session = Session(Machine(), time.monotonic_ns)
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        self._random = random.Random(self.place)
        self._used_s = 0.0

    def begin(self, attempt: Attempt) -> tuple[str, str]:
        settings = attempt.settings
        if self.unusable:
            raise TfmonError(self.unusable)
        self.visited.append(dict(settings))
        self._ending.clear()
        specs = [LaneSpec("cpu", name=BASE, id="A"), LaneSpec("cpu", name=CHANGED, id="B")]
        self.session.begin(Race(scenario="simulated", mode=TURNS), specs)
        values = {BASE: dict(BASELINE), CHANGED: {**BASELINE, **settings}}
        for name, own in values.items():
            now = time.monotonic_ns()
            self.session.accept(LaneStarted(lane=name, at_ns=now, pid=1, settings=own))
            self.session.accept(Built(lane=name, at_ns=now, parameters=1, examples=1_000, settings=own))
            self.session.accept(PhaseEntered(lane=name, at_ns=now, phase="racing"))
        apart = self._random.gauss(0, self.noise / 2)
        self._thread = threading.Thread(target=self._train, args=(values, apart), daemon=True)
        self._thread.start()
        return BASE, CHANGED

    def end(self) -> None:
        self._ending.set()
        if self._thread is not None:
            self._thread.join()

    def _train(self, values: Mapping[str, dict[str, KnobValue]], apart: float) -> None:
        death, at_ns = self.dies(values[CHANGED], len(self.visited)), time.monotonic_ns()
        hung = self.dying if self.hangs(values[CHANGED]) else ""
        if hung:
            self.session.accept(LaneStalled(lane=hung, at_ns=at_ns, since_ns=at_ns))
        speeds = {name: self.speed(own) for name, own in values.items()}
        speeds[CHANGED] *= 1 + apart
        self.training += 1
        self._used_s, due_s = time.thread_time(), time.monotonic()
        for number in itertools.count(1):
            if death and number == 2:  # before two pairs could settle it
                self._die(death)
                break
            lanes = (BASE, CHANGED) if number % 2 else (CHANGED, BASE)
            for name in [lane for lane in lanes if lane != hung]:
                for _ in range(self.windows):
                    at_ns += WINDOW_NS
                    due_s += self.pause_s
                    if self._ending.wait(max(0.0, due_s - time.monotonic())):
                        self.training -= 1
                        return
                    self._send(self._window(name, values[name], speeds[name], number, at_ns))
                self._send(SliceEnded(lane=name, at_ns=at_ns, round=number))
        self.training -= 1

    def _send(self, event: Window | SliceEnded) -> None:
        """Make a message, and take it as the monitor does."""
        line = encode_message(event)
        began_s = time.thread_time()
        self.made_s += began_s - self._used_s
        self.session.accept(decode_event(line, event.lane))
        self._used_s = time.thread_time()

    def _window(self, name: str, settings: dict[str, KnobValue], speed: float, number: int, at_ns: int) -> Window:
        examples = round(speed * 1_000 * WINDOW_NS / 1e9 * (1 + self._random.gauss(0, self.noise)))
        spent = dict.fromkeys(("input_ns", "sync_ns", "report_ns"), 1_000)
        return Window(
            lane=name, at_ns=at_ns, span_ns=WINDOW_NS, steps=10, examples=examples, step=10 * number,
            call_ns=WINDOW_NS // 2, longest_ns=WINDOW_NS // 10, histogram=histogram_of([WINDOW_NS / 10] * 10),
            loss=1.0, settings=settings, round=number, **spent,
        )  # fmt: skip

    def _die(self, why: str) -> None:
        now = time.monotonic_ns()
        kind, colon, said = why.partition(": ")
        if colon:
            self.session.accept(LaneFailed(lane=self.dying, at_ns=now, kind=kind, message=said))
        ended = LaneEnded(lane=self.dying, at_ns=now, exit_code=None, signal="SIGKILL", requested=False)
        self.session.accept(ended)
