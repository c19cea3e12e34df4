"""Header, tabs, status line, time line, messages and keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.analysis.bottleneck import BUSY_OTHERS_PCT, MACHINE_BUSY
from tfmon.analysis.finish import ending_line
from tfmon.model.knobs import short_name
from tfmon.model.lane_events import PAUSED, RACING
from tfmon.model.periods import why_mode_stays
from tfmon.model.ports import ReplayState
from tfmon.model.race import MODE_MARKS, TURNS
from tfmon.model.readings import known
from tfmon.model.session import Snapshot
from tfmon.ui.keys import BY_ID, TABS, key_of, tab_action
from tfmon.ui.render import reading_rows
from tfmon.ui.render.reading_rows import REFUSED_NS
from tfmon.ui.render.rows import DIM, TEXT, Row, Span, cells, crop, fit, meter, spread
from tfmon.ui.render.style import STRONG, TROUBLE, WARN, link, strong
from tfmon.ui.source import Display, focused_index, running_line, shared_value, shows, targets


def header_row(analysis: Analysis, width: int) -> Row:
    """Return the header parts that fit."""
    race = analysis.snapshot.race
    left: Row = ((" tfmon  ", DIM), (race.scenario or "…", STRONG))
    row: Row = ()
    for part in _header_parts(analysis):
        longer = (*row, (" · " if row else "", DIM), *part)
        if part[0][0] and cells(left) + cells(longer) + 3 <= width:
            row = longer
    if cells(left) + cells(row) + len(race.title) + 6 <= width:
        left = (*left, (f"  {race.title}", DIM))
    return spread(left, (*row, (" ", TEXT)), width)


def _header_parts(analysis: Analysis) -> Iterator[Row]:
    snapshot, used = analysis.snapshot, reading_rows.machines(analysis.snapshot)
    (host, state), *other_machines = used
    yield ((_elapsed(snapshot), STRONG),)
    yield ((_busy_badge(analysis), strong(WARN)),)
    yield ((_mode(snapshot), DIM),)
    if host or other_machines:
        lost = sum(bool(other.lost) for _, other in used)
        problem = "" if not lost else " is lost" if len(used) == 1 else f", {lost} lost"
        yield ((host if len(used) == 1 else f"{len(used)} machines", TEXT), (problem, strong(TROUBLE)))
    if not other_machines:
        machine, gpus = state.machine, "no GPU" if snapshot.lanes else ""
        if machine.gpus:
            name = machine.gpus[0].removeprefix("NVIDIA ").removeprefix("GeForce ")
            gpus = name if len(machine.gpus) == 1 else f"{len(machine.gpus)} GPUs, {name}"
        yield ((f"{units.cores(machine.usable_cores)} of {machine.cores} cores" if machine.cores else "", TEXT),)
        yield ((gpus, TEXT),)
    versions = ", ".join(filter(None, {lane.process.versions["tensorflow"]: 0 for lane in snapshot.lanes}))
    yield ((f"TF {versions}" if versions else "", DIM),)
    names = ", ".join(host or state.machine.hostname or "here" for host, state in used)
    yield (("" if len(used) == 1 and host else names, DIM),)


def _elapsed(snapshot: Snapshot) -> str:
    started_ns, now_ns = snapshot.race.started_ns, snapshot.at_ns
    if snapshot.over:
        if snapshot.raced_s is not None:
            return units.clock(snapshot.raced_s)
        now_ns = max(lane.phase_since_ns for lane in snapshot.lanes)
        started_ns = started_ns or min(lane.process.started_ns for lane in snapshot.lanes)
    return units.clock(0.0 if started_ns is None else (now_ns - started_ns) / 1e9)


def _busy_badge(analysis: Analysis) -> str:
    snapshot = analysis.snapshot
    samples = [state.sample for _, state in reading_rows.machines(snapshot) if state.sample is not None]
    others_pct = max((known(sample.others_cpu_pct) or 0.0 for sample in samples), default=0.0)
    is_reported = any(
        lane.bottleneck and lane.bottleneck.taken_by_others == MACHINE_BUSY for lane in analysis.lanes
    )
    if others_pct > BUSY_OTHERS_PCT and not snapshot.over:
        return f"! {MACHINE_BUSY}: {others_pct / 100:.1f} cores"
    return f"! {MACHINE_BUSY}" if is_reported else ""


def _mode(snapshot: Snapshot) -> str:
    mode, count, machines = snapshot.race.mode, len(snapshot.lanes), snapshot.machines
    if count < 2:
        return ""
    if mode == TURNS and machines > 1:
        return "in rounds" if machines == count else "turns on each machine"
    return MODE_MARKS[TURNS] if mode == TURNS else "both at once" if count == 2 else "all at once"


COST_SAMPLES = 10


def status_row(snapshot: Snapshot, view: Display, per_page: int, width: int) -> Row:
    """Return the message or focus, and the progress."""
    left, count = _status(snapshot, view), len(snapshot.lanes)
    right = () if view.replay else progress_row(snapshot)
    if 0 < per_page < count:
        first = (focused_index(view, snapshot) or 0) // per_page * per_page
        last = min(count, first + per_page)
        shown = f"lane {last}" if first + 1 == last else f"lanes {first + 1} to {last}"
        right = (*right, (f"{shown} of {count}, Tab shows the others ", DIM))
    if message_of(view, snapshot) and cells(left) + cells(right) >= width:
        right = ()
    shares = [known(sample.monitor_cpu_pct) for sample in snapshot.hosts[""].history[-COST_SAMPLES:]]
    counted = [share for share in shares if share is not None]
    cost = f" tfmon {sum(counted) / len(counted):.1f} % " if counted and not shows(snapshot, view) else ""
    if cost and cells(left) + cells(right) + len(cost) <= width:
        right = (*right, (cost, DIM))
    return spread(left, right, width)


def _status(snapshot: Snapshot, view: Display) -> Row:
    if message := message_of(view, snapshot):
        return ((f"   {message}", strong(WARN)),)
    recording, began_ns = snapshot.recording, snapshot.race.started_ns
    if recording is not None and recording.reason:
        since_ns = 0 if began_ns is None or recording.stopped_ns is None else recording.stopped_ns - began_ns
        stopped = f"recording stopped at {units.clock(since_ns / 1e9)}" if recording.path else "not recorded"
        return ((f"   {stopped}: {recording.reason}", strong(WARN)),)
    focused = next((lane.title for lane in snapshot.lanes if lane.spec.name == view.focused), "")
    if focused:
        all_lanes = (key_of("focus.all", view.keys), STRONG), (" all lanes", DIM)
        return ((f"   keys act on {focused} only · ", TEXT), *all_lanes)
    if shows(snapshot, view) or view.replay:
        return ()
    if view.readonly:
        return (("   read only: keys change nothing", DIM),)
    one_lane = (key_of("focus.next", view.keys), STRONG), (" picks one", DIM)
    return (("   keys act on all lanes · ", DIM), *one_lane) if len(snapshot.lanes) > 1 else ()


def message_of(view: Display, snapshot: Snapshot) -> str:
    """Return the message, an unseen failure, or the running experiment."""
    if view.stopping:
        again, ending = key_of("quit", view.keys), ending_line(snapshot)
        return f"{ending}; {again} again: now" if ending else f"stopping the lanes… {again} again leaves at once"
    if line := view.message or view.notice or ending_line(snapshot):
        return line
    running = running_line(snapshot, view.keys)
    running = running.partition(";")[0] if view.fixed else running
    return failure_line(view, snapshot, key_of("focus.all", view.keys)) or running or view.busy


def failure_line(view: Display, snapshot: Snapshot, key: str) -> str:
    """Return which hidden lane failed, when, and why."""
    unseen = [lane for lane in snapshot.lanes if view.failures.get(lane.spec.name)]
    if not unseen:
        return ""
    lane, other_count = unseen[0], len(unseen) - 1
    ago = units.clock((snapshot.at_ns - lane.phase_since_ns) / 1e9)
    more = f" (and {other_count} more)" if other_count else ""
    reason = f": {lane.trouble.message}" if lane.trouble is not None else ""
    return f"{lane.title}{more} {lane.phase} {ago} ago, while hidden ({key}){reason}"


def refusal_line(snapshot: Snapshot) -> str:
    """Return the latest refused change."""
    lane = max(snapshot.lanes, key=lambda lane: lane.changes.refused_ns, default=None)
    if lane is None or not lane.changes.refused or snapshot.at_ns - lane.changes.refused_ns >= REFUSED_NS:
        return ""
    return f"{lane.title} refused: {lane.changes.refused}"


BAR_CELLS = 20


def progress_row(snapshot: Snapshot) -> Row:
    """Return the slowest lane's progress. Empty without a known length."""
    race = snapshot.race
    training = [lane for lane in snapshot.lanes if not lane.over]
    if race.started_ns is None or not training or (race.seconds is None and race.steps is None):
        return ()
    if race.seconds is not None:
        share = (snapshot.at_ns - race.started_ns) / 1e9 / race.seconds
        progress = f"{100 * min(1.0, share):.0f} % of {units.clock(race.seconds)}"
    elif race.steps is not None:
        done = min(lane.totals.measured_steps for lane in training)
        share, progress = done / race.steps, f"{units.count(done)} of {units.count(race.steps)} steps"
    return (*meter(share, BAR_CELLS, TEXT), (f" {progress} ", DIM))


