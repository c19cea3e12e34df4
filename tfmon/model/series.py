"""The state of each series: a crossover or a tuning on lanes of a race, and a sweep of many combinations. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tfmon.model.knobs import BATCH_SIZE, MIXED_PRECISION, KnobValue, Settings
from tfmon.model.race import Machine
from tfmon.model.readings import Estimate
from tfmon.model.spec import LaneSpec, devices_of, step_batch

KEPT, REVERTED, REFUSED, UNDONE, STOPPED = "kept", "reverted", "refused", "undone", "stopped"
"""What came of an attempt. `refused`: the new setting could not take effect, or the lane failed under it."""


@dataclass(frozen=True, slots=True)
class CrossoverState:
    """A race of two lanes over the values of a knob; the measurements are in the lanes."""

    knob: str
    lanes: tuple[str, str]
    values: tuple[KnobValue, ...]
    refused: dict[KnobValue, str] = field(default_factory=dict)
    at: KnobValue | None = None
    left_s: float | None = None
    """How long it still takes at least, at the pace so far; None while that is not known."""
    most_left_s: float | None = None
    under: tuple[dict[str, KnobValue], ...] = ()
    """The settings of both lanes, apart from the knob; empty until both train."""
    over: bool = False
    ended: str = ""
    """Why it ended before all was measured; empty otherwise."""


@dataclass(frozen=True, slots=True)
class Block:
    """Slices in a row that a lane trained under one of the two settings of an attempt."""

    changed: bool
    since_ns: int
    until_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One lane trained under two settings alternately; the measurements are in the lane."""

    lane: str
    before: dict[str, KnobValue]
    """Every knob and its value in the old settings."""
    after: dict[str, KnobValue]
    bottleneck: str = ""
    """What limited the lane when this was proposed: a kind of `analysis.bottleneck`."""
    purpose: str = ""
    restarts: bool = False
    choices: int = 1
    """From how many changes the series chooses: each is tested so much more strictly."""
    blocks: tuple[Block, ...] = ()
    outcome: str = ""
    """`kept`, `reverted`, `refused`, `undone` or `stopped`; empty while it is under way."""
    reason: str = ""
    changes: str = ""
    """What it changes of the script's work, for which it is not kept; empty for nothing."""
    gain: Estimate | None = None
    """Throughput under the new settings over that under the old ones, when it was decided or stopped."""
    title: str = ""

    @property
    def change(self) -> dict[str, KnobValue]:
        """The knobs that differ, with their new values."""
        return {knob: value for knob, value in self.after.items() if self.before.get(knob) != value}


@dataclass(frozen=True, slots=True)
class TuneState:
    """Advice that is or was tried on a lane; earlier attempts of the race stay."""

    lane: str
    everything: bool = False
    """True when it continues until nothing helps any more."""
    attempts: tuple[Attempt, ...] = ()
    """All of this race, on any lane; the latest last."""
    first: int = 0
    total: Attempt | None = None
    """The settings at the end against those at the beginning; None unless several changes were kept."""
    over: bool = False
    ended: str = ""
    """Why it ended before there was nothing left to try; empty otherwise."""

    @property
    def series(self) -> tuple[Attempt, ...]:
        """The attempts of this series; the latest last."""
        return self.attempts[self.first :]

    @property
    def latest(self) -> Attempt | None:
        """The attempt of this series that is or was made last."""
        return self.total if self.total is not None else self.series[-1] if self.series else None


Experiment: TypeAlias = CrossoverState | TuneState


MOST_DEATHS = 3
"""So often a combination is begun; one whose process died each time has failed."""


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What is measured: everything that is settled before a lane is started."""

    scenario: str
    """Name or path of the scenario, or the command in words."""
    over: dict[str, tuple[KnobValue, ...]]
    baseline: dict[str, KnobValue]
    """Settings of the lane that each combination is raced against, as far as they are known."""
    places: tuple[str, ...]
    """Where it is measured, such as `cpu` or `gpu2/gpu:0`; a place may be there more than once."""
    words: tuple[str, ...]
    kinds: tuple[str, ...]
    """The devices that these are, without their numbers: each combination is measured on each of them."""
    settings: tuple[str, ...] = ()
    until_ci: float = 0.03
    """A combination is measured until half its interval over its ratio is as small as this."""
    each_s: float = 60.0
    """Longest time that one is raced for."""
    everything: bool = False
    """Whether combinations that cannot win any more are measured all the same."""
    slice_s: float = 0.5
    command: tuple[str, ...] = ()
    source: str = ""
    python: str = ""
    machines: dict[str, str] = field(default_factory=dict)
    hardware: dict[str, Machine] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pair:
    """One round: a slice of the combination and one of the baseline, one right after the other."""

    log: float
    """Natural logarithm of the combination's throughput over the baseline's."""
    leads: bool
    visit: int
    """Which visit measured it: each has a fresh process of both."""
    took_s: float
    """Since the pair before it."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What else the last visit told of a combination; None where it is not known."""

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
    """Of TensorFlow, Keras, NumPy and Python there; "" for unknown."""
    baseline: dict[str, KnobValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Combination:
    """One combination of settings on one kind of device, and what is known of it."""

    number: int
    kind: str
    settings: dict[str, KnobValue]
    baseline: bool = False
    """True for the combination that the baseline is: nothing is to be measured."""
    refused: str = ""
    """Why it cannot be measured; empty if it can."""
    pairs: tuple[Pair, ...] = ()
    visits: int = 0
    deaths: tuple[str, ...] = ()
    figures: Figures | None = None
    measured_s: float = 0.0
    """How long it was raced for, by its pairs."""

    @property
    def failed(self) -> str:
        """Why it is not tried any more; empty while it may be."""
        return self.deaths[-1] if len(self.deaths) >= MOST_DEATHS else ""


@dataclass(frozen=True, slots=True)
class VisitBegan:
    """A worker takes up a combination, with fresh processes."""

    number: int
    place: str


@dataclass(frozen=True, slots=True)
class PairMeasured:
    """Another pair was measured."""

    number: int
    pair: Pair


@dataclass(frozen=True, slots=True)
class VisitEnded:
    """A worker leaves a combination, for now or for good."""

    number: int
    figures: Figures | None = None
    refused: str = ""
    """Why it cannot be measured: the scenario, or the device, does not take it; empty if it can."""
    died: str = ""
    """Why its process ended without a word of its own; empty if it did not."""


SweepEvent: TypeAlias = VisitBegan | PairMeasured | VisitEnded


@dataclass(frozen=True, slots=True)
class SweepState:
    """All that is known of a sweep."""

    plan: SweepPlan
    combinations: tuple[Combination, ...]
    running: dict[int, str] = field(default_factory=dict)
    visits_s: tuple[float, ...] = ()
    """How long the latest visits took, with getting ready."""
    lost: dict[str, str] = field(default_factory=dict)
    """Places that cannot be used any more, and why."""
    over: bool = False
    ended: str = ""
    """Why it ended before all was measured; empty otherwise."""


def after(state: SweepState, event: SweepEvent) -> SweepState:
    """Return the sweep after an event; one of another sweep changes nothing."""
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
    """Return the known knobs, not a script's own, by which a combination learns other than the baseline."""
    changed = {**baseline, **settings}
    batch = step_batch(changed, devices_of(changed)) != step_batch(baseline, devices_of(baseline))
    precision = changed.get(MIXED_PRECISION.name) != baseline.get(MIXED_PRECISION.name)
    return (BATCH_SIZE.name,) * batch + (MIXED_PRECISION.name,) * precision
