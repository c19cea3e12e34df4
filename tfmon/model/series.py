"""Plan, state and steps of a series."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TypeAlias

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.knobs import BATCH_SIZE, MIXED_PRECISION, KnobValue, Settings
from tfmon.model.race import Machine
from tfmon.model.readings import Estimate
from tfmon.model.spec import LaneSpec, devices_of, step_batch

CROSSOVER, TUNING, SWEEP = "crossover", "tuning", "sweep"
KEPT, REVERTED, REFUSED, UNDONE, STOPPED = "kept", "reverted", "refused", "undone", "stopped"
MOST_DEATHS = 3
LATEST_VISITS = 40


@dataclass(frozen=True, slots=True)
class SeriesPlan:
    """The plan of a series."""

    policy: str
    over: dict[str, tuple[KnobValue, ...]] = field(default_factory=dict)
    lanes: tuple[str, ...] = ()
    everything: bool = False
    scenario: str = ""
    """Empty for the present race."""
    baseline: dict[str, KnobValue] = field(default_factory=dict)
    places: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ("",)
    settings: tuple[str, ...] = ()
    until_ci: float = 0.03
    """Half width at which a measurement ends, relative to the ratio."""
    each_s: float = 60.0
    slice_s: float = 0.5
    command: tuple[str, ...] = ()
    source: str = ""
    python: str = ""
    machines: dict[str, str] = field(default_factory=dict)
    hardware: dict[str, Machine] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two slices close in time."""

    log: float
    """Logarithm of the first throughput over the second."""
    leads: bool
    visit: int
    base: float = 0.0
    """Logarithm of the second throughput in examples/s."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Further figures from the last visit."""

    place: str
    examples_per_s: float | None = None
    baseline_examples_per_s: float | None = None
    step_ms: float | None = None
    memory_bytes: float | None = None
    memory_missing: str = ""
    bottleneck: str = ""
    bottleneck_text: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    baseline: dict[str, KnobValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """The circumstances of a change before its trial."""

    lane: str
    before: dict[str, KnobValue]
    bottleneck: str = ""
    purpose: str = ""
    restarts: bool = False
    choices: int = 1
    """Factor by which each test is stricter."""
    work: str = ""
    """Reason against keeping the change."""
    title: str = ""
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """A combination, a value, a change, or a claim."""

    number: int
    kind: str
    settings: dict[str, KnobValue]
    change: Change | None = None
    baseline: bool = False
    """Whether the attempt needs no measurement."""
    refused: str = ""
    pairs: tuple[Pair, ...] = ()
    visits: int = 0
    deaths: tuple[str, ...] = ()
    figures: Figures | None = None
    measured_s: float = 0.0
    outcome: str = ""
    gain: Estimate | None = None

    @property
    def failed(self) -> str:
        """The error of a finally failed attempt."""
        return self.deaths[-1] if len(self.deaths) >= MOST_DEATHS else ""

    @property
    def of_lane(self) -> Change:
        """Return the circumstances of a change."""
        assert self.change is not None, "it is no change of a lane"
        return self.change

    @property
    def settings_after(self) -> dict[str, KnobValue]:
        """All knobs after a change."""
        return {**self.of_lane.before, **self.settings}


@dataclass(frozen=True, slots=True)
class SeriesState:
    """The state of a series."""

    plan: SeriesPlan
    attempts: tuple[Attempt, ...] = ()
    first: int = 0
    running: dict[int, str] = field(default_factory=dict)
    visits_s: tuple[float, ...] = ()
    lost: dict[str, str] = field(default_factory=dict)
    """Reasons by unusable place."""
    under: tuple[dict[str, KnobValue], ...] = ()
    over: bool = False
    ended: str = ""

    @property
    def knob(self) -> str:
        """The first swept knob."""
        return next(iter(self.plan.over))

    @property
    def values(self) -> tuple[KnobValue, ...]:
        """The values of the first swept knob."""
        return self.plan.over[self.knob]

    @property
    def at(self) -> KnobValue | None:
        """The value that is being measured."""
        return next((self.attempts[number].settings[self.knob] for number in self.running), None)

    @property
    def lane(self) -> str:
        """The lane of a tuning."""
        return self.plan.lanes[0]

    @property
    def changes(self) -> tuple[Attempt, ...]:
        """The single changes of a race's tunings."""
        return tuple(attempt for attempt in self.attempts if not attempt.of_lane.whole)

    @property
    def present(self) -> tuple[Attempt, ...]:
        """The single changes of this tuning."""
        return tuple(attempt for attempt in self.attempts[self.first :] if not attempt.of_lane.whole)

    @property
    def whole(self) -> Attempt | None:
        """All kept changes together."""
        return next((attempt for attempt in self.attempts[self.first :] if attempt.of_lane.whole), None)

    @property
    def latest(self) -> Attempt | None:
        """The latest attempt of this series."""
        return self.attempts[-1] if len(self.attempts) > self.first else None


@dataclass(frozen=True, slots=True)
class SeriesBegan:
    """The lanes train."""

    under: tuple[dict[str, KnobValue], ...]


@dataclass(frozen=True, slots=True)
class VisitBegan:
    """The measurement of an attempt begins or continues."""

    number: int
    place: str
    attempt: Attempt | None = None


@dataclass(frozen=True, slots=True)
class PairMeasured:
    """Another pair was measured."""

    number: int
    pair: Pair
    took_s: float
    """Time since the previous pair."""


@dataclass(frozen=True, slots=True)
class VisitEnded:
    """The measurement of an attempt ends for now."""

    number: int
    figures: Figures | None = None
    refused: str = ""
    died: str = ""
    """Without an error message."""
    lost: str = ""
    took_s: float = 0.0
    outcome: str = ""
    gain: Estimate | None = None


@dataclass(frozen=True, slots=True)
class SeriesEnded:
    """Nothing more is measured."""

    ended: str = ""


SeriesStep: TypeAlias = SeriesState | SeriesBegan | VisitBegan | PairMeasured | VisitEnded | SeriesEnded


def state_after(state: SeriesState, step: SeriesStep) -> SeriesState:
    """Return the series after a step. Steps of other series change nothing."""
    match step:
        case SeriesState():
            return step
        case SeriesBegan():
            return replace(state, under=step.under)
        case SeriesEnded():
            return replace(state, running={}, over=True, ended=step.ended)
        case VisitBegan(number=number, attempt=Attempt()) if number == len(state.attempts):
            assert step.attempt is not None
            state = replace(state, attempts=(*state.attempts, step.attempt))
    if not 0 <= step.number < len(state.attempts):
        return state
    known, running, lost, visits_s = state.attempts[step.number], state.running, state.lost, state.visits_s
    match step:
        case VisitBegan():
            known = replace(known, visits=known.visits + 1)
            running = {**running, step.number: step.place}
        case PairMeasured():
            known = replace(known, pairs=(*known.pairs, step.pair), measured_s=known.measured_s + step.took_s)
        case VisitEnded():
            known = replace(
                known,
                figures=step.figures or known.figures,
                refused=step.refused or known.refused,
                deaths=(*known.deaths, step.died) if step.died else known.deaths,
                outcome=step.outcome or known.outcome,
                gain=step.gain or known.gain,
            )
            if step.lost and step.number in running:
                lost = {**lost, running[step.number]: step.lost}
            if step.took_s:
                visits_s = (*visits_s, step.took_s)[-LATEST_VISITS:]
            running = {number: device for number, device in running.items() if number != step.number}
    attempts = list(state.attempts)
    attempts[step.number] = known
    return replace(state, attempts=tuple(attempts), running=running, lost=lost, visits_s=visits_s)


def kind_of(spec: LaneSpec) -> str:
    """Return the kind of places with equal combinations."""
    kind, _, number = spec.device.partition(":")
    return kind if not number or number.isdecimal() else spec.device


def learns_differently(settings: Settings, baseline: Settings) -> tuple[str, ...]:
    """Return the changed knobs that affect learning."""
    changed = {**baseline, **settings}
    batch = step_batch(changed, devices_of(changed)) != step_batch(baseline, devices_of(baseline))
    precision = changed.get(MIXED_PRECISION.name) != baseline.get(MIXED_PRECISION.name)
    return (BATCH_SIZE.name,) * batch + (MIXED_PRECISION.name,) * precision
