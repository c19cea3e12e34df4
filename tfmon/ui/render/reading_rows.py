"""The readings of a pane."""

from __future__ import annotations

from tfmon import units
from tfmon.analysis.bottleneck import MACHINE_BUSY, Bottleneck
from tfmon.analysis.bottleneck_rules import Shares
from tfmon.analysis.finish import seconds_left
from tfmon.analysis.prediction import LONG_STEP_S
from tfmon.model.knobs import BATCH_SCOPE, BATCH_SIZE, short_name, show
from tfmon.model.lane_relations import ordered_settings
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import Missing, known
from tfmon.model.script_events import Progressed
from tfmon.ui.render import lifecycle
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, cells, meter, stacked, styled_lines, wrap
from tfmon.ui.render.style import STRONG, WARN, banded

LABEL_CELLS = 8
WIDE = 44
_BAR_TAIL, _BAR_TAIL_WIDE = 17, 28
"""Cells for the text after a bar, so that all bars have equal lengths."""
BEHIND_S = 1.0
"""A viewer receives events once a second."""
UNKNOWN = "–"
DIFFERS = "≠ "
REFUSED_NS = 20_000_000_000


def labelled(label: str, *spans: tuple[str, str]) -> Row:
    """Return a row with a dim label."""
    return ((label.ljust(LABEL_CELLS - 1) + " ", DIM), *spans)


def running_row(lane: LaneState, now_ns: int, width: int) -> Row:
    """Return the running step if it is long, else `step_row`."""
    runs_s, last = lane.step_runs_s(now_ns), lane.points[-1] if lane.points else None
    ended = lane.over and lane.totals.steps > 0
    if ended or runs_s < LONG_STEP_S + BEHIND_S or lifecycle.stalled_s(lane, now_ns) is not None:
        return step_row(lane, width)
    number = f"{'step ' if width >= WIDE else ''}{units.count(lane.totals.steps + 1)}"
    took_s = last.span_ns / last.steps / 1e9 if last is not None and last.steps else None
    if lane.changes.requested and last is not None and took_s is not None:
        asked_ns = max(request.at_ns for request in lane.changes.requested.values())
        soon = f"change in effect in {units.about(max(1.0, took_s - runs_s))}"
        soon = soon if last.at_ns < asked_ns else "the change is being prepared"
        return labelled("step", (f"{number} runs; " if width >= WIDE else "", TEXT), (soon, STRONG))
    before = f", {'the last took' if width >= WIDE else 'last'} {units.duration(took_s)}" if took_s else ""
    runs = " runs for " if width >= WIDE else " runs "
    return labelled("step", (number, TEXT), (runs, DIM), (units.seconds(runs_s), TEXT), (before, DIM))


def step_row(lane: LaneState, width: int) -> Row:
    """Return quantiles of the step time since the last knob change."""
    p50, p95, p99 = (lane.steady.step_ms(fraction) for fraction in (0.5, 0.95, 0.99))
    if p50 is None or p95 is None or p99 is None:
        return labelled("step", (UNKNOWN, DIM))
    return labelled(
        "step",
        ("p50 " if width >= WIDE else "", DIM),
        (units.milliseconds(p50).ljust(9), TEXT),
        ("p95 ", DIM),
        (_bare_ms(p95), TEXT),
        ("p99 ", DIM),
        (_bare_ms(p99).rstrip(), TEXT),
    )


def _bare_ms(value: float) -> str:
    return units.milliseconds(value).removesuffix(" ms").ljust(6)


def loss_row(lane: LaneState) -> Row:
    """Return the first and last loss."""
    losses = lane.totals.losses
    if losses.first is None or losses.last is None:
        return labelled("loss", (f"{UNKNOWN} {lane.script.not_measured.get('loss', '')}".rstrip(), DIM))
    last = (units.loss(losses.last), TEXT)
    if losses.lost:
        last = (f"{last[0]} by step {units.count(losses.lost)}", WARN)
    return labelled("loss", (units.loss(losses.first), TEXT), (" → ", DIM), last)


