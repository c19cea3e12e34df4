"""The state of each series: crossover, tuning and sweep. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tfmon.model.knobs import BATCH_SIZE, MIXED_PRECISION, KnobValue, Settings
from tfmon.model.race import Machine
from tfmon.model.readings import Estimate
from tfmon.model.spec import LaneSpec, devices_of, step_batch

KEPT, REVERTED, REFUSED, UNDONE, STOPPED = "kept", "reverted", "refused", "undone", "stopped"
"""Outcomes of an attempt. `refused`: the setting could not take effect, or the lane failed under it."""


@dataclass(frozen=True, slots=True)
class CrossoverState:
    """A race of two lanes over the values of a knob; the measurements are in the lanes."""

    knob: str
    lanes: tuple[str, str]
    values: tuple[KnobValue, ...]
    refused: dict[KnobValue, str] = field(default_factory=dict)
    at: KnobValue | None = None
    left_s: float | None = None
    """Least remaining time at the present pace. `None` if unknown."""
    most_left_s: float | None = None
    under: tuple[dict[str, KnobValue], ...] = ()
    """Settings of both lanes without the knob. Empty until both train."""
    over: bool = False
    ended: str = ""
    """Why it ended early. Otherwise empty."""


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive slices of a lane under one of the two settings of an attempt."""

    changed: bool
    since_ns: int
    until_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One lane trained under two settings alternately; the measurements are in the lane."""

    lane: str
    before: dict[str, KnobValue]
    """All knobs with their old values."""
    after: dict[str, KnobValue]
    bottleneck: str = ""
    """Bottleneck at the proposal: a kind of `analysis.bottleneck`."""
    purpose: str = ""
    restarts: bool = False
    choices: int = 1
    """Number of changes to choose from: each test is stricter by this factor."""
    blocks: tuple[Block, ...] = ()
    outcome: str = ""
    """`kept`, `reverted`, `refused`, `undone` or `stopped`. Empty while it is under way."""
    reason: str = ""
    changes: str = ""
    """Its change of the script's work, which prevents keeping it. Otherwise empty."""
    gain: Estimate | None = None
    """Throughput under the new settings over the old ones, at its decision."""
    title: str = ""

    @property
    def change(self) -> dict[str, KnobValue]:
        """The knobs that differ, with their new values."""
        return {knob: value for knob, value in self.after.items() if self.before.get(knob) != value}


@dataclass(frozen=True, slots=True)
class TuneState:
    """Advice tried on a lane; earlier attempts of the race stay."""

    lane: str
    everything: bool = False
    """Whether it continues until nothing helps any more."""
    attempts: tuple[Attempt, ...] = ()
    """All attempts of this race, on any lane; the latest last."""
    first: int = 0
    total: Attempt | None = None
    """The settings at the end against those at the beginning. `None` unless several changes were kept."""
    over: bool = False
    ended: str = ""
    """Why it ended early. Otherwise empty."""

    @property
    def series(self) -> tuple[Attempt, ...]:
        """The attempts of this series; the latest last."""
        return self.attempts[self.first :]

    @property
    def latest(self) -> Attempt | None:
        """The latest attempt of this series."""
        return self.total if self.total is not None else self.series[-1] if self.series else None


Experiment: TypeAlias = CrossoverState | TuneState


