"""The session: the state of a race."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any, TypeAlias, TypeVar

from tfmon.model import events, host_states
from tfmon.model.event_base import Event
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.host_states import Hosts
from tfmon.model.lane import Lane
from tfmon.model.lane_events import CauseSeen, KnobOffered, LaneFailed, PathsUsed
from tfmon.model.lane_relations import explain_collision, set_names
from tfmon.model.lane_state import LaneState, ProcessInfo, copied
from tfmon.model.lane_texts import explain_end
from tfmon.model.periods import CAUSES, Periods, after_event
from tfmon.model.race import CONCURRENT, MODE_MARKS, Machine, Race, RecordingState, interleaved
from tfmon.model.readings import HostSample, TreeSample
from tfmon.model.series import SWEEP, TUNING, SeriesState, SeriesStep, state_after
from tfmon.model.spec import LaneSpec, device_names

STALE_TICKS = 3


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The immutable state of a race at one moment."""

    at_ns: int
    race: Race
    lanes: tuple[LaneState, ...]
    hosts: Hosts = field(default_factory=lambda: {"": host_states.HostState()})
    """The key "" is always present."""
    experiment: SeriesState | None = None
    tuned: SeriesState | None = None
    periods: Periods = ()
    recording: RecordingState | None = None

    def lane(self, name: str) -> LaneState:
        """Return a lane; raises KeyError."""
        return {lane.spec.name: lane for lane in self.lanes}[name]

    def called(self, lane: LaneState) -> str:
        """Return the displayed name of a lane."""
        device, short = lane.spec.place, lane.short_title
        if len({lane.spec.place for lane in self.lanes}) > 1 and not short.startswith(device):
            short = f"{device}, {short}"
        return lane.title if len(self.lanes) < 3 else f"{lane.spec.id} {short}".strip()

    @property
    def sweep(self) -> SeriesState | None:
        """The state of a sweep."""
        state = self.experiment
        return state if state is not None and state.plan.policy == SWEEP else None

    @property
    def differing(self) -> tuple[str, ...]:
        """Knobs in which lanes differ now."""
        return (self.lanes[0].differs or ()) if self.lanes else ()

    @property
    def recorded(self) -> str:
        """The path of the recording, or ""."""
        return self.recording.path if self.recording is not None else ""

    @property
    def over(self) -> bool:
        """Whether all lanes have ended."""
        return bool(self.lanes) and all(lane.over for lane in self.lanes)

    @property
    def raced_s(self) -> float | None:
        """Time from the start signal to the last window."""
        ends = [end_ns for lane in self.lanes if (end_ns := lane.measurements.until_ns) is not None]
        started_ns = self.race.started_ns
        return (max(ends) - started_ns) / 1e9 if ends and started_ns is not None else None

    @property
    def has_result(self) -> bool:
        """Whether there is a result, which no key may delete."""
        trying = self.experiment is not None and not self.experiment.over
        return not trying and any(lane.steady.windows for lane in self.lanes)

    @property
    def machine(self) -> Machine:
        """The monitor's machine."""
        return self.hosts[""].machine

    @property
    def gpus(self) -> tuple[GpuSample, ...]:
        """The GPUs of the monitor's machine."""
        return self.hosts[""].gpus

    @property
    def host(self) -> HostSample | None:
        """The latest sample of the monitor's machine."""
        return self.hosts[""].sample

    def place_of(self, lane: LaneState) -> host_states.HostState:
        """Return the state of a lane's machine."""
        return self.hosts.get(lane.spec.host) or host_states.HostState()

    def machine_of(self, lane: LaneState) -> Machine:
        """Return the facts about a lane's machine."""
        return self.place_of(lane).machine

    def machine_key(self, lane: LaneState) -> str:
        """Return the key of a lane's machine."""
        return host_states.machine_key(self.hosts, lane.spec.host)

    @property
    def machines(self) -> int:
        """Number of the lanes' machines."""
        return len({self.machine_key(lane) for lane in self.lanes})

    def silent_s(self, lane: LaneState) -> float | None:
        """Return for how long nothing has come from a lane's machine in seconds, or `None` if that is normal."""
        host, state = lane.spec.host, self.place_of(lane)
        if not host or lane.over or state.lost or state.sample is None:
            return None
        received_ns = [lane.heartbeat.heard_ns or 0 for lane in self.lanes if lane.spec.host == host]
        age_s = (self.at_ns - max(state.sample.at_ns, *received_ns)) / 1e9
        return age_s if age_s > STALE_TICKS else None

    def stands_still_s(self, lane: LaneState) -> float | None:
        """Return the time without a step, or `None` if normal, or unknown because the machine is silent."""
        return lane.stands_still_s(self.at_ns) if self.silent_s(lane) is None else None

    def device_name(self, lane: LaneState) -> str:
        """Return the model of a lane's processor."""
        if lane.spec.kind == "cpu":
            return self.machine_of(lane).cpu_name
        return lane.process.device_name or device_names([gpu.name for gpu in self.gpus_of(lane)])

    def gpus_of(self, lane: LaneState) -> tuple[GpuSample, ...]:
        """Return the latest samples of a lane's GPUs."""
        return tuple(gpu for gpu in self.place_of(lane).gpus if host_states.trains_on(lane, gpu))

    def stale_s(self, sample: GpuSample | HostSample) -> float | None:
        """Return the age of an overdue sample."""
        age_s = (self.at_ns - sample.at_ns) / 1e9
        every_s = sample.every_s if isinstance(sample, GpuSample) else 1.0
        return age_s if age_s > STALE_TICKS * every_s else None


