"""What can be copied of a race: the verdict with what differs, and the command that repeats it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from textual.binding import BindingType

from tfmon.analysis.analysis import Analysis
from tfmon.analysis.finish import finish_lines
from tfmon.errors import TfmonError
from tfmon.model.knobs import short_name, show
from tfmon.model.naming import ordered_settings
from tfmon.model.session import Snapshot
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.rows import BLANK, Row, wrap
from tfmon.ui.render.style import DIM, STRONG, TEXT, WARN
from tfmon.ui.screens.page import closer
from tfmon.ui.screens.scroll import ScrollPage

_TOLD = (
    "copied, if this terminal lets programs copy (OSC 52; it gives no answer)",
    "to select with the mouse, hold Shift (Option on a Mac) while you drag",
)


class CopyPage(ScrollPage):
    """Copies the verdict and the command when it opens, and shows both to be selected."""

    BINDINGS: ClassVar[list[BindingType]] = [closer("copy")]
    still = True
    title_text = "Copied"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self._verdict = verdict_lines(monitor.analysis)
        self._command, self._problem = "", ""
        try:
            self._command = monitor.source.repeat()
        except TfmonError as error:
            self._problem = error.line

    @property
    def text(self) -> str:
        """What is copied."""
        return "\n".join([*self._verdict, *([self._command] if self._command else [])]) + "\n"

    def on_mount(self) -> None:
        """Copy."""
        self.app.copy_to_clipboard(self.text)

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        """Return the texts, without anything beside them that a selection would take along."""
        rows: list[Row] = [BLANK]
        for line in self._verdict:
            rows += [((part, TEXT),) for part in wrap(line, width, 9)]
        if self._command or self._problem:
            rows += [BLANK, (("  The command that races these lanes with the settings in effect", STRONG),), BLANK]
        rows += [((line, TEXT),) for line in continued(self._command, width)]
        rows += [((f"  there is none: {line}", WARN),) for line in wrap(self._problem, width - 18, 3)]
        rows.append(BLANK)
        return rows + [((f"  {line}", DIM),) for told in _TOLD for line in wrap(told, width - 2, 2)]


def verdict_lines(analysis: Analysis) -> list[str]:
    """Return the verdict as a sentence, what limits it, and what each lane trains under as far as they differ."""
    snapshot, verdict = analysis.snapshot, analysis.verdict
    scenario = f"{snapshot.race.scenario}: " if snapshot.race.scenario else ""
    lines = [f"{scenario}{verdict.text}", *([verdict.note] if verdict.note else []), *finish_lines(snapshot)]
    return lines + list(_differing(snapshot))


def _differing(snapshot: Snapshot) -> Iterator[str]:
    """Yield a line for each lane with every knob in which the lanes differ."""
    for lane in snapshot.lanes if snapshot.differing else ():
        told = [f"{short_name(knob)} {show(value)}" for knob, value, differs in ordered_settings(lane) if differs]
        yield f"{lane.spec.id}: {lane.spec.place}, {', '.join(told)}"


def continued(command: str, width: int) -> Sequence[str]:
    """Return a command in lines that a shell takes as one: all but the last end with a backslash.

    It is only broken between words, outside of quotes; a longer word stays whole.
    """
    words = re.findall(r"(?:[^\s'\"]|'[^']*'|\"[^\"]*\")+", command)
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) + 2 <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(f"  {word}" if lines else word)
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]
