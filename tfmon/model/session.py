"""The state of a race."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tfmon.model.events import (
    ClockStarted,
    Event,
    ExclusiveChanged,
    FilesWritten,
    HostEvent,
    Interrupted,
    LaneEnded,
    MachineKnown,
    ModeChanged,
    RaceBegan,
    RecordingChanged,
    SeriesAdvanced,
    SliceGranted,
    UserRequested,
)
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.host_states import (
    Hosts,
    HostState,
    machine_key,
    own_pids,
    take_gpu_sample,
    take_host_sample,
    trains_on,
)
from tfmon.model.lane import Lane
from tfmon.model.lane_events import LaneFailed
from tfmon.model.lane_relations import explain_collision, set_names
from tfmon.model.lane_state import LaneState, ProcessInfo
from tfmon.model.lane_texts import explain_end
from tfmon.model.lane_use import counted
from tfmon.model.periods import CAUSES, Periods, after_event, in_slices
from tfmon.model.race import CONCURRENT, MODE_MARKS, Machine, Race, RecordingState
from tfmon.model.readings import HostSample, TreeSample
from tfmon.model.script_events import CauseSeen, KnobOffered, PathsUsed
from tfmon.model.series import SWEEP, TUNING, SeriesState, SeriesStep, after
from tfmon.model.spec import LaneSpec

STALE_TICKS = 3


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state at one moment. Immutable."""

    at_ns: int
    race: Race
    lanes: tuple[LaneState, ...]
    hosts: Hosts = field(default_factory=lambda: {"": HostState()})
    """"" is always present."""
    experiment: SeriesState | None = None
    tuned: SeriesState | None = None
    periods: Periods = ()
    recording: RecordingState | None = None

    def lane(self, name: str) -> LaneState:
        """Return a lane; raises KeyError."""
        for lane in self.lanes:
            if lane.spec.name == name:
                return lane
        raise KeyError(name)

    def called(self, lane: LaneState) -> str:
        """Return the lane's name for people."""
        place, short = lane.spec.place, lane.short_title
        if len({one.spec.place for one in self.lanes}) > 1 and not short.startswith(place):
            short = f"{place}, {short}"
        return lane.title if len(self.lanes) < 3 else f"{lane.spec.id} {short}".strip()

    @property
    def sweep(self) -> SeriesState | None:
        """The state of a sweep."""
        state = self.experiment
        return state if state is not None and state.policy == SWEEP else None

    @property
    def differing(self) -> tuple[str, ...]:
        """Knobs in which lanes differ now."""
        return (self.lanes[0].differs or ()) if self.lanes else ()

    @property
    def over(self) -> bool:
        """Whether all lanes have ended."""
        return bool(self.lanes) and all(lane.over for lane in self.lanes)

    @property
    def raced_s(self) -> float | None:
        """From the start signal to the last window."""
        ends = [end_ns for lane in self.lanes if (end_ns := lane.measurements.until_ns) is not None]
        started_ns = self.race.started_ns
        return (max(ends) - started_ns) / 1e9 if ends and started_ns is not None else None

    @property
    def has_result(self) -> bool:
        """Whether anything was measured, which no key may delete."""
        trying = self.experiment is not None and not self.experiment.over
        return not trying and any(lane.steady.windows for lane in self.lanes)

    @property
    def machine(self) -> Machine:
        """The monitor's."""
        return self.hosts[""].machine

    @property
    def gpus(self) -> tuple[GpuSample, ...]:
        """Of the monitor's machine."""
        return self.hosts[""].gpus

    @property
    def host(self) -> HostSample | None:
        """Of the monitor's machine."""
        return self.hosts[""].sample

    def place_of(self, lane: LaneState) -> HostState:
        """Return the machine of a lane."""
        return self.hosts.get(lane.spec.host) or HostState()

    def machine_of(self, lane: LaneState) -> Machine:
        """Return the facts about a lane's machine."""
        return self.place_of(lane).machine

    def machine_key(self, lane: LaneState) -> str:
        """Return the key of a lane's machine."""
        return machine_key(self.hosts, lane.spec.host)

    @property
    def machines(self) -> int:
        """Number of the lanes' machines."""
        return len({self.machine_key(lane) for lane in self.lanes})

    def device_name(self, lane: LaneState) -> str:
        """Return the model of a lane's processor."""
        if lane.spec.kind == "cpu":
            return self.machine_of(lane).cpu_name
        return lane.process.device_name or counted([gpu.name for gpu in self.gpus_of(lane)])

    def gpus_of(self, lane: LaneState) -> tuple[GpuSample, ...]:
        """Return the latest samples of its GPUs."""
        return tuple(gpu for gpu in self.place_of(lane).gpus if trains_on(lane, gpu))

    def stale_s(self, sample: GpuSample | HostSample) -> float | None:
        """Return the age of an overdue sample."""
        age_s = (self.at_ns - sample.at_ns) / 1e9
        every_s = sample.every_s if isinstance(sample, GpuSample) else 1.0
        return age_s if age_s > STALE_TICKS * every_s else None


