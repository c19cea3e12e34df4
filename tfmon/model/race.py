"""A race, machines, a recording, claims, and scenarios."""

from __future__ import annotations

from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.folder_views import View
from tfmon.model.knobs import Knob, KnobValue
from tfmon.model.readings import ALWAYS_VALID, Estimate, IntervalKind

if TYPE_CHECKING:
    from tfmon.model.lane_events import KnobOffered

TURNS, CONCURRENT = "turns", "concurrent"
MODES = (TURNS, CONCURRENT)
MODE_MARKS = {TURNS: "taking turns", CONCURRENT: "all at once"}
MARGIN = 0.03
"""Smaller differences do not count."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine."""

    hostname: str = ""
    system: str = ""
    cpu_name: str = ""
    cores: int = 0
    usable_cores: float = 0
    memory_bytes: int = 0
    gpus: tuple[str, ...] = ()
    no_gpu: str = ""
    boot: str = ""
    quota_cores: float | None = None
    nice: int | None = None
    python: str = ""
    tensorflow: str = ""
    driver: str = ""
    power_limits_w: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class BetweenProcesses:
    """A machine's between-process variance: a scaled chi-squared prior."""

    squares: float
    """`degrees` times the variance of the log ratio."""
    degrees: float
    races: int = 0


def interleaved(mode: str, exclusive: str, lanes: int) -> bool:
    """Return whether lanes train one at a time."""
    return bool(exclusive) or (mode == TURNS and lanes > 1)


@dataclass(frozen=True, slots=True)
class Race:
    """A race and its progress."""

    scenario: str = ""
    title: str = ""
    mode: str = TURNS
    """`turns`: in slices; `concurrent`: all at the same time."""
    training: tuple[str, ...] = ()
    knobs: tuple[Knob, ...] = ()
    started_ns: int | None = None
    seconds: float | None = None
    steps: int | None = None
    slice_s: float | None = None
    number: int = 0
    exclusive: str = ""
    interrupted: str = ""
    fresh: bool = False
    between: BetweenProcesses | None = None
    interval: IntervalKind = ALWAYS_VALID
    margin: float = MARGIN
    until_ci: float | None = None
    """Half width of intervals at which the race ends."""
    ignored_causes: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()
    views: dict[str, View] = field(default_factory=dict)

    def with_knob(self, offered: KnobOffered) -> Race:
        """Return the race with an offered knob."""
        if any(knob.name == offered.knob for knob in self.knobs):
            return self
        limits = (offered.choices, offered.low, offered.high)
        knob = Knob(offered.knob, offered.default, offered.help, "live", *limits)
        return replace(self, knobs=(*self.knobs, knob))


@dataclass(frozen=True, slots=True)
class RecordingState:
    """The recording of a race."""

    path: str
    stopped_ns: int | None = None
    reason: str = ""


Outcome = Literal["supported", "contradicted", "too close to call", "not testable here", "corrected"]


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement that predicts a comparison of two lanes."""

    id: str
    source: str = ""
    says: str = ""
    first: str = ""
    second: str = ""
    at_least: float = 1.0
    at_most: float | None = None
    """Limit for a claim of no difference."""
    needs: Literal["", "gpu", "mac"] = ""
    seconds: float | None = None
    corrected: str = ""
    """Correction of a wrong statement."""


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """A claim and its result."""

    scenario: str
    claim: Claim
    outcome: Outcome
    ratio: Estimate | None = None
    reason: str = ""


def judge(claim: Claim, ratio: Estimate) -> Outcome:
    """Return the outcome, by the whole interval."""
    if claim.at_most is not None:
        if 1 / claim.at_most <= ratio.low and ratio.high <= claim.at_most:
            return "supported"
        outside = ratio.low > claim.at_most or ratio.high < 1 / claim.at_most
        return "contradicted" if outside else "too close to call"
    if ratio.low > claim.at_least:
        return "supported"
    return "contradicted" if ratio.high < claim.at_least else "too close to call"


@dataclass(frozen=True, slots=True)
class ScenarioInfo:
    """The facts about a scenario."""

    name: str
    path: Path
    origin: str
    title: str
    """First line of the docstring."""
    doc: str = ""
    knobs: tuple[Knob, ...] = ()
    contrast: tuple[str, ...] = ()
    """Lanes of a race without a GPU."""
    examples: int | None = None
    """Number of examples, or `None` if unknown."""
    claims: tuple[Claim, ...] = ()
    command: tuple[str, ...] = ()
    """The user's command instead of a scenario."""

    def announced(self, mode: str) -> Race:
        """Return a race of which only this is known."""
        return Race(scenario=self.name, title=self.title, mode=mode, knobs=self.knobs)

    def defaults(self) -> dict[str, KnobValue]:
        """Return every knob's default."""
        return {knob.name: knob.default for knob in self.knobs}
