"""The page of the recorded races: each can be replayed, compared with another, named and deleted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import BindingType

from tfmon import units
from tfmon.model.ports import RunInfo
from tfmon.model.session import Snapshot
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.rows import Row
from tfmon.ui.render.style import DIM, STRONG, TEXT, TROUBLE, WARN
from tfmon.ui.render.table import Column, Entry
from tfmon.ui.render.tabs import Hint
from tfmon.ui.screens.lists import ListPage
from tfmon.ui.screens.page import bound
from tfmon.ui.screens.scroll import ScrollPage
from tfmon.ui.screens.text import report_rows
from tfmon.ui.source import Runs, Source

MARKED = "*"


@dataclass(slots=True)
class _Question:
    """What the page asks: y or n, or a line of text."""

    text: str
    act: Callable[[str], None]
    answer: str | None = None
    """What has been typed; None for a question of yes or no."""


class RunsPage(ListPage):
    """Lists the recorded races, the latest first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("run.mark"),
        bound("run.name"),
        bound("run.delete"),
    ]
    tab = "runs"
    still = True
    title_text = "Recorded races"
    noun = "run"
    columns = (
        Column("started", 17), Column("scenario", 22), Column("name", 18), Column("lasted", 8),
        Column("outcome"),
    )  # fmt: skip
    nothing = "reading the recordings…"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self._runs: tuple[RunInfo, ...] = ()
        self._marked: list[str] = []
        """Ids of at most two runs, in the order in which they were marked."""
        self._every: list[Entry] = []
        self._question: _Question | None = None

    @property
    def port(self) -> Runs:
        """Where the recordings come from."""
        assert self.monitor.source.runs is not None
        return self.monitor.source.runs

    def on_screen_resume(self) -> None:
        """Read the list anew: races end, and other programs record, too."""
        self._read()

    def _read(self) -> None:
        self.monitor.work(self.port.list, self._take)

    def _take(self, runs: Sequence[RunInfo]) -> None:
        self._runs = tuple(reversed(runs))
        self._marked = [one for one in self._marked if one in {run.id for run in self._runs}]
        self.nothing = "no race was recorded yet"
        self._list()

    def _list(self) -> None:
        self._every = [run_entry(run, marked=run.id in self._marked) for run in self._runs]
        self.redraw()

    def entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        """Return the runs."""
        return self._every

    def note(self) -> str:
        """Return how many failed, and how many are marked."""
        failed = sum(bool(run.failure or run.problem) for run in self._runs)
        marked = f" · {len(self._marked)} marked" if self._marked else ""
        return f"{f' · {failed} failed' if failed else ''}{marked}"

    def own_hints(self) -> list[Hint]:
        """Return the actions of the keys now."""
        if self._question is not None:
            return []
        hints = super().own_hints()
        if self.entry is None:
            return hints
        enter = "compares the two" if len(self._marked) == 2 else "replays"
        hints.insert(0, Hint(("choose",), enter, "choose"))
        hints.insert(1, Hint(("run.mark",), "marks, two are compared", "mark"))
        if not self.monitor.view.readonly:
            hints += [Hint(("run.name",), "name", "name"), Hint(("run.delete",), "delete", "delete")]
        return hints

    def hints(self) -> list[Hint]:
        """Return what the keys do now; only the answers while something is asked."""
        if self._question is None:
            return super().hints()
        if self._question.answer is None:
            return [Hint(("close",), "no; y: yes")]
        return [Hint(("choose",), "keeps the name; an empty one takes it away"), Hint(("close",), "cancel")]

    def message(self, snapshot: Snapshot) -> str:
        """Return the question, or the message."""
        asked = self._question
        if asked is None:
            return super().message(snapshot)
        return asked.text if asked.answer is None else f"{asked.text} {asked.answer}▏"

    # ------------------------------------------------------------ what keys do

    def act(self, entry: Entry) -> None:
        """Compare the two that are marked, or replay the chosen run."""
        if len(self._marked) == 2:
            first, second = self._by_start(self._marked)
            self.monitor.say("comparing…")
            self.monitor.work(lambda: self.port.diff(first, second), self._show_diff)
        else:
            self.monitor.say("opening the recording…")
            self.monitor.work(lambda: self.port.replay(str(entry.id)), self._replay)

    def _by_start(self, ids: Sequence[str]) -> list[str]:
        """Return ids in the order of their start: the later run is compared with the earlier one."""
        order = [run.id for run in reversed(self._runs)]
        return sorted(ids, key=order.index)

    def _show_diff(self, text: str) -> None:
        self.monitor.unsay()
        self.app.push_screen(DiffPage(self.monitor, text))

    def _replay(self, opened: Source) -> None:
        self.monitor.unsay()
        self.app.push_screen(self.monitor.over(opened).screen)

    def action_mark(self) -> None:
        """Mark the chosen run, or take its mark away; a third mark takes that of the first."""
        if self.entry is not None:
            id = str(self.entry.id)
            if id in self._marked:
                self._marked.remove(id)
            else:
                self._marked = [*self._marked[-1:], id]
            self._list()

    def action_delete(self) -> None:
        """Ask whether the chosen run is to be deleted."""
        if self.entry is not None and self._may_write():
            id = str(self.entry.id)
            asked = f"delete {id} for good?  y: yes   n: no"
            self._ask(_Question(asked, lambda _: self._do(self.port.delete, id)))

    def action_name(self) -> None:
        """Ask for a name of the chosen run."""
        if self.entry is not None and self._may_write():
            id = str(self.entry.id)
            name = next(run.name for run in self._runs if run.id == id)
            self._ask(_Question(f"name of {id}:", lambda answer: self._do(self.port.rename, id, answer), name))

    def _may_write(self) -> bool:
        if self.monitor.view.readonly:
            self.monitor.say("read only: this screen changes nothing (--readonly)")
        return not self.monitor.view.readonly

    def _do(self, change: Callable[..., None], *words: str) -> None:
        self.monitor.work(lambda: change(*words), lambda _: self._read())

    # ------------------------------------------------------------ questions

    def _ask(self, question: _Question) -> None:
        self._question = question
        self.redraw()

    def _answered(self, *, yes: bool) -> None:
        question, self._question = self._question, None
        if question is not None and yes:
            question.act(question.answer or "")
        self.redraw()

    @property
    def line(self) -> str | None:
        """The answer, or the filter; None where keys are no characters."""
        return super().line if self._question is None else self._question.answer

    def take_line(self, line: str) -> None:
        """Take the answer, or the filter, as typed up to now."""
        if self._question is None:
            super().take_line(line)
        else:
            self._question.answer = line
            self.redraw()

    def on_key(self, event: events.Key) -> None:
        """Take the answer to a question; every other key waits until then."""
        question = self._question
        if question is None:
            return  # Textual calls the handler of the base class, too
        event.stop()
        if event.key == "escape" or (question.answer is None and event.key != "y"):
            self._answered(yes=False)
        elif question.answer is None or event.key == "enter":
            self._answered(yes=True)
        else:
            return
        event.prevent_default()

    def on_screen_suspend(self) -> None:
        """Take back what was asked: another page is shown."""
        self._question = None


