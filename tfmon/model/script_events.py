"""Events that only lanes with a user's script send, one frozen dataclass each."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tfmon.model.event_base import LaneEvent
from tfmon.model.knobs import FiniteFloat, KnobValue
from tfmon.model.readings import Amount

CHANNEL_CLOSED = "the script closed tfmon's channel"
"""Reason for unknown steps of a script that continues."""
FIT, ON_BATCH, EAGER = "fit", "train_on_batch", "eager"
"""Traits of a step: made by Keras, or eager."""
RUN_EAGERLY, FUNCTIONS_EAGERLY = "run_eagerly", "run_functions_eagerly"
"""Traits of a step that Keras or TensorFlow was configured to run eagerly."""
COMPILES, SEES_BATCHES = "compiles", "sees batches"
"""Traits: XLA can compile the step, and a callback of the script works in each batch."""
DATASET, BATCH, SHUFFLE, CACHE, FILE_CACHE = "dataset", "batch", "shuffle", "cache", "cache in a file"
"""Traits of the input: the parts of the script's dataset."""
SEQUENTIAL, UNCACHED, RANDOM = "sequential map", "uncached work", "random map"
"""Traits: a map in one thread, work in each epoch, random operations in it."""
ENDLESS, READ = "endless", "stages read"
"""Traits: a dataset without an end; tf.data's own statistics were read, so slow stages are observed causes."""
SHORT, SPARE = "a short wait", "time to spare"
"""Figures: the wait is short, the rest of an epoch has time for it."""
FITS, MOVABLE, SHUFFLED = "fits in memory", "can be moved", "shuffled before"
"""Figures: the results fit in memory, elements can be dropped before the work, and are shuffled before it."""
MADE, DIFFERS, UNROLLS = "made again", "other arrays", "unrolled layer"
"""Figures: a model or function was made again, is called with other arrays; a layer unrolls its loop."""
MOST_CAUSES = 32
"""Observed causes kept of a script."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobOffered(LaneEvent):
    """A knob of a user's script that can change during training."""

    knob: str
    value: KnobValue
    default: KnobValue
    help: str
    choices: tuple[KnobValue, ...] = ()
    low: FiniteFloat | None = None
    high: FiniteFloat | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultsResolved(LaneEvent):
    """The defaults of TensorFlow and its environment as resolved in a script, by name."""

    values: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed(LaneEvent):
    """Progress of a user's script in Keras."""

    doing: str
    """`fit`, `validation`, `evaluate` or `predict`. Otherwise empty."""
    epoch: Amount = 0
    """From 1, or 0 outside of `fit`."""
    epochs: Amount = 0
    batch: Amount = 0
    batches: Amount | None = None
    """Batches of an epoch. `None` if the length of the data is unknown."""
    metrics: dict[str, float] = field(default_factory=dict)
    """As displayed by Keras: means since the epoch began, validation from its last run."""
    epochs_done: Amount = 0
    """Finished epochs of this `fit`; the next two fields are sums over them."""
    validation_ns: Amount = 0
    between_ns: Amount = 0
    """From the last step of an epoch to the first of the next, without validation: callbacks, checkpoints."""
    restored: Amount = 0
    """Epochs before the script's first `fit`, which continued from a checkpoint."""
    backup: str = ""
    """Folder of its callback BackupAndRestore, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotMeasured(LaneEvent):
    """A figure about the steps of a user's script is unavailable, with the reason."""

    what: str
    """`examples`, `input`, `loss` or `steps`."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDescribed(LaneEvent):
    """The definition of a step of a script from now on."""

    text: str
    traits: tuple[str, ...] = ()
    """Properties of the step, such as `FIT`, on which advice depends."""

    @property
    def place(self) -> str:
        """The file and line: `train.py:17`."""
        return re.sub(r"(:\d+).*", r"\1", self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputDescribed(LaneEvent):
    """The input of a user's script."""

    traits: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackReported(LaneEvent):
    """The stacks of a child's threads, on request; the monitor reads a scenario's from its stderr."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathsUsed(LaneEvent):
    """Files, folders and ports that a user's script used for the first time."""

    uses: dict[str, str]
    """Letters for each: `w` written, `r` read, `d` removed, `m` made as a folder, `b` a bound port, or `b43211`
    for a port bound in its place.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseSeen(LaneEvent):
    """An observed cause of a script's slowness; figures are sums since its first observation."""

    cause: str
    place: str
    """The user's instruction: file, line and text, such as "train.py:17 `def step(x):`"."""
    subject: str = ""
    """Name of the function or pipeline stage."""
    what: str = ""
    """The latest observation, such as "`x`: (32, 28) → (17, 28)"."""
    count: Amount = 1
    cost_ns: Amount = 0
    """Total time."""
    of_ns: Amount = 0
    """The time since the first step began: pauses between epochs count, suspension does not."""
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str]:
        """Key by which it replaces the earlier observation."""
        return self.cause, self.place, self.subject
