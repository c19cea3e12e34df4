"""The one mutable object of the program: it takes every event and gives immutable snapshots."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tfmon.model.disturbances import gpu_disturbances, host_disturbances
from tfmon.model.events import Event, GpuSample, HostSample, KnobOffered
from tfmon.model.knobs import Knob
from tfmon.model.lane_state import LaneState, advance, disturbed, measure_afresh, take_gpu_sample, trains_on
from tfmon.model.spec import LaneSpec
from tfmon.model.trials import Trial, TuneState

HISTORY_SAMPLES = 60
"""Samples of a GPU or of the machine that are kept: a minute at one a second."""
TURNS, CONCURRENT = "turns", "concurrent"
MODES = (TURNS, CONCURRENT)

STALE_TICKS = 3
"""Readings older than this many times their interval are stale."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What the machine is; settled at the start."""

    hostname: str = ""
    system: str = ""
    cpu_name: str = ""
    cores: int = 0
    """Logical processors of the machine."""
    usable_cores: float = 0
    """How many of them a lane may keep busy: affinity and container quota."""
    memory_bytes: int = 0
    gpus: tuple[str, ...] = ()
    """Model names of the GPUs that the driver lists."""
    no_gpu: str = ""
    """Why there is no GPU lane; empty where there is one or none was wanted."""


@dataclass(frozen=True, slots=True)
class Race:
    """What is raced, and how it goes."""

    scenario: str = ""
    title: str = ""
    mode: str = TURNS
    """`turns`: one lane trains at a time, in short slices; `concurrent`: all at once."""
    turn: str = ""
    """Name of the lane whose turn it is; empty between turns and while the lanes train at once."""
    knobs: tuple[Knob, ...] = ()
    started_ns: int | None = None
    """When the lanes got the start signal; None while they get ready."""
    number: int = 0
    """Which race of this run of tfmon it is, from 1."""
    alone: str = ""
    """Name of the lane that has the machine for itself, in slices, while the others hold; empty for none."""