class Hint(NamedTuple):
    """A key with its current action."""

    key: str
    word: str
    action: str = ""


def tab_row(
    names: Sequence[str], current: str, keys: Mapping[str, str], width: int, *, alone: bool = False
) -> Row:
    """Return the tabs with their keys. In a narrow terminal, names are dropped first. `alone`: one lane."""

    def spans(tab: str, title: str) -> list[Span]:
        style, ends = (STRONG, "[]") if tab == current else (DIM, "  ")
        texts = ((ends[0], STRONG), (key_of(TABS[tab], keys), STRONG), (title, style), (ends[1], STRONG))
        return [(text, link(text_style, tab_action(tab))) for text, text_style in texts]

    shown = [(tab, " run" if alone and tab == "race" else f" {tab}") for tab in TABS if tab in names]
    parts = [spans(tab, title) for tab, title in shown]
    if sum(map(cells, parts)) > width:
        parts = [spans(tab, title if tab == current else "") for tab, title in shown]
    while sum(map(cells, parts)) > width and shown[0][0] != current and current in names:
        shown, parts = shown[1:], parts[1:]
    return fit([span for part in parts for span in part], width)


def hint_row(hints: Iterable[Hint], width: int) -> Row:
    """Return the keys that fit, and always the last two."""
    parts = [[(key, link(STRONG, action)), (f" {word}", link(DIM, action))] for key, word, action in hints]
    sizes = [cells(part) + 2 for part in parts]
    while len(parts) > 2 and sum(sizes) > width + 1:
        del parts[-3], sizes[-3]
    row: list[Span] = []
    for part in parts:
        row += [("  " if row else " ", TEXT), *part]
    return fit(row, width)