MOST_DEATHS = 3
"""A combination whose process died this often has failed."""


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """The plan of a sweep, complete before a lane is started."""

    scenario: str
    """Name or path of the scenario, or the command as text."""
    over: dict[str, tuple[KnobValue, ...]]
    baseline: dict[str, KnobValue]
    """Known settings of the lane against which each combination is raced."""
    places: tuple[str, ...]
    """Such as `cpu` or `gpu2/gpu:0`; a place can occur more than once."""
    words: tuple[str, ...]
    kinds: tuple[str, ...]
    """Kinds of device, without numbers: each combination is measured on each kind."""
    settings: tuple[str, ...] = ()
    until_ci: float = 0.03
    """A combination is measured until half its interval over its ratio is at most this."""
    each_s: float = 60.0
    """Longest time that one is raced for."""
    everything: bool = False
    """Whether combinations that cannot win are measured to the end."""
    slice_s: float = 0.5
    command: tuple[str, ...] = ()
    source: str = ""
    python: str = ""
    machines: dict[str, str] = field(default_factory=dict)
    hardware: dict[str, Machine] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pair:
    """One round: consecutive slices of the combination and of the baseline."""

    log: float
    """Natural logarithm of the combination's throughput over the baseline's."""
    leads: bool
    visit: int
    """Number of the visit; each has fresh processes of both."""
    took_s: float
    """Since the previous pair."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Further figures from the last visit. `None` if unknown."""

    place: str
    examples_per_s: float | None = None
    baseline_examples_per_s: float | None = None
    step_ms: float | None = None
    memory_bytes: float | None = None
    """GPU memory of a GPU lane, private memory of a CPU lane."""
    memory_missing: str = ""
    bottleneck: str = ""
    bottleneck_text: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    """Versions of TensorFlow, Keras, NumPy and Python; "" for unknown."""
    baseline: dict[str, KnobValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Combination:
    """One combination of settings on one kind of device, with its measurements."""

    number: int
    kind: str
    settings: dict[str, KnobValue]
    baseline: bool = False
    """Whether it equals the baseline and needs no measurement."""
    refused: str = ""
    """Why it cannot be measured. Otherwise empty."""
    pairs: tuple[Pair, ...] = ()
    visits: int = 0
    deaths: tuple[str, ...] = ()
    figures: Figures | None = None
    measured_s: float = 0.0
    """Race time of its pairs."""

    @property
    def failed(self) -> str:
        """Why it has failed for good. Otherwise empty."""
        return self.deaths[-1] if len(self.deaths) >= MOST_DEATHS else ""


@dataclass(frozen=True, slots=True)
class VisitBegan:
    """A worker starts a combination, with fresh processes."""

    number: int
    place: str


@dataclass(frozen=True, slots=True)
class PairMeasured:
    """Another pair was measured."""

    number: int
    pair: Pair


@dataclass(frozen=True, slots=True)
class VisitEnded:
    """A worker stops measuring a combination, temporarily or for good."""

    number: int
    figures: Figures | None = None
    refused: str = ""
    """The scenario or device does not accept it. Otherwise empty."""
    died: str = ""
    """Why its process ended without an error of its own. Otherwise empty."""


SweepEvent: TypeAlias = VisitBegan | PairMeasured | VisitEnded


@dataclass(frozen=True, slots=True)
class SweepState:
    """The state of a sweep."""

    plan: SweepPlan
    combinations: tuple[Combination, ...]
    running: dict[int, str] = field(default_factory=dict)
    visits_s: tuple[float, ...] = ()
    """Durations of the latest visits, with getting ready."""
    lost: dict[str, str] = field(default_factory=dict)
    """Unusable places with the reason."""
    over: bool = False
    ended: str = ""
    """Why it ended early. Otherwise empty."""


def after(state: SweepState, event: SweepEvent) -> SweepState:
    """Return the sweep after an event; an event of another sweep changes nothing."""
    if not 0 <= event.number < len(state.combinations):
        return state
    known, running = state.combinations[event.number], state.running
    match event:
        case VisitBegan():
            known = replace(known, visits=known.visits + 1)
            running = {**running, event.number: event.place}
        case PairMeasured():
            pairs, measured_s = (*known.pairs, event.pair), known.measured_s + event.pair.took_s
            known = replace(known, pairs=pairs, measured_s=measured_s)
        case VisitEnded():
            deaths = (*known.deaths, event.died) if event.died else known.deaths
            figures, refused = event.figures or known.figures, event.refused or known.refused
            known = replace(known, figures=figures, refused=refused, deaths=deaths)
            running = {number: place for number, place in running.items() if number != event.number}
    combinations = list(state.combinations)
    combinations[event.number] = known
    return replace(state, combinations=tuple(combinations), running=running)


def kind_of(spec: LaneSpec) -> str:
    """Return the kind of places that measure the same combinations: `cpu`, `gpu`, or several devices."""
    kind, _, number = spec.device.partition(":")
    return kind if not number or number.isdecimal() else spec.device


def learns_differently(settings: Settings, baseline: Settings) -> tuple[str, ...]:
    """Return the known knobs, not a script's own, that change learning compared to the baseline."""
    changed = {**baseline, **settings}
    batch = step_batch(changed, devices_of(changed)) != step_batch(baseline, devices_of(baseline))
    precision = changed.get(MIXED_PRECISION.name) != baseline.get(MIXED_PRECISION.name)
    return (BATCH_SIZE.name,) * batch + (MIXED_PRECISION.name,) * precision
