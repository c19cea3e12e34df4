"""The lines above and below the panes: the race, messages, progress, and the keys. Pure."""

from __future__ import annotations

from tfmon import units
from tfmon.analysis.finish import ending_line
from tfmon.model.knobs import short_name, show
from tfmon.model.race import TURNS, RecordingState
from tfmon.model.readings import known
from tfmon.model.session import Snapshot
from tfmon.ui.keys import key_of
from tfmon.ui.render import hosts
from tfmon.ui.render.readings import REFUSED_NS
from tfmon.ui.render.rows import DIM, TEXT, Row, Span, cells, fit, meter, spread
from tfmon.ui.render.style import KEY, STRONG, WARN, strong
from tfmon.ui.render.verdict import elapsed, shows
from tfmon.ui.source import Display, effect, in_effect, reachable, running_line, targets

_COMMON = ("batch_size", "prefetch")
_MODES = {"concurrent": "both at once", "turns": "taking turns"}


def header_row(snapshot: Snapshot, width: int) -> Row:
    """Return the line; parts that do not fit are dropped, the least important first."""
    race, used = snapshot.race, hosts.machines(snapshot)
    names = [host or state.machine.hostname or "here" for host, state in used]
    versions = [*filter(None, dict.fromkeys(lane.process.versions["tensorflow"] for lane in snapshot.lanes))]
    left: list[tuple[int, list[Span]]] = [
        (0, [(" tfmon", DIM)]),
        (0, [(race.scenario or "…", STRONG)]),
        (3, [(_settings(snapshot, common=True), TEXT)]),
        (8, [(_settings(snapshot, common=False), TEXT)]),
        (6, [(race.title, DIM)]),
    ]
    right: list[tuple[int, list[Span]]] = [
        (0, [(elapsed(snapshot), STRONG)]),
        (4, [(_mode(snapshot), DIM)]),
        *_machine_parts(snapshot),
        (5, [(f"TF {', '.join(versions)}" if versions else "", DIM)]),
        (7, [("" if len(used) == 1 and used[0][0] else ", ".join(names), DIM)]),
    ]
    for least in range(9, 0, -1):
        row_left, row_right = _joined(left, least, "  "), _joined(right, least, " · ")
        if cells(row_left) + cells(row_right) + 3 <= width:
            break
    return fit(spread(row_left, (*row_right, (" ", TEXT)), width), width)


def _joined(parts: list[tuple[int, list[Span]]], least: int, gap: str) -> Row:
    """Join the parts up to an importance. 0 is the most important."""
    spans: list[Span] = []
    for importance, part in parts:
        if importance >= least or not part[0][0]:
            continue
        if spans:
            spans.append((gap, DIM))
        spans += part
    return tuple(spans)


def _settings(snapshot: Snapshot, *, common: bool) -> str:
    shared = []
    for knob in snapshot.race.knobs:
        if (knob.name in _COMMON) is not common:
            continue
        values = {show(in_effect(lane, knob)) for lane in snapshot.lanes}
        if len(values) == 1:
            shared.append(f"{short_name(knob.name)} {values.pop()}")
    return " · ".join(shared)


def _mode(snapshot: Snapshot) -> str:
    mode, count, machines = snapshot.race.mode, len(snapshot.lanes), snapshot.machines
    if count < 2:
        return "one lane" if count else ""
    if mode == TURNS and machines > 1:
        return "in rounds" if machines == count else "turns on each machine"
    return "all at once" if mode == "concurrent" and count > 2 else _MODES.get(mode, mode)


def _machine_parts(snapshot: Snapshot) -> list[tuple[int, list[Span]]]:
    (host, state), *others = hosts.machines(snapshot)
    which: list[tuple[int, list[Span]]] = [(1, [*hosts.count_row(snapshot)])] if host or others else []
    if others:
        return which
    machine, gpus = state.machine, "no GPU" if snapshot.lanes else ""
    cores = f"{units.cores(machine.usable_cores)} of {machine.cores} cores" if machine.cores else ""
    if machine.gpus:
        name = machine.gpus[0].removeprefix("NVIDIA ").removeprefix("GeForce ")
        gpus = name if len(machine.gpus) == 1 else f"{len(machine.gpus)} GPUs, {name}"
    return [*which, (1, [(cores, TEXT)]), (2, [(gpus, TEXT)])]


COST_SAMPLES = 10