def keys_row(snapshot: Snapshot, view: Display, width: int, *, hides: bool = False) -> Row:
    """Return the keys that apply now. `hides`: not all lanes are displayed."""
    pair = f"{key_of('batch.down', view.keys)}/{key_of('batch.up', view.keys)}"
    shown = (*([("focus.next", "next")] if hides else []), *_race_keys(snapshot, view))
    texts = ((pair if id == "batch.up" else key_of(id, view.keys), id, word) for id, word in shown)
    return hint_row((Hint(text, word, BY_ID[id].action) for text, id, word in texts), width)


def _race_keys(snapshot: Snapshot, view: Display) -> Iterator[tuple[str, str]]:
    script = any(lane.script.command for lane in snapshot.lanes)
    if view.stopping:
        yield "quit", "leave at once"
        return
    if shows(snapshot, view):
        yield "picture", "save"
        if not view.readonly:
            yield "restart", "again"
        yield "report", "report"
        if not view.readonly and not script:
            yield "scenario", "another scenario"
    elif not view.readonly:
        yield from _changing_keys(snapshot, view, script=script)
    if snapshot.lanes:
        yield "lane.detail", "detail"
        yield "zoom", ("all lanes" if len(snapshot.lanes) > 1 else "back") if view.zoomed else "zoom"
        yield "lane.log", "log"
        yield "copy", "copy"
    yield "help", "help"
    yield "quit", "leave" if snapshot.over else "quit"


_KNOB_KEYS = {"batch_size": "batch.up", "prefetch": "prefetch.next"}