def run_entry(run: RunInfo, *, marked: bool = False) -> Entry:
    """Return a run as an entry of the list: a failure in red, and with a cross."""
    failed = bool(run.failure or run.problem)
    style = TROUBLE if failed else TEXT if run.verdict else WARN
    lasted = "–" if run.seconds is None else units.clock(run.seconds)
    about = [run.id, ", ".join(run.lanes), run.mode, units.memory(run.bytes)]
    return Entry(
        run.id,
        (
            (run.started[:16].replace("T", " ") or run.id[:15], DIM),
            (run.scenario or "–", TEXT),
            (run.name, STRONG),
            (f"{lasted:>7}", DIM),
            (run.outcome, style),
        ),
        ranks=(run.started, run.scenario, run.name or None, run.seconds, (not failed, run.outcome)),
        whole=" · ".join(part for part in about if part),
        mark=("✗" if failed else " ") + (MARKED if marked else ""),
    )


class DiffPage(ScrollPage):
    """Shows the comparison of two runs."""

    still = True
    title_text = "Two runs compared"

    def __init__(self, monitor: Monitor, text: str) -> None:
        super().__init__(monitor)
        self._text = text

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        """Return the report."""
        return report_rows(self._text, "`tfmon diff` prints it, too; with --json for programs.", width)
