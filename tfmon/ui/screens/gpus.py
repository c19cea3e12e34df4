"""The page of the GPUs: all of each machine with their readings, and every process on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType

from tfmon.model.session import Snapshot
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.gpus import COLUMNS, GpuRow, gpu_rows, gpus_of, process_entries, summary
from tfmon.ui.render.rows import BLANK, Row, indented
from tfmon.ui.render.style import DIM, TEXT
from tfmon.ui.render.table import Entry
from tfmon.ui.render.tabs import Hint
from tfmon.ui.screens.lists import ListPage
from tfmon.ui.screens.page import bound

LIST_ROWS = 7
"""Rows that the list of processes keeps at least: what is typed, its head, and some of its entries."""


class GpusPage(ListPage):
    """Lists the GPUs, and below them the processes; Tab shows the next GPUs where there is no room for all."""

    BINDINGS: ClassVar[list[BindingType]] = [bound("move.next"), bound("move.previous")]
    tab = "gpus"
    title_text = "GPUs"
    columns = COLUMNS
    noun = "process"
    nothing = "no process is on a GPU"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self._why: str | None = None
        """Why no GPU is read; None while that is not known."""
        self._gpus: list[GpuRow] = []
        self._first_gpu = 0
        self._room = 0
        self._every: list[Entry] = []
        self._of: tuple[object, ...] = ()

    def on_mount(self) -> None:
        """Have the GPUs read, also where no lane trains on one."""
        self.monitor.work(self.monitor.source.watch_gpus, self._take)

    def _take(self, why: str) -> None:
        self._why = why
        self.redraw()

    def entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        """Return the processes on all GPUs; made again only for new samples."""
        of = tuple(id(one.sample) for one in self._gpus), tuple(id(lane) for lane in snapshot.lanes)
        if of != self._of:
            self._of, self._every = of, process_entries(snapshot, self._gpus)
            self._samples = self._gpus  # kept, so that no other sample gets its id
        return self._every

    def body(self, snapshot: Snapshot, width: int, height: int) -> list[Row]:
        """Return the GPUs, and the list of processes below them."""
        self._gpus = gpus_of(snapshot)
        if not self._gpus:
            self.title_text, self.shown, self._rows = "GPUs", [], []
            return [BLANK, *indented(self._no_gpu(snapshot), TEXT, width, height - 1)]
        self.title_text = summary(self._gpus)
        self._room = max(1, height - LIST_ROWS - 2)
        count = len(self._gpus)
        self._first_gpu = 0 if count <= self._room else min(self._first_gpu, count - 1)
        head, *rows = gpu_rows(self._gpus, width)
        shown = rows[self._first_gpu : self._first_gpu + self._room]
        if count > self._room:
            last = self._first_gpu + len(shown)
            shown.append(
                ((f" {self._first_gpu + 1} to {last} of {count} GPUs, {self.key('move.next')}: the next", DIM),)
            )
        above = [head, *shown, BLANK]
        below = super().body(snapshot, width, height - len(above))
        self._rows = [-1] * len(above) + self._rows
        return [*above, *below]

    def note(self) -> str:
        """Return how many are those of this tfmon."""
        ours = sum(entry.mark != " " for entry in self._every)
        return " on them" + (f" · ▪ {ours} of this tfmon" if ours else "")

    def own_hints(self) -> list[Hint]:
        """Return what the keys do."""
        hints = super().own_hints() if self._gpus else []
        more = len(self._gpus) > self._room
        return [*([Hint(("move.next",), "the next GPUs", "turn(1)")] if more else []), *hints]

    def action_filter(self) -> None:
        """Let the user type a filter, where there is a list."""
        if self._gpus:
            super().action_filter()

    def action_turn(self, direction: int) -> None:
        """Show the next GPUs, or those before; after the last ones the first."""
        pages = -(-len(self._gpus) // max(1, self._room))
        self._first_gpu = (self._first_gpu // max(1, self._room) + direction) % max(1, pages) * self._room
        self.redraw()

    def _no_gpu(self, snapshot: Snapshot) -> str:
        """Say why there is no GPU to show."""
        reasons = {host: state.machine.no_gpu for host, state in snapshot.hosts.items() if state.machine.no_gpu}
        if self._why:
            reasons[""] = self._why
        told = [f"no GPU on {host or 'this machine'}: {reason}" for host, reason in sorted(reasons.items())]
        if told:
            return "\n".join(told)
        if self.monitor.source.playback is not None:
            return "no GPU was read up to this moment of the recording"
        return "looking for GPUs…" if self._why is None else "no GPU is read yet"
