"""What is raced, on what machine, where it is recorded, and what people claim a race to show."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from tfmon.model.knobs import Knob
from tfmon.model.readings import ALWAYS_VALID, Estimate, IntervalKind
from tfmon.model.script_events import KnobOffered
from tfmon.model.views import View

TURNS, CONCURRENT = "turns", "concurrent"
MODES = (TURNS, CONCURRENT)
MODE_MARKS = {TURNS: "taking turns", CONCURRENT: "all at once"}
"""What the charts say where a race changed its mode."""
MARGIN = 0.03
"""Differences below this matter to nobody, unless the user says otherwise."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine; known at the start."""

    hostname: str = ""
    system: str = ""
    cpu_name: str = ""
    cores: int = 0
    usable_cores: float = 0
    """How many of them a lane may keep busy: affinity and container quota."""
    memory_bytes: int = 0
    gpus: tuple[str, ...] = ()
    """Model names of the GPUs that the driver lists."""
    no_gpu: str = ""
    """Why there is no GPU lane; empty where there is one or none was requested."""
    boot: str = ""
    """What the kernel calls this start of the machine: hosts with the same are one machine. Empty if unknown."""
    quota_cores: float | None = None
    """How many cores the container's quota allows; None for no quota, or where it cannot be read."""
    nice: int | None = None
    """The nice value that the lanes inherit; None where it is not known."""
    python: str = ""
    tensorflow: str = ""
    """Version of its TensorFlow as it is installed, with the name of its package if that is not `tensorflow`."""
    driver: str = ""
    power_limits_w: tuple[float | None, ...] = ()
    """Power limit of each of `gpus`; None where the driver tells none."""


@dataclass(frozen=True, slots=True)
class BetweenProcesses:
    """How much two equal processes differ, as earlier races on this machine told: a scaled chi-squared prior."""

    squares: float
    """Sum of squares: `degrees` times the variance of the log ratio of two equal processes."""
    degrees: float
    races: int = 0


def interleaved(mode: str, exclusive: str, lanes: int) -> bool:
    """Return whether the lanes train in slices, one at a time on each machine."""
    return bool(exclusive) or (mode == TURNS and lanes > 1)


@dataclass(frozen=True, slots=True)
class Race:
    """What is raced, and how it goes."""

    scenario: str = ""
    title: str = ""
    mode: str = TURNS
    """`turns`: interleaved, one lane trains at a time, in short slices; `concurrent`: all at once."""
    training: tuple[str, ...] = ()
    """Names of the lanes whose slices run, one a machine; empty between slices and in a concurrent race."""
    knobs: tuple[Knob, ...] = ()
    started_ns: int | None = None
    """When the lanes got the start signal; None while they get ready."""
    seconds: float | None = None
    """How long it lasts from then on; None until the user ends it."""
    steps: int | None = None
    """How many steps each lane does; None for no limit."""
    slice_s: float | None = None
    """How long a slice lasts in turns; None where the recording does not say."""
    number: int = 0
    """Which race of this run of tfmon it is, from 1."""
    exclusive: str = ""
    """Name of the lane that has the machine for itself, in slices, while the others pause; empty for none."""
    interrupted: str = ""
    """Why it was interrupted, such as "interrupted by SIGINT"; empty otherwise."""
    fresh: bool = False
    """Whether the lanes' processes are replaced by fresh ones from time to time, between two rounds."""
    between: BetweenProcesses | None = None
    """What earlier races told of equal processes; None where nothing was learnt."""
    interval: IntervalKind = ALWAYS_VALID
    """What its intervals are made for: `always-valid`, or for a known length `spending` or `fixed`."""
    margin: float = MARGIN
    """Lanes whose ratio differs from 1 by less are the same for all practical purposes."""
    until_ci: float | None = None
    """It ends when half the width of every interval over its ratio is as small as this; None for no such end."""
    differs: tuple[str, ...] = ()
    """What else differs between the lanes' machines, in words, such as the content of a file; known before it."""
    views: dict[str, View] = field(default_factory=dict)
    """How the lanes of a user's command see the working folder, by host; none where there is one lane."""

    def with_knob(self, offered: KnobOffered) -> Race:
        """Return the race with a knob that one of its lanes, a user's script, has offered."""
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
    """From when on nothing was recorded; None while all is well."""
    reason: str = ""


Outcome = Literal["supported", "contradicted", "too close to call", "not testable here", "corrected"]


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement and the comparison of two lanes that it predicts."""

    id: str
    source: str = ""
    """The article and the example it comes from; empty for those of its scenario."""
    says: str = ""
    first: str = ""
    """Spec of the lane that is said to be faster, such as `cpu,graph=on`."""
    second: str = ""
    """Spec of the lane that it is compared with."""
    at_least: float = 1.0
    """By how much it is said to be faster."""
    at_most: float | None = None
    """By how much at most, for a claim that there is little or nothing between them."""
    needs: Literal["", "gpu", "mac"] = ""
    seconds: float | None = None
    """How long its race takes, where steps take seconds: such a claim is measured where its scenario is named."""
    corrected: str = ""
    """For a statement that is technically wrong: what is true, and how it shows."""


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """A claim and what came of it."""

    scenario: str
    claim: Claim
    outcome: Outcome
    ratio: Estimate | None = None
    """Throughput of the claim's first lane over its second's."""
    reason: str = ""
    """Why it could not be tested; what is true instead of a corrected one."""


def judge(claim: Claim, ratio: Estimate) -> Outcome:
    """Return the outcome of a claim; only an interval that lies all on one side decides."""
    if claim.at_most is not None:
        if 1 / claim.at_most <= ratio.low and ratio.high <= claim.at_most:
            return "supported"
        outside = ratio.low > claim.at_most or ratio.high < 1 / claim.at_most
        return "contradicted" if outside else "too close to call"
    if ratio.low > claim.at_least:
        return "supported"
    return "contradicted" if ratio.high < claim.at_least else "too close to call"
