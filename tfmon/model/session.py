"""The state of a race: the session accepts events and returns immutable snapshots."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tfmon.model.events import (
    ClockStarted,
    Event,
    ExclusiveChanged,
    ExperimentChanged,
    FilesWritten,
    HostEvent,
    Interrupted,
    LaneEnded,
    MachineKnown,
    ModeChanged,
    RaceBegan,
    RecordingChanged,
    SliceGranted,
    SweepChanged,
    UserRequested,
)
from tfmon.model.gpu import GpuSample
from tfmon.model.hosts import (
    Hosts,
    HostState,
    after_connection,
    after_sample,
    machine_key,
    own_pids,
    trains_on,
    with_machine,
)
from tfmon.model.lane_events import LaneFailed
from tfmon.model.lane_measuring import granted, marked, measured_again, take_tree_sample
from tfmon.model.lane_reducer import advance
from tfmon.model.lane_state import LaneState, ProcessInfo
from tfmon.model.lane_statistics import Measurements
from tfmon.model.lane_texts import explained
from tfmon.model.lane_use import counted
from tfmon.model.lanes_together import explained as by_collision
from tfmon.model.lanes_together import named
from tfmon.model.periods import CAUSES, Periods, after_event, in_slices
from tfmon.model.race import CONCURRENT, MODE_MARKS, Machine, Race, RecordingState
from tfmon.model.readings import HostSample, TreeSample
from tfmon.model.script_events import KnobOffered, PathsUsed
from tfmon.model.series import Experiment, SweepState, TuneState
from tfmon.model.spec import LaneSpec
from tfmon.model.window_sums import History

STALE_TICKS = 3
"""Readings older than this many intervals are stale."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state at one moment. Immutable, and safe to read from any thread."""

    at_ns: int
    race: Race
    lanes: tuple[LaneState, ...]
    hosts: Hosts = field(default_factory=lambda: {"": HostState()})
    """The machines by `LaneSpec.host`; "" is the monitor's, and always present."""
    experiment: Experiment | None = None
    """The present or last series of this race."""
    tuned: TuneState | None = None
    """The present or last tuning of this race."""
    periods: Periods = ()
    """The measurements before each change of this race, the latest last; the present ones are in `lanes`."""
    recording: RecordingState | None = None
    """The recording of this race. `None` without one."""
    charted: bool = True
    """Whether to keep the chart history."""
    sweep: SweepState | None = None
    """A sweep's state. `None` for a race."""

    def lane(self, name: str) -> LaneState:
        """Return the lane of that name; raises KeyError."""
        for lane in self.lanes:
            if lane.spec.name == name:
                return lane
        raise KeyError(name)

    def called(self, lane: LaneState) -> str:
        """Return the lane's name for people: with more than two lanes, its id and its distinguishing settings."""
        place, short = lane.spec.place, lane.short_title
        if len({one.spec.place for one in self.lanes}) > 1 and not short.startswith(place):
            short = f"{place}, {short}"
        return lane.title if len(self.lanes) < 3 else f"{lane.spec.id} {short}".strip()

    @property
    def differing(self) -> tuple[str, ...]:
        """Knobs in which the lanes differ now, the initial differences first."""
        return (self.lanes[0].differs or ()) if self.lanes else ()

    @property
    def over(self) -> bool:
        """Whether there are lanes and all of them have ended."""
        return bool(self.lanes) and all(lane.over for lane in self.lanes)

    @property
    def raced_s(self) -> float | None:
        """Time from the start signal to the last window of any lane. `None` before."""
        ends = [end_ns for lane in self.lanes if (end_ns := lane.measurements.until_ns) is not None]
        started_ns = self.race.started_ns
        return (max(ends) - started_ns) / 1e9 if ends and started_ns is not None else None

    @property
    def has_result(self) -> bool:
        """Whether anything was measured, which no key may delete after the race and its experiment."""
        trying = self.experiment is not None and not self.experiment.over
        return not trying and any(lane.steady.windows for lane in self.lanes)

    @property
    def machine(self) -> Machine:
        """The monitor's own machine."""
        return self.hosts[""].machine

    @property
    def gpus(self) -> tuple[GpuSample, ...]:
        """The latest sample of each GPU of the monitor's own machine."""
        return self.hosts[""].gpus

    @property
    def host(self) -> HostSample | None:
        """The latest sample of the monitor's own machine."""
        return self.hosts[""].sample

    def place_of(self, lane: LaneState) -> HostState:
        """Return the machine of a lane."""
        return self.hosts.get(lane.spec.host) or HostState()

    def machine_of(self, lane: LaneState) -> Machine:
        """Return the machine of a lane. Empty before it is connected."""
        return self.place_of(lane).machine

    def machine_key(self, lane: LaneState) -> str:
        """Return the key of a lane's machine, independent of the names of its hosts."""
        return machine_key(self.hosts, lane.spec.host)

    @property
    def machines(self) -> int:
        """Number of the lanes' machines."""
        return len({self.machine_key(lane) for lane in self.lanes})

    def device_name(self, lane: LaneState) -> str:
        """Return the model of a lane's processor. Empty while unknown."""
        if lane.spec.kind == "cpu":
            return self.machine_of(lane).cpu_name
        return lane.process.device_name or counted([gpu.name for gpu in self.gpus_of(lane)])

    def gpus_of(self, lane: LaneState) -> tuple[GpuSample, ...]:
        """Return the latest sample of each GPU of a lane, by their indexes."""
        return tuple(gpu for gpu in self.place_of(lane).gpus if trains_on(lane, gpu))

    def stale_s(self, sample: GpuSample | HostSample) -> float | None:
        """Return the age of an overdue sample, such as after a hang of a driver, or `None`."""
        age_s = (self.at_ns - sample.at_ns) / 1e9
        every_s = sample.every_s if isinstance(sample, GpuSample) else 1.0
        return age_s if age_s > STALE_TICKS * every_s else None


