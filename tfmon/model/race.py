"""A race, its machines, its recording, and claims about it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from tfmon.model.knobs import Knob
from tfmon.model.readings import ALWAYS_VALID, Estimate, IntervalKind
from tfmon.model.views import View

if TYPE_CHECKING:
    from tfmon.model.script_events import KnobOffered

TURNS, CONCURRENT = "turns", "concurrent"
MODES = (TURNS, CONCURRENT)
MODE_MARKS = {TURNS: "taking turns", CONCURRENT: "all at once"}
"""Label in the charts."""
MARGIN = 0.03
"""Smaller differences count as none by default."""


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
    """Why the race has no GPU lane, if one was requested."""
    boot: str = ""
    """The kernel's boot id: hosts with the same id are one machine."""
    quota_cores: float | None = None
    """Of the container."""
    nice: int | None = None
    python: str = ""
    tensorflow: str = ""
    """With the package's name unless `tensorflow`."""
    driver: str = ""
    power_limits_w: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class BetweenProcesses:
    """Between-process variance from earlier races on this machine: a scaled chi-squared prior."""

    squares: float
    """`degrees` times the variance of the log ratio of two equal processes."""
    degrees: float
    races: int = 0


def interleaved(mode: str, exclusive: str, lanes: int) -> bool:
    """Return whether the lanes train in slices, one at a time on each machine."""
    return bool(exclusive) or (mode == TURNS and lanes > 1)


@dataclass(frozen=True, slots=True)
class Race:
    """A race and its progress."""

    scenario: str = ""
    title: str = ""
    mode: str = TURNS
    """`turns`: interleaved, in short slices; `concurrent`: all lanes at the same time."""
    training: tuple[str, ...] = ()
    """Lanes with a running slice, one per machine."""
    knobs: tuple[Knob, ...] = ()
    started_ns: int | None = None
    seconds: float | None = None
    """From the start signal."""
    steps: int | None = None
    slice_s: float | None = None
    """`None` if the recording lacks it."""
    number: int = 0
    """From 1, in this run of tfmon."""
    exclusive: str = ""
    """The only lane that trains, in slices."""
    interrupted: str = ""
    """Such as "interrupted by SIGINT"."""
    fresh: bool = False
    """Whether the lanes are started several times, see `series.repeat`."""
    between: BetweenProcesses | None = None
    """`None` if nothing was learnt."""
    interval: IntervalKind = ALWAYS_VALID
    margin: float = MARGIN
    until_ci: float | None = None
    """The race ends when half the width of every interval over its ratio is at most this."""
    ignored_causes: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()
    """Other differences between the lanes' machines."""
    views: dict[str, View] = field(default_factory=dict)
    """Of a user's lanes, by host. Empty for a single lane."""

    def with_knob(self, offered: KnobOffered) -> Race:
        """Return the race with a knob that a script has offered."""
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
    """When it ended on an error."""
    reason: str = ""


Outcome = Literal["supported", "contradicted", "too close to call", "not testable here", "corrected"]


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement and the comparison of two lanes that it predicts."""

    id: str
    source: str = ""
    """The article and its example."""
    says: str = ""
    first: str = ""
    second: str = ""
    at_least: float = 1.0
    at_most: float | None = None
    """For a claim of little or no difference."""
    needs: Literal["", "gpu", "mac"] = ""
    seconds: float | None = None
    """Length of its race if steps take seconds: it is only measured with its scenario named."""
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
    """Why it was not tested, or the correction."""


def judge(claim: Claim, ratio: Estimate) -> Outcome:
    """Return the outcome of a claim; it is decided only if the whole interval is on one side."""
    if claim.at_most is not None:
        if 1 / claim.at_most <= ratio.low and ratio.high <= claim.at_most:
            return "supported"
        outside = ratio.low > claim.at_most or ratio.high < 1 / claim.at_most
        return "contradicted" if outside else "too close to call"
    if ratio.low > claim.at_least:
        return "supported"
    return "contradicted" if ratio.high < claim.at_least else "too close to call"
