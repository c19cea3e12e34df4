"""The page of the recorded races: each can be replayed and deleted."""

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
from tfmon.ui.render.style import DIM, TEXT, TROUBLE, WARN
from tfmon.ui.render.table import Column, Entry
from tfmon.ui.render.tabs import Hint
from tfmon.ui.screens.lists import ListPage
from tfmon.ui.screens.page import bound
from tfmon.ui.source import Runs, Source


@dataclass(slots=True)
class _Question:
    """What the page asks: y or n."""

    text: str
    act: Callable[[], None]


class RunsPage(ListPage):
    """Lists the recorded races, the latest first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("run.delete"),
    ]
    tab = "runs"
    still = True
    title_text = "Recorded races"
    noun = "run"
    columns = (
        Column("started", 17), Column("scenario", 22), Column("lasted", 8), Column("outcome"),
    )  # fmt: skip
    nothing = "reading the recordings…"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self._runs: tuple[RunInfo, ...] = ()
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
        self.nothing = "no race was recorded yet"
        self._list()

    def _list(self) -> None:
        self._every = [run_entry(run) for run in self._runs]
        self.redraw()

    def entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        """Return the runs."""
        return self._every

    def note(self) -> str:
        """Return how many failed."""
        failed = sum(bool(run.failure or run.problem) for run in self._runs)
        return f" · {failed} failed" if failed else ""

    def own_hints(self) -> list[Hint]:
        """Return the actions of the keys now."""
        if self._question is not None:
            return []
        hints = super().own_hints()
        if self.entry is None:
            return hints
        hints.insert(0, Hint(("choose",), "replays", "choose"))
        if not self.monitor.view.readonly:
            hints.append(Hint(("run.delete",), "delete", "delete"))
        return hints

    def hints(self) -> list[Hint]:
        """Return what the keys do now; only the answers while something is asked."""
        return super().hints() if self._question is None else [Hint(("close",), "no; y: yes")]

    def message(self, snapshot: Snapshot) -> str:
        """Return the question, or the message."""
        return super().message(snapshot) if self._question is None else self._question.text

    # ------------------------------------------------------------ what keys do

    def act(self, entry: Entry) -> None:
        """Replay the chosen run."""
        self.monitor.say("opening the recording…")
        self.monitor.work(lambda: self.port.replay(str(entry.id)), self._replay)

    def _replay(self, opened: Source) -> None:
        self.monitor.unsay()
        self.app.push_screen(self.monitor.over(opened).screen)

    def action_delete(self) -> None:
        """Ask whether the chosen run is to be deleted."""
        if self.entry is not None and self._may_write():
            id = str(self.entry.id)
            asked = f"delete {id} for good?  y: yes   n: no"
            self._ask(_Question(asked, lambda: self._do(self.port.delete, id)))

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
            question.act()
        self.redraw()

    def on_key(self, event: events.Key) -> None:
        """Take the answer to a question; every other key waits until then."""
        question = self._question
        if question is None:
            return  # Textual calls the handler of the base class, too
        event.stop()
        self._answered(yes=event.key == "y")
        event.prevent_default()

    def on_screen_suspend(self) -> None:
        """Take back what was asked: another page is shown."""
        self._question = None


def run_entry(run: RunInfo) -> Entry:
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
            (f"{lasted:>7}", DIM),
            (run.outcome, style),
        ),
        ranks=(run.started, run.scenario, run.seconds, (not failed, run.outcome)),
        whole=" · ".join(part for part in about if part),
        mark="✗" if failed else " ",
    )
