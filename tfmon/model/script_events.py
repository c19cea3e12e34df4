"""What only a lane that runs a user's script says over the event pipe, one frozen dataclass each."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tfmon.model.event_base import LaneEvent
from tfmon.model.knobs import FiniteFloat, KnobValue
from tfmon.model.readings import Amount

CHANNEL_CLOSED = "the script closed tfmon's channel"
"""Reason of the steps that cannot be known of a script that trains on."""
FIT, ON_BATCH, EAGER = "fit", "train_on_batch", "eager"
"""Traits of a step: Keras makes it, and its operations are started one by one."""
RUN_EAGERLY, FUNCTIONS_EAGERLY = "run_eagerly", "run_functions_eagerly"
"""Traits of a step that is eager because Keras or TensorFlow was told so."""
COMPILES, SEES_BATCHES = "compiles", "sees batches"
"""Traits: XLA can compile the step, and a callback of the script works in each batch."""
DATASET, BATCH, SHUFFLE, CACHE, FILE_CACHE = "dataset", "batch", "shuffle", "cache", "cache in a file"
"""Traits of the input: the script made a dataset, and what that consists of."""
SEQUENTIAL, UNCACHED, RANDOM, SKIPS = "sequential map", "uncached work", "random map", "skip after work"
"""Traits: a map in one thread, work that is done in each epoch, random operations in it, and elements that are
made and skipped."""
ENDLESS = "endless"
SHORT, SPARE, WAITS = "a short wait", "time to spare", "more waiting"
"""Figures of what was observed: the wait is short, the rest of an epoch has time for it, the first epoch waits."""
MADE, DIFFERS = "made again", "other arrays"
"""Figures: a model or function was made again, or is called with other arrays."""
MOST_CAUSES = 32
"""Causes and places that a script observes, and that are kept of its lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobOffered(LaneEvent):
    """A user's script has a knob that can be changed while it trains."""

    knob: str
    value: KnobValue
    default: KnobValue
    help: str
    choices: tuple[KnobValue, ...] = ()
    low: FiniteFloat | None = None
    high: FiniteFloat | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultsResolved(LaneEvent):
    """What TensorFlow makes of its defaults and its environment in a script, by name."""

    values: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed(LaneEvent):
    """How far a user's script is in what Keras does for it."""

    doing: str
    """`fit`, `validation`, `evaluate` or `predict`; empty for none of them."""
    epoch: Amount = 0
    """From 1; 0 outside of `fit`."""
    epochs: Amount = 0
    batch: Amount = 0
    batches: Amount | None = None
    """Batches of an epoch; None where the length of the data is unknown."""
    metrics: dict[str, float] = field(default_factory=dict)
    """As Keras shows them: means since the epoch began; those of validation from its last run."""
    epochs_done: Amount = 0
    """Epochs that this `fit` has finished; the next two fields are sums over them."""
    validation_ns: Amount = 0
    between_ns: Amount = 0
    """From the last step of an epoch to the first of the next, without validation: callbacks, checkpoints."""
    restored: Amount = 0
    """Epochs that were done before the script's first `fit` began: it went on from a checkpoint."""
    backup: str = ""
    """The folder of its callback BackupAndRestore, if it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotMeasured(LaneEvent):
    """Something about the steps of a user's script cannot be known, and why."""

    what: str
    """`examples`, `input`, `loss` or `steps`."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDescribed(LaneEvent):
    """What is counted as a step of a script from now on."""

    text: str
    traits: tuple[str, ...] = ()
    """How it is made, such as `FIT`: advice about anything else is not for it."""

    @property
    def place(self) -> str:
        """The file and the line in it: `train.py:17`."""
        return re.sub(r"(:\d+).*", r"\1", self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputDescribed(LaneEvent):
    """What a user's script trains from."""

    traits: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackReported(LaneEvent):
    """The stacks of a child's threads, on request; a scenario's are read by the monitor from its stderr."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathsUsed(LaneEvent):
    """Files, folders and ports that a user's script has used for the first time."""

    uses: dict[str, str]
    """Letters for each: `w` written, `r` read, `d` removed, `m` made as a folder, `b` a port that is bound, or
    such as `b43211`, which is bound in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseSeen(LaneEvent):
    """What slows a user's script down was observed in its process; figures are sums since it was first seen."""

    cause: str
    place: str
    """The user's instruction: its file, line and text, such as "train.py:17 `def step(x):`"."""
    subject: str = ""
    """The name of the function or the stage of the pipeline that it is about."""
    what: str = ""
    """What was observed last, such as "`x`: (32, 28) → (17, 28)"."""
    count: Amount = 1
    cost_ns: Amount = 0
    """What it took in all."""
    of_ns: Amount = 0
    """The time since the first step began: pauses between epochs count, suspension does not."""
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str]:
        """By which it replaces what was observed before."""
        return self.cause, self.place, self.subject