def status_row(snapshot: Snapshot, view: Display, per_page: int, width: int) -> Row:
    """Return the last message, or the lanes that the keys act on. With enough room, add tfmon's own use."""
    message = message_of(view, snapshot)
    right = () if view.replay else progress_row(snapshot)
    lanes = snapshot.lanes
    if per_page and per_page < len(lanes):
        names = [lane.spec.name for lane in lanes]
        first = (names.index(view.focused) if view.focused in names else 0) // per_page * per_page
        last = min(len(lanes), first + per_page)
        shown = f"lane {first + 1}" if first + 1 == last else f"lanes {first + 1} to {last}"
        right = (*right, (f"{shown} of {len(lanes)}, Tab shows the others ", DIM))
    left = _status(snapshot, view)
    if not message:
        left = _fitting(left, width - cells(right) - (2 if right else 0))
    if message and cells(left) + cells(right) >= width:
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
    if snapshot.recording is not None and snapshot.recording.reason:
        return ((f"   {_not_recorded(snapshot, snapshot.recording)}", strong(WARN)),)
    titles = {lane.spec.name: lane.title for lane in snapshot.lanes}
    all_lanes = (key_of("focus.all", view.keys), KEY), (" all lanes", DIM)
    if shows(snapshot, view):
        focused = titles.get(view.focused or "")
        return ((f"   keys act on {focused} only · ", TEXT), *all_lanes) if focused else ()
    if view.replay and view.focused is None:
        return ()
    if view.readonly and view.focused is None:
        return (("   read only: keys change nothing", DIM),)
    changes = (
        () if view.fixed else tuple(span for part in effects(snapshot, view) for span in ((" · ", DIM), *part))
    )
    if view.focused is not None:
        acts_on = f"   keys act on {titles.get(view.focused, view.focused)} only"
        return ((acts_on, TEXT), *changes, (" · ", DIM), *all_lanes)
    if len(snapshot.lanes) < 2:
        return (("   ", TEXT), *changes[1:])
    one_lane = (key_of("focus.next", view.keys), KEY), (" picks one", DIM)
    return (("   keys act on all lanes", DIM), *changes, (" · ", DIM), *one_lane)


_STEPPED = {"batch_size": "batch.up", "prefetch": "prefetch.next"}
"""Knobs in the status line, and the key that increases each."""


def effects(snapshot: Snapshot, view: Display) -> list[Row]:
    """Return for each knob with a key its next effect: `B batch A 10 → 16, B 256 → 512`."""
    chosen = targets(snapshot.lanes, view.focused)
    rows: list[Row] = []
    for knob in snapshot.race.knobs:
        if knob.name in _STEPPED:
            lanes = reachable(chosen, knob, 1, focused=view.focused is not None)
            if text := effect(lanes, knob):
                rows.append(((key_of(_STEPPED[knob.name], view.keys), KEY), (f" {text}", DIM)))
    return rows


def _fitting(row: Row, width: int) -> Row:
    if cells(row) > width and len(row) > 4:
        row = (*row[:1], *row[-3:])
    return row[:1] if cells(row) > width else row


def _not_recorded(snapshot: Snapshot, recording: RecordingState) -> str:
    if not recording.path:
        return f"this race is not recorded: {recording.reason}"
    began_ns = snapshot.race.started_ns
    since_s = 0.0 if began_ns is None or recording.stopped_ns is None else (recording.stopped_ns - began_ns) / 1e9
    return f"recording stopped at {units.clock(max(0.0, since_s))}: {recording.reason}"


def message_of(view: Display, snapshot: Snapshot) -> str:
    """Return the message to show now, a failure that the user has not seen, or the running program, if any."""
    if view.stopping:
        again, ending = key_of("quit", view.keys), ending_line(snapshot)
        return f"{ending}; {again} again: now" if ending else f"stopping the lanes… {again} again leaves at once"
    done = view.message_done is not None and view.message_done(snapshot)
    if snapshot.at_ns < view.message_until_ns and not done:
        return view.message
    if line := view.notice or ending_line(snapshot):
        return line
    running = running_line(snapshot, view.keys)
    running = running.partition(";")[0] if view.fixed else running
    return failure_line(view, snapshot, key_of("focus.all", view.keys)) or running or view.busy


def failure_line(view: Display, snapshot: Snapshot, key: str) -> str:
    """Return which lane failed while hidden, when and why, and the key that removes this line; "" for none."""
    unseen = [lane for lane in snapshot.lanes if lane.spec.name in view.unseen]
    if not unseen:
        return ""
    lane, others = unseen[0], len(unseen) - 1
    ago = units.clock((snapshot.at_ns - lane.phase_since_ns) / 1e9)
    more = f" (and {others} more)" if others else ""
    reason = f": {lane.trouble.message}" if lane.trouble is not None else ""
    return f"{lane.title}{more} {lane.phase} {ago} ago, while hidden ({key}){reason}"


def refusal_line(snapshot: Snapshot) -> str:
    """Return the latest refusal of a change, with its lane, for pages that do not show the panes."""
    lane = max(snapshot.lanes, key=lambda lane: lane.changes.refused_ns, default=None)
    if lane is None or not lane.changes.refused or snapshot.at_ns - lane.changes.refused_ns >= REFUSED_NS:
        return ""
    return f"{lane.title} refused: {lane.changes.refused}"


BAR_CELLS = 20


def progress_row(snapshot: Snapshot) -> Row:
    """Return a bar and how far the slowest lane is. Empty outside of a race, and without a known length."""
    race = snapshot.race
    training = [lane for lane in snapshot.lanes if not lane.over]
    if race.started_ns is None or not training:
        return ()
    if race.seconds is not None:
        share = (snapshot.at_ns - race.started_ns) / 1e9 / race.seconds
        progress = f"{100 * min(1.0, share):.0f} % of {units.clock(race.seconds)}"
    elif race.steps is not None:
        done = min(lane.totals.measured_steps for lane in training)
        share = done / race.steps
        progress = f"{units.count(done)} of {units.count(race.steps)} steps"
    else:
        return ()
    return (*meter(share, BAR_CELLS, TEXT), (f" {progress} ", DIM))
