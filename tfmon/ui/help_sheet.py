"""The help page: every key by what it is for, and every number on the screen in a sentence."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from tfmon.model.session import Snapshot
from tfmon.ui.keys import RACE_KEYS, key_of
from tfmon.ui.rows import BLANK, Row, wrap
from tfmon.ui.sheet import ScrollSheet
from tfmon.ui.style import KEY, STRONG, TEXT

EXPLAINED = (
    ("examples/s", "Examples trained per second of wall time, over the steady windows of the last 5 s."),
    ("steps/s", "Training steps per second, over the same windows."),
    (
        "step",
        "Time from the end of one step to the end of the next: the median, then what 95 % and 99 % of the steps "
        "stay under, since the last knob change. Read from a histogram, to within 0.55 %.",
    ),
    ("loss", "Loss of the first step that was reported, and of the last."),
    ("done", "Steps and examples since the lane began to race."),
    ("cpu", "CPU of the lane and all its children; 100 % is one core. The limit is the cores it may use."),
    ("memory", "Memory that no other process shares, summed over the lane and its children (1 MiB = 2^20 bytes)."),
    ("gpu", "Share of time in which the GPU ran at least one kernel, whoever started it, as its driver says."),
    ("gpu mem", "What the driver holds for the lane, and what TensorFlow's live tensors take of it."),
    (
        "time",
        "Where the time of a step goes, in percent, since the last knob change: waiting for a batch (input), "
        "copying it to the device, starting the step (dispatch), computing, reading the loss (sync), tfmon's own "
        "work, and the rest. On the CPU a profile of a few steps tells dispatch from compute.",
    ),
    ("why", "What bounds the lane, by the same figures; Enter shows all of them and what may help."),
    ("knobs", "Settings in force, as the lane said. What was asked and is not in force yet is quiet: 20 asked."),
    ("chart", "Examples/s over the last 60 s on one scale for all lanes. A gap: nothing was trained. ┬: a knob."),
    ("ahead", "The fastest lane over the slowest, since each one's last knob change."),
    ("n/a", "Not known, and why. tfmon never shows 0 for what it does not know."),
)
"""What each number is, with its unit, window and source."""

_LABEL_CELLS = 13


class HelpSheet(ScrollSheet):
    """Lists keys and explains numbers."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark,f1,q,enter", "dismiss", "close")]
    title_text = "Help"

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        """Return the whole help."""
        return help_rows(dict(self.shell.view.keys), width)


def help_rows(keys: dict[str, str], width: int) -> list[Row]:
    """Return the whole help for a width."""
    rows: list[Row] = []
    group = ""
    for key in RACE_KEYS:
        if key.group != group:
            group = key.group
            rows += [BLANK, ((f"  {group}", STRONG),)]
        rows += entry(key_of(key.id, keys), key.help, width, KEY)
    rows += [BLANK, (("  Numbers", STRONG),)]
    for name, meaning in EXPLAINED:
        rows += entry(name, meaning, width, TEXT)
    return rows


def entry(name: str, meaning: str, width: int, style: str) -> list[Row]:
    """Return a name and what is said of it, wrapped beside it."""
    lines = wrap(meaning, max(10, min(100, width - _LABEL_CELLS - 4)), 9)
    return [
        ((f"  {name if place == 0 else '':<{_LABEL_CELLS}}", style), (line, TEXT))
        for place, line in enumerate(lines)
    ]