def done_row(lane: LaneState, width: int, *, discarded: bool = True) -> Row:
    """Return steps, examples and discarded share since the start signal."""
    missing, progress, steps = lane.script.not_measured, lane.script.progress, units.count(lane.totals.steps)
    if not lane.points:
        return labelled("done", (f"{UNKNOWN} {missing.get('steps', '')}".rstrip(), DIM))
    if progress is not None and progress.epochs:
        return _epoch_row(lane, progress, width)
    reason = missing.get("steps") or missing.get("examples", "")
    if reason and not lane.totals.examples:
        return labelled("done", (steps, TEXT), (f" steps · ex. {UNKNOWN} {reason}", DIM))
    row = labelled(
        "done",
        (f"epoch {progress.epoch} {progress.doing} · " if progress is not None and progress.epoch else "", DIM),
        (steps, TEXT),
        (" steps · ", DIM),
        (units.count(lane.totals.examples), TEXT),
        (" ex.", DIM),
    )
    whole = units.discarded(lane.discarded_shares) if discarded else ""
    return fitting(width, *((*row, (f" · {text}", DIM)) for text in (whole, whole.partition(":")[0]) if text), row)


def fitting(width: int, *rows: Row) -> Row:
    """Return the first row that fits, or the last row."""
    return next((row for row in rows if cells(row) <= width), rows[-1])


def _epoch_row(lane: LaneState, progress: Progressed, width: int) -> Row:
    epochs, doing = f"{progress.epoch} of {progress.epochs}  ", progress.doing.replace("fit", "")
    if not progress.batches:
        return labelled("epoch", (epochs, TEXT), (f"{units.count(progress.batch)} batches {doing}", DIM))
    left_s = None if lane.over else seconds_left(lane)
    left = f"{units.clock(left_s)} left" if left_s is not None else ""
    share = (max(0, progress.epoch - 1) + min(1.0, progress.batch / progress.batches)) / progress.epochs
    tail = "  ".join(filter(None, (f"{100 * share:4.0f} %", doing, left)))
    drawn = meter(share, max(4, width - LABEL_CELLS - len(epochs) - len(tail)), TEXT)
    return labelled("epoch", (epochs, STRONG), *drawn, (tail, STRONG))


def cpu_row(lane: LaneState, usable_cores: float, width: int, accent: str) -> Row:
    """Return the CPU use of a lane's processes; 100 % is one core."""
    value = lane.tree.cpu_pct
    if lane.over:
        return labelled("cpu", (UNKNOWN, DIM))
    if isinstance(value, Missing):
        return labelled("cpu", (units.absent(value), DIM))
    full = usable_cores * 100
    text = f"{value:4.0f} % of {units.cores(round(full))}" if full else f"{value:4.0f} %"
    return labelled("cpu", *bar(value / full if full else None, text, width - LABEL_CELLS, accent))


def memory_row(lane: LaneState) -> Row:
    """Return a lane's private memory."""
    value = lane.tree.private_bytes
    if lane.over:
        return labelled("memory", (UNKNOWN, DIM))
    text = units.reading(value, lambda size: f"{units.memory(size)} private")
    return labelled("memory", (text, DIM if isinstance(value, Missing) else TEXT))


_PARTS = (
    ("input", "input_pct", "█"),
    ("copy", "copy_pct", "▚"),
    ("dispatch", "dispatch_pct", "▓"),
    ("compute", "device_pct", "▒"),
    ("retrace", "retrace_pct", "▞"),
    ("sync", "sync_pct", "═"),
    ("tfmon", "report_pct", "·"),
    ("other", "other_pct", "░"),
)
_LEAST_PCT = 2.0


def time_parts(shares: Shares) -> list[tuple[str, float, str]]:
    """Return name, percent and character of the step time's known parts."""
    parts = [(name, known(getattr(shares, field)), glyph) for name, field, glyph in _PARTS]
    known_parts = [(name, value, glyph) for name, value, glyph in parts if value is not None]
    if known(shares.dispatch_pct) is None:
        known_parts.insert(1, ("step", max(0.0, shares.step_pct - (known(shares.device_pct) or 0.0)), "▓"))
    return known_parts