def concerns(known: Snapshot, event: Event) -> bool:
    """Return whether an event belongs to this race, not to a lane outside it."""
    return not event.lane or any(lane.spec.name == event.lane for lane in known.lanes)


def _with_names(known: Snapshot, event: Event, then: Snapshot) -> Snapshot:
    """Return a snapshot with the period that an event ended, and with the lanes' new names."""
    if isinstance(event, CAUSES):
        periods = after_event(known.periods, event, known.race, known.lanes, then.lanes, known.experiment)
        then = replace(then, periods=periods)
    pairs = zip(then.lanes, known.lanes, strict=False)
    same = len(then.lanes) == len(known.lanes) and all(
        lane is before or (lane.settings == before.settings and lane.differs is not None) for lane, before in pairs
    )
    return then if same else replace(then, lanes=named(then.lanes, then.race))


def _after(known: Snapshot, event: Event) -> Snapshot:
    """Return the snapshot after an event that concerns the race."""
    match event:
        case RaceBegan():
            at_ns = event.at_ns
            empty = Measurements(history=History(kept=known.charted))
            process = ProcessInfo(started_ns=at_ns)
            lanes = tuple(
                LaneState(one, phase_since_ns=at_ns, process=process, measurements=empty) for one in event.specs
            )
            return replace(known, race=event.race, lanes=lanes, experiment=None, tuned=None, periods=())
        case MachineKnown():
            return replace(known, hosts=with_machine(known.hosts, event.machine, event.host))
        case HostEvent():
            return replace(known, hosts=after_connection(known.hosts, event))
        case ClockStarted():
            return replace(known, race=replace(known.race, started_ns=event.at_ns))
        case ModeChanged() if known.over:
            return known
        case ModeChanged():
            lanes = known.lanes
            if event.mode != known.race.mode:
                text = MODE_MARKS[event.mode]
                lanes = tuple(marked(measured_again(lane), event.at_ns, text) for lane in lanes)
            return replace(known, race=replace(known.race, mode=event.mode, training=()), lanes=lanes)
        case UserRequested(action="end"):
            lanes = tuple(
                replace(lane, end=replace(lane.end, killed=True)) if lane.spec.name in event.lanes else lane
                for lane in known.lanes
            )
            return replace(known, lanes=lanes)
        case ExclusiveChanged():
            lanes = known.lanes
            alone = event.exclusive != known.race.exclusive and len(lanes) > 1 and not known.over
            if known.race.mode == CONCURRENT and alone:
                lanes = tuple(map(measured_again, lanes))
            return replace(known, race=replace(known.race, exclusive=event.exclusive), lanes=lanes)
        case SliceGranted():
            training = tuple(name for name in (event.lane, *event.beside) if name)
            lanes = tuple(granted(lane, event.at_ns, own=lane.spec.name in training) for lane in known.lanes)
            return replace(known, race=replace(known.race, training=training), lanes=lanes)
        case TreeSample():
            sliced = in_slices(known.race, known.lanes) or bool(known.race.exclusive)
            sampled = known.lane(event.lane)
            lane = take_tree_sample(sampled, event, sliced=sliced, cores=known.machine_of(sampled).cores)
            return replace(known, lanes=tuple(lane if one is sampled else one for one in known.lanes))
        case ExperimentChanged():
            tuned = event.experiment if isinstance(event.experiment, TuneState) else known.tuned
            return replace(known, experiment=event.experiment, tuned=tuned)
        case SweepChanged() if known.sweep is not None:
            return replace(known, sweep=event.after(known.sweep))
        case Interrupted():
            return replace(known, race=replace(known.race, interrupted=event.reason))
        case FilesWritten():
            return replace(known, race=replace(known.race, views=event.views))
        case RecordingChanged():
            return replace(known, recording=event.recording)
        case GpuSample() | HostSample():
            hosts, lanes = after_sample(known.hosts, known.lanes, event)
            return replace(known, hosts=hosts, lanes=lanes)
        case _:
            race = known.race.with_knob(event) if isinstance(event, KnobOffered) else known.race
            lanes = tuple(advance(lane, event) if lane.spec.name == event.lane else lane for lane in known.lanes)
            if isinstance(event, LaneFailed | LaneEnded | PathsUsed):
                own = {lane.spec.host: own_pids(known.hosts, known.lanes, lane.spec.host) for lane in lanes}
                lanes = tuple(
                    lane if lane is old else explained(lane, known.gpus_of(old), own[lane.spec.host], race.knobs)
                    for lane, old in zip(lanes, known.lanes, strict=True)
                )
                lanes = tuple(by_collision(lane, lanes, race.views) for lane in lanes)
            return replace(known, race=race, lanes=lanes)