def _changing_keys(snapshot: Snapshot, view: Display, *, script: bool) -> Iterator[tuple[str, str]]:
    lanes, knobs = targets(snapshot.lanes, view.focused), {knob.name for knob in snapshot.race.knobs}
    for knob in (knob for knob in snapshot.race.knobs if knob.name in _KNOB_KEYS):
        now, requested = shared_value(lanes, knob)
        yield _KNOB_KEYS[knob.name], f"{short_name(knob.name)} {now}{f' → {requested}' if requested else ''}"
    if any(lane.phase == RACING for lane in lanes):
        yield "pause", "pause"
    elif any(lane.phase == PAUSED for lane in lanes):
        yield "pause", "resume"
    if lanes:
        yield "restart", "restart"
    if not script:
        yield "scenario", "scenario"
        if any(lane.points for lane in lanes):
            yield "try", "try advice"
    if knobs:
        yield "knobs", "knobs"
    if not script and not why_mode_stays(snapshot.lanes):
        yield "mode", "at once" if snapshot.race.mode == TURNS else "turns"
    if not script and len(snapshot.lanes) == 2 and all(lane.points for lane in snapshot.lanes):
        yield "crossover", "crossover"


_PLAYBACK = (
    ("replay.back", "replay.on", "5 s"), ("replay.slower", "replay.faster", "speed"),
    ("replay.step.back", "replay.step", "step"), ("replay.mark.back", "replay.mark", "mark"),
)  # fmt: skip


def replay_keys_row(replay: ReplayState, view: Display, width: int) -> Row:
    """Return the keys of a replay."""
    play = ("replay.pause", "pause" if replay.playing else "play")
    rows = (play, *_PLAYBACK, ("help", "help"), ("quit", "back" if view.above else "quit"))
    return hint_row((Hint(" ".join(key_of(id, view.keys) for id in ids), word) for *ids, word in rows), width)


_SIGNS = {"request": ("·", STRONG), "knob": ("┬", STRONG), "trouble": ("✗", strong(TROUBLE))}
"""Later marks cover earlier marks."""
MARK_NS = 4_000_000_000
LEAST_BAR = 10


def timeline_row(replay: ReplayState, width: int) -> Row:
    """Return the time line; a click on a cell of its bar goes to that moment."""
    speed = "" if replay.speed == 1 and not replay.playing else f" ×{replay.speed}"
    state = "end" if replay.at_end else f"{'replay' if replay.playing else 'paused'}{speed}"
    begin, now, end = (_clock(replay, at_ns) for at_ns in (replay.from_ns, replay.at_ns, replay.to_ns))
    longest = max(len(begin), len(end))
    left: list[Span] = [(f" {state:<11}", strong(WARN)), (f"{now:>{longest}}  ", STRONG), (f"{begin} ", TEXT)]
    right: list[Span] = [(f" {end}", TEXT)]
    count = f"  event {replay.event:>{len(str(replay.events))}} of {replay.events}"
    passed = [mark for mark in replay.marks if replay.at_ns - MARK_NS <= mark.at_ns <= replay.at_ns]
    note, style = crop(passed[-1].text, 40) if passed else "", STRONG
    longest = max((cell_len(crop(mark.text, 40)) for mark in replay.marks), default=0)
    if replay.note:
        note, style = crop(replay.note, 60), strong(WARN)
        longest = cell_len(note)
    for part, size in (((count, DIM), cell_len(count)), ((f"  {note}", style), longest + 2)):
        if cells(left) + cells(right) + size + 3 * LEAST_BAR <= width:
            right += fit([part], size)
    size = width - cells(left) - cells(right) - 1
    if size < LEAST_BAR:
        return tuple(left[:2])
    return (*left, *_timeline(replay, size), *right)


def _timeline(replay: ReplayState, width: int) -> list[Span]:
    span_ns = max(1, replay.to_ns - replay.from_ns)

    def cell_of(at_ns: int) -> int:
        return max(0, min(width - 1, (at_ns - replay.from_ns) * (width - 1) // span_ns))

    current = cell_of(replay.at_ns)
    spans: list[Span] = [("━", TEXT) if cell < current else ("─", DIM) for cell in range(width)]
    for mark in sorted(replay.marks, key=lambda mark: [*_SIGNS].index(mark.kind)):
        spans[cell_of(mark.at_ns)] = _SIGNS[mark.kind]
    spans[current] = ("█", strong(WARN))
    times_ns = (replay.from_ns + span_ns * cell // (width - 1) for cell in range(width))
    return [(text, link(style, f"go_to({at_ns})")) for (text, style), at_ns in zip(spans, times_ns, strict=True)]


def _clock(replay: ReplayState, at_ns: int) -> str:
    return units.signed_clock((at_ns - (replay.from_ns if replay.started_ns is None else replay.started_ns)) / 1e9)
