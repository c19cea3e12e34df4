"""The account of a process: its time, in parts that add up to it."""

from __future__ import annotations

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.readings import Amount

START, BEFORE, STEPS = "Python and imports", "before the first step", "training steps"
VALIDATION, CALLBACKS, SAVING, BETWEEN = "validation", "callbacks", "saving", "between epochs"
TENSORFLOW, OUTSIDE, AFTER = "waiting for TensorFlow", "between trainings", "after training"
SUSPENDED, OWN, UNKNOWN = "suspended or paused", "tfmon", "not reported"
GROUPS = (
    START, BEFORE, STEPS, VALIDATION, CALLBACKS, SAVING, BETWEEN, TENSORFLOW, OUTSIDE, AFTER, SUSPENDED, OWN,
    UNKNOWN,
)  # fmt: skip
NOT_SPLIT = "not split"
INTERPRETER, IMPORTS, TRACING, FIRST_BATCH, FIRST_RUN = (
    "interpreter", "imports", "tracing", "first batch", "first run"
)  # fmt: skip
LINE = "a line of the script"
INPUT, CALL, LOSS, PYTHON, PROFILED = (
    "input wait", "step", "reading the loss", "Python of the loop", "under the profiler"
)  # fmt: skip
MOST_PARTS = 48


@dataclass(frozen=True, slots=True)
class TimePart:
    """A part of the time of a process."""

    group: str
    name: str
    place: str = ""
    time_ns: Amount = 0
