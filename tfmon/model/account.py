"""The account of a lane's process: its time since its start, in parts that do not overlap and add up to it."""

from __future__ import annotations

from dataclasses import dataclass

from tfmon.model.event_base import LaneEvent
from tfmon.model.readings import Amount

START, BEFORE, STEPS = "Python and imports", "before the first step", "training steps"
VALIDATION, CALLBACKS, SAVING, BETWEEN = "validation", "callbacks", "saving", "between epochs"
TENSORFLOW, OUTSIDE, AFTER = "waiting for TensorFlow", "between trainings", "after training"
SUSPENDED, OWN, UNKNOWN = "suspended or paused", "tfmon", "not reported"
GROUPS = (
    START, BEFORE, STEPS, VALIDATION, CALLBACKS, SAVING, BETWEEN, TENSORFLOW, OUTSIDE, AFTER, SUSPENDED, OWN,
    UNKNOWN,
)  # fmt: skip
"""In the order of a run."""
NOT_SPLIT = "not split"
"""The rest of a group that was not observed in more detail."""
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
    """The user's line, such as "train.py:17 `model.fit(x, y)`"."""
    time_ns: Amount = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounted(LaneEvent):
    """The account of a process from its start up to `at_ns`."""

    parts: tuple[TimePart, ...]
    trained: bool = True
    """Whether the first step is done."""
    last: bool = False
    """Whether the process reports nothing after it."""
