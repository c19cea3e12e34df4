"""The page of the GPUs: all of each machine with their readings, and every process on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from tfmon import units
from tfmon.analysis.others import is_free
from tfmon.model.gpu import GpuSample
from tfmon.model.hosts import has_device, machine_key, own_pids
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import Missing, Reading, known
from tfmon.model.session import Snapshot
from tfmon.model.spec import SHORT_INSTANCE
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.readings import UNKNOWN
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, Span, cell_len, crop, indented, meter
from tfmon.ui.render.style import STRONG, TROUBLE, WARN, banded, lane_style
from tfmon.ui.render.table import Column, Entry
from tfmon.ui.screens.lines import ListPage
from tfmon.ui.screens.page import bound

GAP = 2
_BUSY_PCT, _HOT_PCT = 75.0, 95.0


@dataclass(frozen=True, slots=True)
class GpuRow:
    """A GPU with the facts about it."""

    sample: GpuSample
    place: str
    lanes: tuple[tuple[int, LaneState], ...]
    stale_s: float | None = None


def gpus_of(snapshot: Snapshot) -> list[GpuRow]:
    """Return all sampled GPUs, machine by machine. A GPU with several names appears once."""
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


@dataclass(frozen=True, slots=True)
class _Part:
    """A column of the GPUs. Higher ranks are dropped first."""

    head: str
    rank: int
    write: Callable[[GpuRow], Span]


def _model(row: GpuRow) -> Span:
    return row.sample.name.removeprefix("NVIDIA ").removeprefix("GeForce "), DIM


def _lanes(row: GpuRow) -> Span:
    ids = " ".join(lane.spec.id or "?" for _, lane in row.lanes)
    return (ids, lane_style(row.lanes[0][0])) if row.lanes else ("", DIM)


def _load(row: GpuRow) -> Span:
    busy = known(row.sample.load.busy_pct)
    style = STRONG if busy is not None and busy >= _BUSY_PCT else TEXT if busy else DIM
    return (UNKNOWN if busy is None else f"{busy:3.0f} %"), style


def _memory(row: GpuRow) -> Span:
    used, total = known(row.sample.memory.used_bytes), known(row.sample.memory.total_bytes)
    if used is None or not total:
        return UNKNOWN, DIM
    full = 100 * used / total
    style = WARN if full >= _HOT_PCT else TEXT if full >= 1 else DIM
    return f"{used / 2**30:5.1f}/{total / 2**30:.1f} GiB", style


def _power(row: GpuRow) -> Span:
    watts, limit = known(row.sample.power.power_w), known(row.sample.power.power_limit_w)
    if watts is None:
        return UNKNOWN, DIM
    return f"{watts:3.0f}" + ("" if limit is None else f"/{limit:.0f}") + " W", TEXT


def _link(row: GpuRow) -> Span:
    link = row.sample.link
    generation, width = known(link.pcie_generation), known(link.pcie_width)
    if generation is None or width is None:
        return UNKNOWN, DIM
    return f"{generation:.0f} ×{width:.0f}", WARN if link.warning else TEXT


def _number(reading: Reading, write: Callable[[float], str]) -> Span:
    value = known(reading)
    return (UNKNOWN, DIM) if value is None else (write(value), TEXT)


def _megahertz(value: float) -> str:
    return units.megahertz(value).rjust(8)


_PARTS = (
    _Part("lane", 0, _lanes),
    _Part("load", 0, _load),
    _Part("memory", 1, _memory),
    _Part("power", 1, _power),
    _Part("heat", 0, lambda row: _number(row.sample.temperature_c, units.celsius)),
    _Part(
        "clock",
        2,
        lambda row: _number(row.sample.clocks.sm_clock_mhz, _megahertz),
    ),
    _Part("PCIe", 3, _link),
    _Part("model", 4, _model),
)
LONGEST_BAR, _SHORTEST_BAR = 20, 4
_BARS = ("load", "memory")


def gpu_rows(rows: Sequence[GpuRow], width: int) -> list[Row]:
    """Return a head and a row for each GPU: as many columns as there is room for, and bars of load and memory."""
    places = max([cell_len(one.place) for one in rows] + [3])
    parts, sizes = _fitting(rows, width - places - GAP - 1)
    left = width - 1 - places - GAP - sum(sizes) - GAP * len(sizes)
    bars: dict[str, int] = {}
    for name in _BARS:
        bar = min(LONGEST_BAR, left - GAP)
        if bar >= _SHORTEST_BAR and any(part.head == name for part in parts):
            bars[name], left = bar, left - bar - GAP
    head: list[Span] = [(" " + "gpu".ljust(places + GAP), DIM)]
    for part, size in zip(parts, sizes, strict=True):
        room = bars[part.head] + GAP if part.head in bars else 0
        head.append((part.head.ljust(size + GAP + room), DIM))
    drawn: list[Row] = [tuple(head)]
    for one in rows:
        spans: list[Span] = [(" " + one.place.ljust(places + GAP), STRONG if one.lanes else TEXT)]
        trouble = _trouble(one)
        if trouble is not None:
            drawn.append((*spans, (crop(trouble, width - places - GAP - 1), TROUBLE)))
            continue
        for part, size in zip(parts, sizes, strict=True):
            if part.head in bars:
                share = _share(one, part.head)
                style = banded(lane_style(one.lanes[0][0]), share) if one.lanes else TEXT
                spans += [*meter(share, bars[part.head], style), (" " * GAP, TEXT)]
            text, style = part.write(one)
            spans.append((text + " " * (size + GAP - cell_len(text)), style))
        drawn.append(tuple(spans))
    return drawn


def _share(row: GpuRow, column: str) -> float:
    if column == "load":
        return (known(row.sample.load.busy_pct) or 0.0) / 100
    used, total = known(row.sample.memory.used_bytes), known(row.sample.memory.total_bytes)
    return used / total if used and total else 0.0


def _fitting(rows: Sequence[GpuRow], width: int) -> tuple[list[_Part], list[int]]:
    readable = [one for one in rows if _trouble(one) is None]
    parts = [part for part in _PARTS if part.rank <= 1 or any(part.write(one)[0] != UNKNOWN for one in readable)]
    while True:
        sizes = [max([cell_len(part.head), *(cell_len(part.write(one)[0]) for one in readable)]) for part in parts]
        if sum(sizes) + GAP * len(sizes) <= width or len(parts) == 1:
            return parts, sizes
        parts.remove(max(parts, key=lambda part: part.rank))


def _trouble(row: GpuRow) -> str | None:
    busy = row.sample.load.busy_pct
    if row.stale_s is not None:
        return f"stale: read {units.seconds(row.stale_s)} ago"
    if isinstance(busy, Missing) and isinstance(row.sample.memory.used_bytes, Missing):
        return units.absent(busy)
    return None


def summary(rows: Sequence[GpuRow], *, over: bool) -> str:
    """Say how many GPUs there are, and until the race is over how many nobody uses."""
    free = sum(is_free(one.sample) and not one.lanes for one in rows)
    return units.several(len(rows), "GPU") + ("" if over else f", {free} free") if rows else ""


def process_entries(snapshot: Snapshot, rows: Sequence[GpuRow]) -> list[Entry]:
    """Return every process on the GPUs: own lanes are marked by their id and come first on each GPU."""
    entries: list[Entry] = []
    for one in rows:
        own = own_pids(snapshot.hosts, snapshot.lanes, one.sample.host)
        processes = [_entry(one, pid, own=pid in own) for pid in one.sample.processes.pids()]
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
    """Lists the GPUs, and below them the processes. If both scroll, Tab goes from one to the other."""

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
        self._why: str | None = None
        """Reason why no GPU is read. `None` if unknown."""
        self._gpus: list[GpuRow] = []

    def content(self) -> ComposeResult:
        self.lines.add_class("gpus")
        self.lines.can_focus = True
        yield self.lines
        yield from super().content()

    def on_mount(self) -> None:
        """Request readings of the GPUs, even if no lane trains on one."""
        self.monitor.work(self.monitor.source.watch_gpus, self._take)

    def _take(self, why: str) -> None:
        self._why = why
        self.redraw()

    def entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        self._gpus = gpus_of(snapshot)
        self.title_text = summary(self._gpus, over=snapshot.over) or "GPUs"
        return process_entries(snapshot, self._gpus)

    def fill(self, snapshot: Snapshot, width: int) -> None:
        super().fill(snapshot, width)
        gpus = gpu_rows(self._gpus, width) if self._gpus else indented(self._no_gpu(snapshot), TEXT, width)
        self.paint(self.lines, [*gpus, BLANK], width)

    def above(self, snapshot: Snapshot, width: int) -> list[Row]:
        return super().above(snapshot, width) if self._gpus else [BLANK]

    def note(self) -> str:
        ours = sum(entry.mark != " " for entry in self._every)
        return " on them" + (f" · ▪ {ours} of this tfmon" if ours else "")

    def action_filter(self) -> None:
        """Open the input for a filter, if there is a list."""
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
