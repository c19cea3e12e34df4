"""The page of the GPUs and their processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from tfmon import units
from tfmon.analysis.others import is_free
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.host_states import has_device, machine_key, own_pids
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import Missing, Reading, known
from tfmon.model.session import Snapshot
from tfmon.model.spec import SHORT_INSTANCE
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.reading_rows import UNKNOWN
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, Span, indented, meter
from tfmon.ui.render.style import STRONG, TROUBLE, WARN, lane_style
from tfmon.ui.render.table import Column, Entry
from tfmon.ui.screens.page import bound
from tfmon.ui.screens.text_pages import EntryTable, ListPage

_BUSY_PCT, _HOT_PCT = 75.0, 95.0


@dataclass(frozen=True, slots=True)
class GpuRow:
    """A GPU with the facts about it."""

    sample: GpuSample
    place: str
    lanes: tuple[tuple[int, LaneState], ...]
    stale_s: float | None = None


def gpus_of(snapshot: Snapshot) -> list[GpuRow]:
    """Return all sampled GPUs, each once."""
    by_key: dict[tuple[str, str], GpuRow] = {}
    for host, state in snapshot.hosts.items():
        for sample in state.gpus:
            key = machine_key(snapshot.hosts, host), sample.key
            if key not in by_key:
                device = sample.key[:SHORT_INSTANCE] if sample.part_of else f"gpu:{sample.index}"
                device = f"hidden {sample.index}" if sample.hidden else device
                place = f"{host}/{device}" if host else device
                lanes = tuple(
                    (at, lane)
                    for at, lane in enumerate(snapshot.lanes)
                    if not lane.over and snapshot.machine_key(lane) == key[0] and has_device(lane, sample)
                )
                by_key[key] = GpuRow(sample, place, lanes, snapshot.stale_s(sample))
    return list(by_key.values())


COLUMNS = (
    Column("gpu"), Column("lane"), Column("load"), Column("memory"), Column("power"), Column("heat"),
    Column("clock"), Column("PCIe"), Column("model"),
)  # fmt: skip
_OPTIONAL = ("heat", "clock", "PCIe")
_WIDE = 110


def gpu_entries(rows: Sequence[GpuRow], width: int) -> tuple[tuple[Column, ...], list[Entry]]:
    """Return the columns for a width, and an entry for each GPU."""
    places = [at for at, one in enumerate(COLUMNS) if width >= _WIDE or one.name not in _OPTIONAL]
    entries = []
    for row in rows:
        sample, trouble = row.sample, _trouble(row)
        name = sample.name.removeprefix("NVIDIA ").removeprefix("GeForce ")
        ids = " ".join(lane.spec.id or "?" for _, lane in row.lanes)
        cells: list[Span] = [
            (row.place, STRONG if row.lanes else TEXT),
            (ids, lane_style(row.lanes[0][0]) if row.lanes else DIM),
            *(_readings(sample, 8 if width >= _WIDE else 4) if trouble is None else [("", DIM)] * 6),
            (name, DIM) if trouble is None else (trouble, TROUBLE),
        ]
        entries.append(Entry((sample.host, sample.key), tuple(cells[at] for at in places)))
    return tuple(COLUMNS[at] for at in places), entries


def _readings(sample: GpuSample, bar: int) -> list[Span]:
    busy, power, link = known(sample.load.busy_pct), sample.power, sample.link
    used, total = known(sample.memory.used_bytes), known(sample.memory.total_bytes)
    watts, limit = known(power.power_w), known(power.power_limit_w)
    generation, width = known(link.pcie_generation), known(link.pcie_width)
    load = UNKNOWN if busy is None else f"{_bar(busy / 100, bar)} {busy:3.0f} %"
    memory = (
        f"{_bar(used / total, bar)} {used / 2**30:5.1f}/{total / 2**30:.1f} GiB"
        if used is not None and total
        else UNKNOWN
    )
    full = 100 * used / total if used and total else 0.0
    drawn = UNKNOWN if watts is None else f"{watts:3.0f}" + ("" if limit is None else f"/{limit:.0f}") + " W"
    lanes = UNKNOWN if generation is None or width is None else f"{generation:.0f} ×{width:.0f}"
    return [
        (load, STRONG if busy is not None and busy >= _BUSY_PCT else TEXT if busy else DIM),
        (memory, WARN if full >= _HOT_PCT else TEXT if full >= 1 else DIM),
        (drawn, TEXT),
        _number(sample.temperature_c, units.celsius),
        _number(sample.clocks.sm_clock_mhz, units.megahertz),
        (lanes, WARN if link.warning else TEXT),
    ]


def _bar(share: float, length: int) -> str:
    (filled, _), (rest, _) = meter(share, length, TEXT)
    return filled + rest


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
    """Return the number of GPUs and of free ones."""
    free = sum(is_free(row.sample) and not row.lanes for row in rows)
    return units.several(len(rows), "GPU") + ("" if over else f", {free} free") if rows else ""


def _process_entries(snapshot: Snapshot, rows: Sequence[GpuRow]) -> list[Entry]:
    entries: list[Entry] = []
    for row in rows:
        own = own_pids(snapshot.hosts, snapshot.lanes, row.sample.host)
        processes = [_entry(row, pid, own=pid in own) for pid in row.sample.processes.pids()]
        entries += sorted(
            processes, key=lambda entry: (entry.mark == " ", -(entry.ranks[4] or 0), -(entry.ranks[5] or 0))
        )
    return entries


def _entry(row: GpuRow, pid: int, *, own: bool) -> Entry:
    sample, on_it = row.sample, row.sample.processes
    name = on_it.names.get(pid)
    lanes = (one for one in row.lanes if pid in one[1].tree.pids or pid == one[1].process.pid)
    at, lane = next(lanes, (0, None))
    ours = own or lane is not None or (name is not None and name.ours)
    style = lane_style(at) if lane is not None else TEXT
    share, used = on_it.shares.get(pid), on_it.used_by_pid.get(pid)
    id = lane.spec.id or "?" if lane is not None else "tfmon" if ours else ""
    unnamed = on_it.no_names_reason or "not visible to this user"
    user, command = (name.user, name.command) if name is not None else ("", "")
    load = UNKNOWN if share is None else f"{share:3.0f} %"
    memory = UNKNOWN if used is None else units.memory(used)
    return Entry(
        (sample.host, sample.key, pid),
        (
            (row.place, style),
            (str(pid), DIM),
            (user or UNKNOWN, style),
            (id, style),
            (load, DIM if not share else style),
            (f"{memory:>8}", style),
            (command or unnamed, style if command else DIM),
        ),
        ranks=((sample.host, sample.index), pid, user or None, id or None, share, used, command or None),
        mark="▪" if ours else " ",
    )


class GpusPage(ListPage):
    """Lists the GPUs, and below them the processes."""

    BINDINGS: ClassVar[list[BindingType]] = [bound("move.next", "app.focus_next", "tab", "GPUs, processes")]
    tab = "gpus"
    title_text = "GPUs"
    columns = (
        Column("gpu", 20), Column("pid", 9), Column("user", 14), Column("lane", 6), Column("load", 6),
        Column("memory", 9), Column("command"),
    )  # fmt: skip
    noun = "process"
    nothing = "no process is on a GPU"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self.table = EntryTable("none")
        self.table.add_class("gpus")
        self._why: str | None = None
        """Reason why no GPU is read. `None` if unknown."""
        self._gpus: list[GpuRow] = []

    def content(self) -> ComposeResult:
        yield self.lines
        yield self.table
        yield from super().content()

    def on_mount(self) -> None:
        self.monitor.work(self.monitor.source.watch_gpus, self._take)

    def _take(self, why: str) -> None:
        self._why = why
        self.redraw()

    def entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        self._gpus = gpus_of(snapshot)
        self.title_text = summary(self._gpus, over=snapshot.over) or "GPUs"
        return _process_entries(snapshot, self._gpus)

    def fill(self, snapshot: Snapshot, width: int) -> None:
        super().fill(snapshot, width)
        self.paint(self.lines, [] if self._gpus else indented(self._no_gpu(snapshot), TEXT, width), width)
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
        if self._why:
            reasons[""] = self._why
        lines = [f"no GPU on {host or 'this machine'}: {reason}" for host, reason in sorted(reasons.items())]
        if lines:
            return "\n".join(lines)
        if self.monitor.source.playback is not None:
            return "no GPU was read up to this moment of the recording"
        return "looking for GPUs…" if self._why is None else "no GPU is read yet"
