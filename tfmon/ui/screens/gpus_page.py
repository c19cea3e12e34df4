"""The page of GPUs and processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from tfmon import units
from tfmon.analysis.others import is_free
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.host_states import has_device, machine_key, own_pids
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import Missing, Reading, known
from tfmon.model.requests import Command
from tfmon.model.session import Snapshot
from tfmon.model.spec import SHORT_INSTANCE
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.reading_rows import UNKNOWN
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, Span, meter, styled_lines
from tfmon.ui.render.style import STRONG, TROUBLE, WARN, lane_style
from tfmon.ui.render.table import Entry
from tfmon.ui.screens.page import bound
from tfmon.ui.screens.text_pages import EntryTable, ListPage

_BUSY_PCT, _HOT_PCT = 75.0, 95.0


@dataclass(frozen=True, slots=True)
class GpuRow:
    """A GPU, with the lanes that use it."""

    sample: GpuSample
    label: str
    lanes: tuple[tuple[int, LaneState], ...]
    stale_s: float | None = None


def gpus_of(snapshot: Snapshot) -> list[GpuRow]:
    """Return all sampled GPUs without duplicates."""
    by_key: dict[tuple[str, str], GpuRow] = {}
    for host, state in snapshot.hosts.items():
        for sample in state.gpus:
            key = machine_key(snapshot.hosts, host), sample.key
            if key not in by_key:
                device = sample.key[:SHORT_INSTANCE] if sample.part_of else f"gpu:{sample.index}"
                device = f"hidden {sample.index}" if sample.hidden else device
                label = f"{host}/{device}" if host else device
                lanes = tuple(
                    (index, lane)
                    for index, lane in enumerate(snapshot.lanes)
                    if not lane.over and snapshot.machine_key(lane) == key[0] and has_device(lane, sample)
                )
                by_key[key] = GpuRow(sample, label, lanes, snapshot.stale_s(sample))
    return list(by_key.values())


COLUMNS = ("gpu", "lane", "load", "memory", "power", "heat", "clock", "PCIe", "model")
_OPTIONAL = ("heat", "clock", "PCIe")
_WIDE = 110


def gpu_entries(rows: Sequence[GpuRow], width: int) -> tuple[tuple[str, ...], list[Entry]]:
    """Return the columns that fit, and an entry for each GPU."""
    shown = [index for index, column in enumerate(COLUMNS) if width >= _WIDE or column not in _OPTIONAL]
    entries = []
    for row in rows:
        sample, trouble = row.sample, _trouble(row)
        name = sample.name.removeprefix("NVIDIA ").removeprefix("GeForce ")
        ids = " ".join(lane.spec.id or "?" for _, lane in row.lanes)
        cells: list[Span] = [
            (row.label, STRONG if row.lanes else TEXT),
            (ids, lane_style(row.lanes[0][0]) if row.lanes else DIM),
            *(_readings(sample, 8 if width >= _WIDE else 4) if trouble is None else [("", DIM)] * 6),
            (name, DIM) if trouble is None else (trouble, TROUBLE),
        ]
        entries.append(Entry((sample.host, sample.key), tuple(cells[index] for index in shown)))
    return tuple(COLUMNS[index] for index in shown), entries


def _readings(sample: GpuSample, bar: int) -> list[Span]:
    busy, watts, limit = (
        known(reading) for reading in (sample.load.busy_pct, sample.power.power_w, sample.power.power_limit_w)
    )
    used, total = known(sample.memory.used_bytes), known(sample.memory.total_bytes)
    generation, width = known(sample.link.pcie_generation), known(sample.link.pcie_width)
    load, memory, full = UNKNOWN, UNKNOWN, 0.0
    if busy is not None:
        load = f"{_bar(busy / 100, bar)} {busy:3.0f} %"
    if used is not None and total:
        full = 100 * used / total
        memory = f"{_bar(full / 100, bar)} {used / 2**30:5.1f}/{total / 2**30:.1f} GiB"
    drawn = UNKNOWN if watts is None else f"{watts:3.0f}" + ("" if limit is None else f"/{limit:.0f}") + " W"
    lanes = UNKNOWN if generation is None or width is None else f"{generation:.0f} ×{width:.0f}"
    return [
        (load, STRONG if busy is not None and busy >= _BUSY_PCT else TEXT if busy else DIM),
        (memory, WARN if full >= _HOT_PCT else TEXT if full >= 1 else DIM),
        (drawn, TEXT),
        _number(sample.temperature_c, units.celsius),
        _number(sample.clocks.sm_clock_mhz, units.megahertz),
        (lanes, WARN if sample.link.warning else TEXT),
    ]


def _bar(share: float, length: int) -> str:
    return "".join(text for text, _ in meter(share, length, TEXT))


def _number(reading: Reading, write: Callable[[float], str]) -> Span:
    value = known(reading)
    return (UNKNOWN, DIM) if value is None else (write(value), TEXT)


def _trouble(row: GpuRow) -> str | None:
    busy = row.sample.load.busy_pct
    if row.stale_s is not None:
        return f"stale: read {units.seconds(row.stale_s)} ago"
    if isinstance(busy, Missing) and isinstance(row.sample.memory.used_bytes, Missing):
        return units.absent(busy)
    return None


def summary(rows: Sequence[GpuRow], *, over: bool) -> str:
    """Return the numbers of GPUs and free GPUs."""
    free = sum(is_free(row.sample) and not row.lanes for row in rows)
    return units.several(len(rows), "GPU") + ("" if over else f", {free} free") if rows else ""


def _process_entries(snapshot: Snapshot, rows: Sequence[GpuRow]) -> list[Entry]:
    entries: list[Entry] = []
    for row in rows:
        our_pids = own_pids(snapshot.hosts, snapshot.lanes, row.sample.host)
        processes = [_entry(row, pid, in_our_tree=pid in our_pids) for pid in row.sample.processes.pids()]
        entries += sorted(
            processes, key=lambda entry: (entry.mark == " ", -(entry.ranks[4] or 0), -(entry.ranks[5] or 0))
        )
    return entries


def _entry(row: GpuRow, pid: int, *, in_our_tree: bool) -> Entry:
    sample, on_it = row.sample, row.sample.processes
    name = on_it.names.get(pid)
    lanes = (lane for lane in row.lanes if pid in lane[1].tree.pids or pid == lane[1].process.pid)
    index, lane = next(lanes, (0, None))
    ours = in_our_tree or lane is not None or (name is not None and name.ours)
    style = lane_style(index) if lane is not None else TEXT
    share, used = on_it.shares.get(pid), on_it.used_by_pid.get(pid)
    id = lane.spec.id or "?" if lane is not None else "tfmon" if ours else ""
    user, command = (name.user, name.command) if name is not None else ("", "")
    cells = (
        (row.label, style),
        (str(pid), DIM),
        (user or UNKNOWN, style),
        (id, style),
        (UNKNOWN if share is None else f"{share:3.0f} %", style if share else DIM),
        (f"{UNKNOWN if used is None else units.memory(used):>8}", style),
        (command or on_it.no_names_reason or "not visible to this user", style if command else DIM),
    )
    ranks = ((sample.host, sample.index), pid, user or None, id or None, share, used, command or None)
    return Entry((sample.host, sample.key, pid), cells, ranks, mark="▪" if ours else " ")


class GpusPage(ListPage):
    """Lists GPUs, and their processes below."""

    BINDINGS: ClassVar[list[BindingType]] = [bound("move.next", "app.focus_next", "tab", "GPUs, processes")]
    tab = "gpus"
    title_text = "GPUs"
    columns = ("gpu", "pid", "user", "lane", "load", "memory", "command")
    noun = "process"
    nothing = "no process is on a GPU"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self.table = EntryTable("none")
        self.table.add_class("gpus")
        self._no_gpu_reason: str | None = None
        self._gpus: list[GpuRow] = []

    def content(self) -> ComposeResult:
        yield self.lines
        yield self.table
        yield from super().content()

    def on_mount(self) -> None:
        self.monitor.work(partial(self.monitor.source.ask, Command("watch gpus")), self._take)

    def _take(self, reason: str) -> None:
        self._no_gpu_reason = reason
        self.redraw()

    def entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        self._gpus = gpus_of(snapshot)
        self.title_text = summary(self._gpus, over=snapshot.over) or "GPUs"
        return _process_entries(snapshot, self._gpus)

    def fill(self, snapshot: Snapshot, width: int) -> None:
        super().fill(snapshot, width)
        no_gpu = [] if self._gpus else styled_lines(self._no_gpu(snapshot), width - 2, lead="  ")
        self.paint(self.lines, no_gpu, width)
        columns, entries = gpu_entries(self._gpus, width)
        self.table.show(columns, entries, width, self.style_of)
        self.table.styles.height = len(entries) + 1 if entries else 0

    def above(self, snapshot: Snapshot, width: int) -> list[Row]:
        return super().above(snapshot, width) if self._gpus else [BLANK]

    def note(self) -> str:
        ours = sum(entry.mark != " " for entry in self._every)
        return " on them" + (f" · ▪ {ours} of this tfmon" if ours else "")

    def action_filter(self) -> None:
        if self._gpus:
            super().action_filter()

    def _no_gpu(self, snapshot: Snapshot) -> str:
        reasons = {host: state.machine.no_gpu for host, state in snapshot.hosts.items() if state.machine.no_gpu}
        if self._no_gpu_reason:
            reasons[""] = self._no_gpu_reason
        lines = [f"no GPU on {host or 'this machine'}: {reason}" for host, reason in sorted(reasons.items())]
        if lines:
            return "\n".join(lines)
        if self.monitor.source.playback is not None:
            return "no GPU was read up to this moment of the recording"
        return "looking for GPUs…" if self._no_gpu_reason is None else "no GPU is read yet"
