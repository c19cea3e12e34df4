"""The top line: what is raced, with which settings, for how long, and on what machine. Pure."""

from __future__ import annotations

from tfmon import units
from tfmon.model.knobs import show
from tfmon.model.session import Snapshot
from tfmon.ui.rows import Row, Span, cells, fit, spread
from tfmon.ui.style import DIM, STRONG, TEXT
from tfmon.ui.wishes import in_force, short_name

_COMMON = ("batch_size", "prefetch")
_MODES = {"concurrent": "both at once", "turns": "taking turns"}


def header_row(snapshot: Snapshot, width: int) -> Row:
    """Return the line; parts that do not fit are left out, the least needed first."""
    race, machine = snapshot.race, snapshot.machine
    left: list[tuple[int, list[Span]]] = [
        (0, [(" tfmon", DIM)]),
        (0, [(race.scenario or "…", STRONG)]),
        (3, [(_settings(snapshot, common=True), TEXT)]),
        (8, [(_settings(snapshot, common=False), TEXT)]),
        (6, [(race.title, DIM)]),
    ]
    right: list[tuple[int, list[Span]]] = [
        (0, [(_elapsed(snapshot), STRONG)]),
        (4, [(_mode(snapshot), DIM)]),
        (1, [(_cores(snapshot), TEXT)]),
        (2, [(_gpus(snapshot), TEXT)]),
        (5, [(_version(snapshot), DIM)]),
        (7, [(machine.hostname, DIM)]),
    ]
    for least in range(9, 0, -1):
        row_left, row_right = _joined(left, least, "  "), _joined(right, least, " · ")
        if cells(row_left) + cells(row_right) + 3 <= width:
            break
    return fit(spread(row_left, (*row_right, (" ", TEXT)), width), width)


def _joined(parts: list[tuple[int, list[Span]]], least: int, gap: str) -> Row:
    """Put the parts up to an importance side by side; 0 is the most important."""
    spans: list[Span] = []
    for importance, part in parts:
        if importance >= least or not part[0][0]:
            continue
        if spans:
            spans.append((gap, DIM))
        spans += part
    return tuple(spans)


def _settings(snapshot: Snapshot, *, common: bool) -> str:
    """Name the settings that all lanes share; those that differ stand in the panes."""
    words = []
    for knob in snapshot.race.knobs:
        if (knob.name in _COMMON) is not common:
            continue
        values = {show(in_force(lane, knob)) for lane in snapshot.lanes}
        if len(values) == 1:
            words.append(f"{short_name(knob.name)} {values.pop()}")
    return " · ".join(words)


def _elapsed(snapshot: Snapshot) -> str:
    """Return the time since the start signal; it stands still once every lane is over."""
    started_ns = snapshot.race.started_ns
    if started_ns is None:
        return "0:00"
    ends = [lane.phase_since_ns for lane in snapshot.lanes if lane.over]
    now_ns = max(ends) if ends and len(ends) == len(snapshot.lanes) else snapshot.at_ns
    return units.clock((now_ns - started_ns) / 1e9)


def _mode(snapshot: Snapshot) -> str:
    if len(snapshot.lanes) < 2:
        return "one lane" if snapshot.lanes else ""
    mode = snapshot.race.mode
    return "all at once" if mode == "concurrent" and len(snapshot.lanes) > 2 else _MODES.get(mode, mode)


def _cores(snapshot: Snapshot) -> str:
    machine = snapshot.machine
    if not machine.cores:
        return ""
    return f"{units.cores(machine.usable_cores)} of {machine.cores} cores"


def _gpus(snapshot: Snapshot) -> str:
    gpus = snapshot.machine.gpus
    if not gpus:
        return "no GPU" if snapshot.lanes else ""
    name = gpus[0].removeprefix("NVIDIA ").removeprefix("GeForce ")
    return name if len(gpus) == 1 else f"{len(gpus)} GPUs, {name}"


def _version(snapshot: Snapshot) -> str:
    found = [lane.tensorflow for lane in snapshot.lanes if lane.tensorflow]
    return f"TF {found[0]}" if found else ""