def with_knob(race: Race, offered: KnobOffered) -> Race:
    """Return the race with a knob that one of its lanes, a user's script, has offered."""
    if any(knob.name == offered.knob for knob in race.knobs):
        return race
    knob = Knob(
        offered.knob, offered.default, offered.help, "live", offered.choices, offered.low, offered.high
    )  # fmt: skip
    return replace(race, knobs=(*race.knobs, knob))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything known at one moment. Immutable, and safe to read from any thread."""

    at_ns: int
    machine: Machine
    race: Race
    lanes: tuple[LaneState, ...]
    gpus: tuple[GpuSample, ...] = ()
    host: HostSample | None = None
    trial: Trial | None = None
    """The series of measurements that runs, or ran last in this race."""
    tuned: TuneState | None = None
    """The advice that is tried, or was last in this race."""
    gpu_history: Mapping[str, tuple[GpuSample, ...]] = field(default_factory=dict)
    """The last samples of each GPU by its key, oldest first."""
    host_history: tuple[HostSample, ...] = ()

    def lane(self, name: str) -> LaneState:
        """Return the lane of that name; KeyError if there is none."""
        for lane in self.lanes:
            if lane.spec.name == name:
                return lane
        raise KeyError(name)

    def device_name(self, lane: LaneState) -> str:
        """Return the model name of the processor that a lane trains on; empty while it is not known."""
        if lane.spec.kind == "cpu":
            return self.machine.cpu_name
        gpu = self.gpu_of(lane)
        return lane.device_name or (gpu.name if gpu else "")

    def gpu_of(self, lane: LaneState) -> GpuSample | None:
        """Return the latest sample of the GPU that a lane trains on, or None."""
        return next((gpu for gpu in self.gpus if trains_on(lane, gpu)), None)

    def stale_s(self, sample: GpuSample | HostSample) -> float | None:
        """Return how old a sample is if it should have been followed by others long ago, else None.

        A driver that hangs, or a machine too busy to sample, leaves the last readings as they were.
        """
        age_s = (self.at_ns - sample.at_ns) / 1e9
        every_s = sample.every_s if isinstance(sample, GpuSample) else 1.0
        return age_s if age_s > STALE_TICKS * every_s else None


class Session:
    """Takes events from any thread and hands out snapshots.

    Thread: every method may be called from any thread. A replay is one more caller of `accept`.
    """

    def __init__(self, machine: Machine, clock_ns: Callable[[], int]) -> None:
        self._lock = threading.Lock()
        self._clock_ns = clock_ns
        self._machine = machine
        self._race = Race()
        self._lanes: dict[str, LaneState] = {}
        self._gpus: dict[str, GpuSample] = {}
        self._host: HostSample | None = None
        self._gpu_history: dict[str, deque[GpuSample]] = {}
        self._host_history: deque[HostSample] = deque(maxlen=HISTORY_SAMPLES)
        self._trial: Trial | None = None
        self._tuned: TuneState | None = None
        self._listeners: tuple[Callable[[Event], None], ...] = ()

    def begin(self, race: Race, specs: Sequence[LaneSpec]) -> None:
        """Start a race: what was known of the lanes of an earlier one is dropped."""
        now_ns = self._clock_ns()
        with self._lock:
            self._race = replace(race, number=self._race.number + 1)
            self._trial = self._tuned = None
            self._lanes = {
                spec.name: LaneState(spec=spec, started_ns=now_ns, phase_since_ns=now_ns) for spec in specs
            }

    def know_machine(self, machine: Machine) -> None:
        """Take over what is now known of the machine."""
        with self._lock:
            self._machine = machine

    def start_clock(self, at_ns: int) -> None:
        """Note that the lanes got the start signal."""
        with self._lock:
            self._race = replace(self._race, started_ns=at_ns)

    def set_mode(self, mode: str) -> None:
        """Note how the lanes share the machine from now on; steady state begins anew if that is a change."""
        with self._lock:
            if mode != self._race.mode:
                self._measure_afresh()
            self._race = replace(self._race, mode=mode, turn="")

    def set_alone(self, lane: str) -> None:
        """Note which lane has the machine for itself from now on; "" for none.

        Lanes that train at once begin steady state anew: by itself a lane is faster.
        """
        with self._lock:
            if lane != self._race.alone and self._race.mode == CONCURRENT and len(self._lanes) > 1:
                self._measure_afresh()
            self._race = replace(self._race, alone=lane)

    def _measure_afresh(self) -> None:
        self._lanes = {name: measure_afresh(lane) for name, lane in self._lanes.items()}

    def set_turn(self, lane: str) -> None:
        """Note whose turn it is; "" for nobody's."""
        with self._lock:
            self._race = replace(self._race, turn=lane)

    def set_trial(self, trial: Trial) -> None:
        """Note how far a series of measurements is."""
        with self._lock:
            self._trial = trial
            if isinstance(trial, TuneState):
                self._tuned = trial

    def listen(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call `listener` with every event from now on, in the thread that accepts it; return how to end that."""
        self._listeners = (*self._listeners, listener)

        def forget() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not listener)

        return forget

    def accept(self, event: Event) -> None:
        """Take an event; one for a lane that is not in this race is passed over."""
        with self._lock:
            if isinstance(event, GpuSample):
                before = self._gpus.get(event.key)
                self._gpus[event.key] = event
                self._gpu_history.setdefault(event.key, deque(maxlen=HISTORY_SAMPLES)).append(event)
                self._lanes = self._after_gpu_sample(event)
                hit = [name for name, lane in self._lanes.items() if trains_on(lane, event)]
                self._disturb(hit, before, event, gpu_disturbances(event))
            elif isinstance(event, HostSample):
                before_host, self._host = self._host, event
                self._host_history.append(event)
                self._disturb(list(self._lanes), before_host, event, host_disturbances(event))
            elif event.lane in self._lanes:
                self._lanes[event.lane] = advance(self._lanes[event.lane], event)
                if isinstance(event, KnobOffered):
                    self._race = with_knob(self._race, event)
            else:
                return
        for listener in self._listeners:
            listener(event)

    def _disturb(
        self,
        lanes: list[str],
        before: GpuSample | HostSample | None,
        after: GpuSample | HostSample,
        reasons: tuple[str, ...],
    ) -> None:
        """Leave out what lanes measured between two samples, where the later one tells of a disturbance."""
        if before is None:
            return
        for name in lanes:
            for reason in reasons:
                self._lanes[name] = disturbed(self._lanes[name], before.at_ns, after.at_ns, reason)

    def _after_gpu_sample(self, sample: GpuSample) -> dict[str, LaneState]:
        on_it = [name for name, lane in self._lanes.items() if trains_on(lane, sample) and not lane.over]
        alone = len(on_it) == 1
        return {name: take_gpu_sample(lane, sample, alone=alone) for name, lane in self._lanes.items()}

    def snapshot(self) -> Snapshot:
        """Return everything known now."""
        with self._lock:
            return Snapshot(
                at_ns=self._clock_ns(),
                machine=self._machine,
                race=self._race,
                lanes=tuple(self._lanes.values()),
                gpus=tuple(sorted(self._gpus.values(), key=lambda gpu: gpu.index)),
                host=self._host,
                trial=self._trial,
                tuned=self._tuned,
                gpu_history={key: tuple(samples) for key, samples in self._gpu_history.items()},
                host_history=tuple(self._host_history),
            )
