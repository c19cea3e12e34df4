"""Events that only lanes with a user's script send."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tfmon.model.event_base import LaneEvent
from tfmon.model.knobs import FiniteFloat, KnobValue
from tfmon.model.readings import Amount

CHANNEL_CLOSED = "the script closed tfmon's channel"
FIT, ON_BATCH, EAGER = "fit", "train_on_batch", "eager"
"""Traits of a step."""
RUN_EAGERLY, FUNCTIONS_EAGERLY = "run_eagerly", "run_functions_eagerly"
COMPILES, SEES_BATCHES = "compiles", "sees batches"
DATASET, BATCH, SHUFFLE, CACHE, FILE_CACHE = "dataset", "batch", "shuffle", "cache", "cache in a file"
"""Parts of the dataset."""
SEQUENTIAL, UNCACHED, RANDOM = "sequential map", "uncached work", "random map"
ENDLESS, READ = "endless", "stages read"
SHORT, SPARE = "a short wait", "time to spare"
FITS, MOVABLE, SHUFFLED = "fits in memory", "can be moved", "shuffled before"
MADE, DIFFERS, UNROLLS = "made again", "other arrays", "unrolled layer"
MOST_CAUSES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobOffered(LaneEvent):
    """A script's knob that can change during training."""

    knob: str
    value: KnobValue
    default: KnobValue
    help: str
    choices: tuple[KnobValue, ...] = ()
    low: FiniteFloat | None = None
    high: FiniteFloat | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultsResolved(LaneEvent):
    """The resolved defaults of TensorFlow and its environment."""

    values: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed(LaneEvent):
    """Progress of a user's script in Keras."""

    doing: str
    """`fit`, `validation`, `evaluate`, `predict` or ""."""
    epoch: Amount = 0
    """The epoch from 1, or 0 outside of `fit`."""
    epochs: Amount = 0
    batch: Amount = 0
    batches: Amount | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    """Means of the present epoch."""
    epochs_done: Amount = 0
    """Finished epochs, of which the next two fields are sums."""
    validation_ns: Amount = 0
    between_ns: Amount = 0
    """Without validation."""
    restored: Amount = 0
    backup: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotMeasured(LaneEvent):
    """A figure is unavailable."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDescribed(LaneEvent):
    """The definition of the present step."""

    text: str
    traits: tuple[str, ...] = ()

    @property
    def position(self) -> str:
        """The position, such as `train.py:17`."""
        return re.sub(r"(:\d+).*", r"\1", self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputDescribed(LaneEvent):
    """The input of a user's script."""

    traits: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackReported(LaneEvent):
    """The stacks of a child's threads."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathsUsed(LaneEvent):
    """Files, folders and ports used for the first time."""

    uses: dict[str, str]
    """`w` written, `r` read, `d` deleted, `m` new folder, `b` bound port, `b43211` bound instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseSeen(LaneEvent):
    """An observed cause of slowness; figures are sums."""

    cause: str
    place: str
    """A position such as "train.py:17 `def step(x):`"."""
    subject: str = ""
    what: str = ""
    """A detail such as "`x`: (32, 28) → (17, 28)"."""
    count: Amount = 1
    cost_ns: Amount = 0
    of_ns: Amount = 0
    """Time since the first step began."""
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str]:
        """Key of the replaced observation."""
        return self.cause, self.place, self.subject