Journal: TypeAlias = Callable[[Event, Snapshot], None]


class Session:
    """The owner of the state.

    The state depends only on the events and their order, so a replay reproduces it with another clock.

    Thread: any.
    """

    def __init__(self, machine: Machine, clock_ns: Callable[[], int]) -> None:
        self._lock = threading.Lock()
        self._clock_ns = clock_ns
        self._lanes: list[Lane] = []
        self._hosts: dict[str, HostState] = {}
        self._journals: tuple[Journal, ...] = ()
        self._listeners: tuple[Callable[[Event], None], ...] = ()
        self.restore(Snapshot(at_ns=0, race=Race(), lanes=(), hosts={"": HostState(machine)}))

    def begin(self, race: Race, specs: Sequence[LaneSpec], source: str = "") -> None:
        """Begin a race; `source` is the scenario's digest."""
        race = replace(race, number=self._race.number + 1)
        self.accept(RaceBegan(at_ns=self._clock_ns(), race=race, specs=tuple(specs), source=source))

    def set_machine(self, machine: Machine, host: str = "") -> None:
        """Set the facts about a machine."""
        self.accept(MachineKnown(at_ns=self._clock_ns(), machine=machine, host=host))

    def start_clock(self, at_ns: int) -> None:
        """Record the start signal."""
        self.accept(ClockStarted(at_ns=at_ns))

    def set_mode(self, mode: str) -> None:
        """Set the mode, which begins a new steady state."""
        self.accept(ModeChanged(at_ns=self._clock_ns(), mode=mode))

    def grant_slice(self, lane: str, beside: Sequence[str] = ()) -> None:
        """Record a slice, "" for none."""
        self.accept(SliceGranted(at_ns=self._clock_ns(), lane=lane, beside=tuple(beside)))

    def set_exclusive(self, lane: str) -> None:
        """Set the lane that trains alone."""
        self.accept(ExclusiveChanged(at_ns=self._clock_ns(), exclusive=lane))

    def advance_series(self, step: SeriesStep) -> None:
        """Record a step of a series."""
        self.accept(SeriesAdvanced(at_ns=self._clock_ns(), step=step))

    def accept(self, event: Event) -> None:
        """Accept an event."""
        with self._lock:
            taken = not event.lane or self._index(event.lane) is not None
            if taken and not (isinstance(event, CauseSeen) and event.cause in self._race.ignored_causes):
                self._change(event)
            for journal in self._journals:
                journal(event, self._snapshot(event.at_ns))
        for listener in self._listeners if taken else ():
            listener(event)

    def listen(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call `listener` with every event, in the accepting thread; return the function that ends it."""
        self._listeners = (*self._listeners, listener)

        def forget() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not listener)

        return forget

    def keep_journal(self, journal: Journal) -> Snapshot:
        """Pass every event to a journal, in order; return the snapshot before the first.

        Thread: the session is locked while the journal runs, so it must return at once and not call the session.
        """
        with self._lock:
            self._journals = (*self._journals, journal)
            return self._snapshot(self._clock_ns())

    def restore(self, known: Snapshot) -> None:
        """Replace the state."""
        with self._lock:
            self._race, self._experiment, self._tuned = known.race, known.experiment, known.tuned
            self._periods, self._recording = known.periods, known.recording
            self._lanes = [Lane.from_state(lane) for lane in known.lanes]
            self._hosts = {name: host.copy() for name, host in known.hosts.items()}
            self._copied: list[LaneState | None] = list(known.lanes)
            self._copied_hosts: Hosts | None = None

    def snapshot(self) -> Snapshot:
        """Return the present state."""
        with self._lock:
            return self._snapshot(self._clock_ns())

    def _snapshot(self, at_ns: int) -> Snapshot:
        """Copy only what has changed since the last call."""
        lanes = tuple(copy or lane.snapshot() for lane, copy in zip(self._lanes, self._copied, strict=True))
        hosts = self._copied_hosts or {name: host.copy() for name, host in self._hosts.items()}
        self._copied, self._copied_hosts = list(lanes), hosts
        return Snapshot(
            at_ns=at_ns,
            race=self._race,
            lanes=lanes,
            hosts=hosts,
            experiment=self._experiment,
            tuned=self._tuned,
            periods=self._periods,
            recording=self._recording,
        )

    def _index(self, name: str) -> int | None:
        names = (index for index, lane in enumerate(self._lanes) if lane.spec.name == name)
        return next(names, None) if name else None

    def _host(self, name: str) -> HostState:
        self._copied_hosts = None
        return self._hosts.setdefault(name, HostState())

    def _forget_copies(self) -> None:
        self._copied = [None] * len(self._lanes)

    def _change(self, event: Event) -> None:
        before = self._snapshot(event.at_ns) if isinstance(event, CAUSES) else None
        index = None if isinstance(event, SliceGranted) else self._index(event.lane)
        settings = [lane.settings for lane in self._lanes]
        if index is None:
            self._forget_copies()
            self._change_race(event)
        else:
            self._copied[index] = None
            self._change_lane(self._lanes[index], event)
        if before is not None:
            self._periods = after_event(
                self._periods, event, before.race, before.lanes, self._lanes, before.experiment, self._experiment
            )
        changed = index is not None and self._lanes[index].settings != settings[index]
        if changed or any(lane.differs is None for lane in self._lanes):
            set_names(self._lanes, self._race)
            self._forget_copies()

    def _change_lane(self, lane: Lane, event: Event) -> None:
        race = self._race
        if isinstance(event, TreeSample):
            sliced = in_slices(race, self._lanes) or bool(race.exclusive)
            host = self._hosts.get(lane.spec.host) or HostState()
            lane.on_tree_sample(event, sliced=sliced, cores=host.machine.cores)
            return
        if isinstance(event, KnobOffered):
            self._race = race.with_knob(event)
        lane.accept(event)
        if isinstance(event, LaneFailed | LaneEnded | PathsUsed):
            self._explain(lane)

    def _explain(self, lane: Lane) -> None:
        race = self._race
        host = self._hosts.get(lane.spec.host) or HostState()
        gpus = [gpu for gpu in host.gpus if trains_on(lane, gpu)]
        explain_end(lane, gpus, own_pids(self._hosts, self._lanes, lane.spec.host), race.knobs)
        for one in self._lanes:
            explain_collision(one, self._lanes, race.views)
        self._forget_copies()

    def _change_race(self, event: Event) -> None:
        race, lanes = self._race, self._lanes
        over = bool(lanes) and all(lane.over for lane in lanes)
        match event:
            case RaceBegan():
                self._begin_race(event)
            case MachineKnown():
                self._host(event.host).machine = event.machine
            case HostEvent():
                self._host(event.host).on_connection(event)
            case ClockStarted():
                self._race = replace(race, started_ns=event.at_ns)
            case ModeChanged() if not over:
                if event.mode != race.mode:
                    for lane in lanes:
                        lane.measure_again()
                        lane.mark_charts(event.at_ns, MODE_MARKS[event.mode])
                self._race = replace(race, mode=event.mode, training=())
            case UserRequested(action="end"):
                for lane in lanes:
                    lane.end.killed = lane.end.killed or lane.spec.name in event.lanes
            case ExclusiveChanged():
                alone = event.exclusive != race.exclusive and len(lanes) > 1 and not over
                if race.mode == CONCURRENT and alone:
                    for lane in lanes:
                        lane.measure_again()
                self._race = replace(race, exclusive=event.exclusive)
            case SliceGranted():
                training = tuple(name for name in (event.lane, *event.beside) if name)
                for lane in lanes:
                    lane.on_slice_granted(event.at_ns, own=lane.spec.name in training)
                self._race = replace(race, training=training)
            case SeriesAdvanced(step=step):
                if self._experiment is not None and not isinstance(step, SeriesState):
                    step = after(self._experiment, step)
                if isinstance(step, SeriesState):
                    self._experiment = step
                    self._tuned = step if step.policy == TUNING else self._tuned
            case Interrupted():
                self._race = replace(race, interrupted=event.reason)
            case FilesWritten():
                self._race = replace(race, views=event.views)
            case RecordingChanged():
                self._recording = event.recording
            case HostSample():
                take_host_sample(self._host(event.host), lanes, event)
            case GpuSample():
                self._host(event.host)
                take_gpu_sample(self._hosts, lanes, event)

    def _begin_race(self, event: RaceBegan) -> None:
        self._lanes = [
            Lane(spec, phase_since_ns=event.at_ns, process=ProcessInfo(started_ns=event.at_ns))
            for spec in event.specs
        ]
        self._race, self._periods = event.race, ()
        self._experiment = self._tuned = None
        self._forget_copies()