def time_row(shares: Shares | None, width: int, accent: str) -> Row:
    """Return the parts of the step time as a bar and text."""
    if shares is None:
        return labelled("time", (UNKNOWN, DIM))
    parts, text = time_parts(shares), ""
    styled = ((value, glyph, accent if glyph in "█▓▒▚▞" else DIM) for _, value, glyph in parts)
    spans = stacked(styled, min(20, max(8, (width - LABEL_CELLS) // 3)))
    room = width - LABEL_CELLS - cells(spans)
    for name, value, glyph in sorted(parts, key=lambda part: -part[1]):
        word = f" {glyph}{name} {value:.0f} %"
        if value < _LEAST_PCT or len(text) + len(word) > room:
            break
        text += word
    return labelled("time", *spans, (text, TEXT))


def bottleneck_rows(bottleneck: Bottleneck | None, width: int, most: int) -> list[Row]:
    """Return the bottleneck; a cause precedes figures."""
    if bottleneck is None:
        return []
    cause, disturbance = bottleneck.cause, bottleneck.taken_by_others
    limit = bottleneck.limit if disturbance == MACHINE_BUSY else bottleneck.text  # the header has the badge
    text = f"{limit}; {cause}" if cause else limit
    if cause and len(wrap(text, width, most + 1)) > most:
        kind = limit.partition(":")[0]
        text = cause if most == 1 and len(cause) <= width else f"{kind}; {cause}"
    return styled_lines(text, width, most)


def knobs_rows(lane: LaneState, width: int, most: int) -> list[Row]:
    """Return the knobs, first the knobs in which lanes differ."""
    requested, differing = dict(lane.to_change), lane.differs or ()
    settings = {name: (show(value), differs) for name, value, differs in ordered_settings(lane)}
    settings |= {name: ("", name in differing) for name in requested if name not in settings}
    scope, style = lane.in_effect.get(BATCH_SCOPE.name), TEXT if lane.points else DIM
    if scope is not None and BATCH_SCOPE.name not in {*requested, *differing}:
        settings.pop(BATCH_SCOPE.name, None)
        value, differs = settings[BATCH_SIZE.name]
        settings[BATCH_SIZE.name] = (f"{value} {scope}" if lane.spec.devices > 1 else value, differs)
    rows = [labelled("knobs")]
    for name in sorted(settings, key=lambda name: (not settings[name][1], name not in requested)):
        value, differs = settings[name]
        spans: Row = (
            (f"{DIFFERS if differs else ''}{short_name(name)}", STRONG if differs else DIM),
            (f" {value}" if value else "", STRONG if differs else style),
            (f" → {show(requested[name])} requested" if name in requested else "", DIM),
        )
        if len(rows[-1]) == 1:
            rows[-1] += spans
        elif cells(rows[-1]) + cells(spans) + 3 <= width:
            rows[-1] = (*rows[-1], (" · ", DIM), *spans)
        elif (differs or name in requested) and len(rows) < most:
            rows.append(labelled("", *spans))
    return rows if settings else [labelled("knobs", (UNKNOWN, DIM))]


def note_row(lane: LaneState, now_ns: int, silent_s: float | None = None, *, keys: bool = True) -> Row:
    """Return a lane's problem, or a blank row."""
    stalled = lifecycle.NOTE if keys else "no message comes"
    lines = units.several(lane.process.bad_lines, "unreadable line")
    problems = (
        ("link", f"nothing came for {units.seconds(silent_s)}" if silent_s is not None else ""),
        ("stopped", lane.script.not_measured.get("stopped", "")),
        ("stalled", stalled if lane.heartbeat.stalled_since_ns is not None else ""),
        ("refused", lane.changes.refused if now_ns - lane.changes.refused_ns < REFUSED_NS else ""),
        ("note", f"{lines} skipped: {lane.process.last_bad_line}" if lane.process.bad_lines else ""),
    )
    return next((labelled(label, (text, WARN)) for label, text in problems if text), BLANK)


def bar(share: float | None, text: str, width: int, accent: str) -> Row:
    """Return a bar and a text at a fixed position."""
    tail = f" {text}"
    length = min(24, width - max(len(tail), _BAR_TAIL_WIDE if width >= WIDE else _BAR_TAIL))
    if share is None or length < 4:
        return ((text, TEXT),)
    return (*meter(share, length, banded(accent, share)), (tail, TEXT))