Journal: TypeAlias = Callable[[Event, Snapshot], None]
"""Called with an event and the snapshot after it."""


class Session:
    """The only mutable object of the program: accepts events and returns immutable snapshots.

    The state depends only on the events and their order, so a replay reproduces it with another clock.

    Thread: any.
    """

    def __init__(self, machine: Machine, clock_ns: Callable[[], int], *, charted: bool = True) -> None:
        """Start with a machine; without `charted`, the chart history is not kept."""
        self._lock = threading.Lock()
        self._clock_ns = clock_ns
        self._known = Snapshot(at_ns=0, race=Race(), lanes=(), hosts={"": HostState(machine)}, charted=charted)
        self._journals: tuple[Journal, ...] = ()
        self._listeners: tuple[Callable[[Event], None], ...] = ()

    def begin(self, race: Race, specs: Sequence[LaneSpec], source: str = "") -> None:
        """Begin a race without the lanes of an earlier one; `source` is the digest of the scenario file."""
        race = replace(race, number=self._known.race.number + 1)
        self.accept(RaceBegan(at_ns=self._clock_ns(), race=race, specs=tuple(specs), source=source))

    def set_machine(self, machine: Machine, host: str = "") -> None:
        """Set the facts about a machine."""
        self.accept(MachineKnown(at_ns=self._clock_ns(), machine=machine, host=host))

    def start_clock(self, at_ns: int) -> None:
        """Record the start signal."""
        self.accept(ClockStarted(at_ns=at_ns))

    def set_mode(self, mode: str) -> None:
        """Set the mode; a change begins a new steady state."""
        self.accept(ModeChanged(at_ns=self._clock_ns(), mode=mode))

    def grant_slice(self, lane: str, beside: Sequence[str] = ()) -> None:
        """Record the start of a slice, "" for none, and which slices of other machines continue."""
        self.accept(SliceGranted(at_ns=self._clock_ns(), lane=lane, beside=tuple(beside)))

    def set_exclusive(self, lane: str) -> None:
        """Set the lane that trains alone, "" for none; concurrent lanes begin a new steady state."""
        self.accept(ExclusiveChanged(at_ns=self._clock_ns(), exclusive=lane))

    def set_experiment(self, experiment: Experiment) -> None:
        """Set the state of an experiment."""
        self.accept(ExperimentChanged(at_ns=self._clock_ns(), experiment=experiment))

    def accept(self, event: Event) -> None:
        """Accept an event; an event of a lane outside this race changes nothing."""
        with self._lock:
            taken = concerns(self._known, event)
            if taken:
                self._known = _with_names(self._known, event, _after(self._known, event))
            for journal in self._journals:
                journal(event, self._known)
        for listener in self._listeners if taken else ():
            listener(event)

    def listen(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call `listener` with every event, in the accepting thread; return the function that ends that."""
        self._listeners = (*self._listeners, listener)

        def forget() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not listener)

        return forget

    def keep_journal(self, journal: Journal) -> Snapshot:
        """Pass every event to a journal from now on, in order; return the snapshot before the first.

        Thread: the session is locked while the journal runs, so it must return at once and not call the session.
        """
        with self._lock:
            self._journals = (*self._journals, journal)
            return self._known

    def restore(self, known: Snapshot) -> None:
        """Replace the state: for a seek in a replay, or the start of a viewer or sweep."""
        with self._lock:
            self._known = known

    def snapshot(self) -> Snapshot:
        """Return the present state."""
        with self._lock:
            return replace(self._known, at_ns=self._clock_ns())