Heard = TypeVar("Heard", bound=Event)
Journal: TypeAlias = Callable[[Event, Snapshot], None]


class Session:
    """The owner of the state, which depends only on the order of events. Thread: any."""

    def __init__(self, machine: Machine, clock_ns: Callable[[], int]) -> None:
        self._lock = threading.Lock()
        self._clock_ns = clock_ns
        self._lanes: list[Lane] = []
        self._hosts: dict[str, host_states.HostState] = {}
        self._journals: tuple[Journal, ...] = ()
        self._listeners: tuple[tuple[tuple[type[Event], ...], Callable[[Any], None]], ...] = ()
        self.restore(Snapshot(at_ns=0, race=Race(), lanes=(), hosts={"": host_states.HostState(machine)}))

    def begin(self, race: Race, specs: Sequence[LaneSpec], source: str = "") -> None:
        """Begin a race. `source` is the scenario's digest."""
        race = replace(race, number=self._race.number + 1)
        self.accept(events.RaceBegan(at_ns=self._clock_ns(), race=race, specs=tuple(specs), source=source))

    def set_machine(self, machine: Machine, host: str = "") -> None:
        """Set the facts about a machine."""
        self.accept(events.MachineKnown(at_ns=self._clock_ns(), machine=machine, host=host))

    def start_clock(self, at_ns: int) -> None:
        """Record the start signal."""
        self.accept(events.ClockStarted(at_ns=at_ns))

    def set_mode(self, mode: str) -> None:
        """Set the mode, which begins a new steady state."""
        self.accept(events.ModeChanged(at_ns=self._clock_ns(), mode=mode))

    def grant_slice(self, lane: str, beside: Sequence[str] = ()) -> None:
        """Record the start of a slice."""
        self.accept(events.SliceGranted(at_ns=self._clock_ns(), lane=lane, beside=tuple(beside)))

    def set_exclusive(self, lane: str) -> None:
        """Set the lane that trains alone."""
        self.accept(events.ExclusiveChanged(at_ns=self._clock_ns(), exclusive=lane))

    def advance_series(self, step: SeriesStep) -> None:
        """Record a step of a series."""
        self.accept(events.SeriesAdvanced(at_ns=self._clock_ns(), step=step))

    def accept(self, event: Event) -> None:
        """Accept an event."""
        with self._lock:
            taken = not event.lane or self._index(event.lane) is not None
            if taken and not (isinstance(event, CauseSeen) and event.cause in self._race.ignored_causes):
                self._change(event)
            for journal in self._journals:
                journal(event, self._snapshot(event.at_ns))
        for kinds, listener in self._listeners if taken else ():
            if isinstance(event, kinds):
                listener(event)

    def listen(self, listener: Callable[[Heard], None], *kinds: type[Heard]) -> Callable[[], None]:
        """Call `listener` with each event, or those of some kinds; return the function that ends this."""
        entry = kinds or (Event,), listener
        self._listeners = (*self._listeners, entry)

        def forget() -> None:
            self._listeners = tuple(known for known in self._listeners if known is not entry)

        return forget

    def keep_journal(self, journal: Journal) -> Snapshot:
        """Pass each event to a journal; return the snapshot before the first event.

        Thread: the journal runs with the session's lock, so it must return at once and not call the session.
        """
        with self._lock:
            self._journals = (*self._journals, journal)
            return self._snapshot(self._clock_ns())

    def drop_journal(self, journal: Journal) -> None:
        """Pass no more events to a journal."""
        with self._lock:
            self._journals = tuple(kept for kept in self._journals if kept != journal)

    def restore(self, known: Snapshot) -> None:
        """Replace the state."""
        with self._lock:
            self._race, self._experiment, self._tuned = known.race, known.experiment, known.tuned
            self._periods, self._recording = known.periods, known.recording
            self._lanes = [copied(lane, Lane) for lane in known.lanes]
            self._hosts = {name: copied(host, host_states.HostState) for name, host in known.hosts.items()}
            self._copied: list[LaneState | None] = list(known.lanes)
            self._copied_hosts: Hosts | None = None

    def snapshot(self) -> Snapshot:
        """Return the present state."""
        with self._lock:
            return self._snapshot(self._clock_ns())

    def _snapshot(self, at_ns: int) -> Snapshot:
        lanes = tuple(
            copy or copied(lane, LaneState) for lane, copy in zip(self._lanes, self._copied, strict=True)
        )
        hosts = self._copied_hosts or {
            name: copied(host, host_states.HostState) for name, host in self._hosts.items()
        }
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

    def _host(self, name: str) -> host_states.HostState:
        self._copied_hosts = None
        return self._hosts.setdefault(name, host_states.HostState())

    def _forget_copies(self) -> None:
        self._copied = [None] * len(self._lanes)

    def _change(self, event: Event) -> None:
        before = self._snapshot(event.at_ns) if isinstance(event, CAUSES) else None
        index = None if isinstance(event, events.SliceGranted) else self._index(event.lane)
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
            sliced = interleaved(race.mode, race.exclusive, len(self._lanes))
            host = self._hosts.get(lane.spec.host) or host_states.HostState()
            lane.on_tree_sample(event, sliced=sliced, cores=host.machine.cores)
            return
        if isinstance(event, KnobOffered):
            self._race = race.with_knob(event)
        lane.accept(event)
        if isinstance(event, LaneFailed | events.LaneEnded | PathsUsed):
            self._explain(lane)

    def _explain(self, lane: Lane) -> None:
        race = self._race
        host = self._hosts.get(lane.spec.host) or host_states.HostState()
        gpus = [gpu for gpu in host.gpus if host_states.trains_on(lane, gpu)]
        explain_end(lane, gpus, host_states.own_pids(self._hosts, self._lanes, lane.spec.host), race.knobs)
        for lane_ in self._lanes:
            explain_collision(lane_, self._lanes, race.views)
        self._forget_copies()

    def _change_race(self, event: Event) -> None:
        race, lanes = self._race, self._lanes
        over = bool(lanes) and all(lane.over for lane in lanes)
        match event:
            case events.RaceBegan():
                self._begin_race(event)
            case events.MachineKnown():
                self._host(event.host).machine = event.machine
            case events.HostEvent():
                self._host(event.host).on_connection(event)
            case events.ClockStarted():
                self._race = replace(race, started_ns=event.at_ns)
            case events.ModeChanged() if not over:
                if event.mode != race.mode:
                    for lane in lanes:
                        lane.measure_again()
                        lane.mark_charts(event.at_ns, MODE_MARKS[event.mode])
                self._race = replace(race, mode=event.mode, training=())
            case events.UserRequested(action="end"):
                for lane in lanes:
                    lane.end.killed = lane.end.killed or lane.spec.name in event.lanes
            case events.ExclusiveChanged():
                alone = event.exclusive != race.exclusive and len(lanes) > 1 and not over
                if race.mode == CONCURRENT and alone:
                    for lane in lanes:
                        lane.measure_again()
                self._race = replace(race, exclusive=event.exclusive)
            case events.SliceGranted():
                training = tuple(name for name in (event.lane, *event.beside) if name)
                for lane in lanes:
                    lane.on_slice_granted(event.at_ns, trains=lane.spec.name in training)
                self._race = replace(race, training=training)
            case events.SeriesAdvanced(step=step):
                if self._experiment is not None and not isinstance(step, SeriesState):
                    step = state_after(self._experiment, step)
                if isinstance(step, SeriesState):
                    self._experiment = step
                    self._tuned = step if step.plan.policy == TUNING else self._tuned
            case events.Interrupted():
                self._race = replace(race, interrupted=event.reason)
            case events.FilesWritten():
                self._race = replace(race, views=event.views)
            case events.RecordingChanged():
                self._recording = event.recording
            case HostSample():
                host_states.take_host_sample(self._host(event.host), lanes, event)
            case GpuSample():
                self._host(event.host)
                host_states.take_gpu_sample(self._hosts, lanes, event)

    def _begin_race(self, event: events.RaceBegan) -> None:
        self._lanes = [
            Lane(spec, phase_since_ns=event.at_ns, process=ProcessInfo(started_ns=event.at_ns))
            for spec in event.specs
        ]
        self._race, self._periods = event.race, ()
        self._experiment = self._tuned = None
        self._forget_copies()
