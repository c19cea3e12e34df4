"""How long the stages of getting ready took before on this machine, so that a user knows how long to wait.

The last durations of each stage are kept in the state folder, by machine: several may share a home folder.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path

from tfmon.model.events import Event, LaneStarted
from tfmon.model.lane_events import PhaseEntered
from tfmon.model.lane_state import BUILDING, IMPORTING, STARTING, TRACING, WARMING_UP
from tfmon.model.session import Session, Snapshot
from tfmon.model.spec import LaneSpec
from tfmon.runner import state_file

KEEP = 7
"""Durations that are kept of each stage; the median of these is what it usually takes."""
LOADED_S = 0.3
"""A shorter import was none: a spare worker had loaded TensorFlow before."""
MOST_STAGES = 500
_OF_A_SCENARIO = (BUILDING, TRACING, WARMING_UP)
_STAGES = (STARTING, IMPORTING, *_OF_A_SCENARIO)


def path() -> Path:
    """Return where durations are remembered; it may not exist yet."""
    return state_file.path("stages")


class StageTimes:
    """Learns from every lane that gets ready, and remembers.

    Thread: `hear` in the one that accepts events; the others in any.
    """

    def __init__(self, path: Path, machine: str) -> None:
        """Read what is remembered of this machine; a file that cannot be read counts as empty."""
        self._path = path
        self._machine = machine
        self._began: dict[str, tuple[str, int]] = {}
        """By lane, its stage and when that began."""
        self._known = _read(path).get(machine, {})
        self._changed = False

    def listen(self, session: Session) -> None:
        """Learn from the lanes of a session."""
        session.listen(lambda event: self._hear(event, session))

    def usual(self, snapshot: Snapshot) -> Mapping[str, Mapping[str, float]]:
        """Return the seconds that each stage usually takes, by lane and phase, of the stages that are known."""
        found: dict[str, dict[str, float]] = {}
        for lane in snapshot.lanes:
            took = {stage: self._known.get(_key(stage, snapshot, lane.spec), []) for stage in _STAGES}
            found[lane.spec.name] = {stage: statistics.median(past) for stage, past in took.items() if past}
        return found

    def save(self) -> None:
        """Write what was learnt; other machines' durations stay. A folder that cannot be written is no failure."""
        if not self._changed:
            return
        kept = dict(list(self._known.items())[-MOST_STAGES:])
        self._changed = not state_file.write(self._path, {**_read(self._path), self._machine: kept})

    def _hear(self, event: Event, session: Session) -> None:
        if isinstance(event, LaneStarted):
            self._began[event.lane] = (STARTING, event.at_ns)
        elif isinstance(event, PhaseEntered) and event.lane in self._began:
            stage, since_ns = self._began[event.lane]
            if stage != STARTING or event.phase == IMPORTING:  # a spare worker started long before
                self._learn(stage, (event.at_ns - since_ns) / 1e9, session.snapshot(), event.lane)
            if event.phase in _STAGES:
                self._began[event.lane] = (event.phase, event.at_ns)
            else:
                del self._began[event.lane]

    def _learn(self, stage: str, took_s: float, snapshot: Snapshot, lane: str) -> None:
        spec = next(one.spec for one in snapshot.lanes if one.spec.name == lane)
        if snapshot.lane(lane).command or took_s < 0:
            return
        if stage == IMPORTING and took_s < LOADED_S:
            return
        key = _key(stage, snapshot, spec)
        past = self._known.pop(key, [])
        self._known[key] = [*past, round(took_s, 3)][-KEEP:]
        self._changed = True


def _key(stage: str, snapshot: Snapshot, spec: LaneSpec) -> str:
    """Name a stage: what a scenario builds and traces has a time of its own on each machine and kind of device."""
    words = (spec.host, *((snapshot.race.scenario, spec.kind) if stage in _OF_A_SCENARIO else ()), stage)
    return " ".join(filter(None, words))


def _read(path: Path) -> dict[str, dict[str, list[float]]]:
    """Return what the file holds by machine; only what has the right form."""
    return {
        machine: {stage: past for stage, past in stages.items() if _is_past(past)}
        for machine, stages in state_file.read(path).items()
        if isinstance(stages, dict)
    }


def _is_past(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, int | float) and 0 <= one < 1e6 for one in value)
