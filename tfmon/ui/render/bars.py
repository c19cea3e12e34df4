"""Header, status line and messages."""

from __future__ import annotations

from collections.abc import Iterator

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.analysis.bottleneck import BUSY_OTHERS_PCT, MACHINE_BUSY
from tfmon.analysis.finish import ending_line
from tfmon.model.race import TURNS, RecordingState
from tfmon.model.readings import known
from tfmon.model.session import Snapshot
from tfmon.ui.keys import key_of
from tfmon.ui.render import machine_rows
from tfmon.ui.render.reading_rows import REFUSED_NS
from tfmon.ui.render.rows import DIM, TEXT, Row, cells, meter, spread
from tfmon.ui.render.style import KEY, STRONG, WARN, strong
from tfmon.ui.render.verdict_rows import elapsed
from tfmon.ui.source import Display, focused_index, running_line, shows

_MODES = {"concurrent": "both at once", "turns": "taking turns"}


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
    snapshot, used = analysis.snapshot, machine_rows.machines(analysis.snapshot)
    (host, state), *other_machines = used
    yield ((elapsed(snapshot), STRONG),)
    yield ((busy_badge(analysis), strong(WARN)),)
    yield ((_mode(snapshot), DIM),)
    if host or other_machines:
        yield machine_rows.count_row(snapshot)
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


def busy_badge(analysis: Analysis) -> str:
    """Return a warning if other programs use the machine."""
    snapshot = analysis.snapshot
    samples = [state.sample for _, state in machine_rows.machines(snapshot) if state.sample is not None]
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
    return "all at once" if mode == "concurrent" and count > 2 else _MODES.get(mode, mode)


COST_SAMPLES = 10


def status_row(snapshot: Snapshot, view: Display, per_page: int, width: int) -> Row:
    """Return the message or focus, and the progress."""
    left, right, count = (
        _status(snapshot, view),
        () if view.replay else progress_row(snapshot),
        len(snapshot.lanes),
    )
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
    if snapshot.recording is not None and snapshot.recording.reason:
        return ((f"   {_not_recorded(snapshot, snapshot.recording)}", strong(WARN)),)
    focused = next((lane.title for lane in snapshot.lanes if lane.spec.name == view.focused), "")
    if focused:
        all_lanes = (key_of("focus.all", view.keys), KEY), (" all lanes", DIM)
        return ((f"   keys act on {focused} only · ", TEXT), *all_lanes)
    if shows(snapshot, view) or view.replay:
        return ()
    if view.readonly:
        return (("   read only: keys change nothing", DIM),)
    one_lane = (key_of("focus.next", view.keys), KEY), (" picks one", DIM)
    return (("   keys act on all lanes · ", DIM), *one_lane) if len(snapshot.lanes) > 1 else ()


def _not_recorded(snapshot: Snapshot, recording: RecordingState) -> str:
    if not recording.path:
        return f"not recorded: {recording.reason}"
    began_ns = snapshot.race.started_ns
    since_s = 0.0 if began_ns is None or recording.stopped_ns is None else (recording.stopped_ns - began_ns) / 1e9
    return f"recording stopped at {units.clock(max(0.0, since_s))}: {recording.reason}"


def message_of(view: Display, snapshot: Snapshot) -> str:
    """Return the message, an unseen failure, or the running experiment."""
    if view.stopping:
        again, ending = key_of("quit", view.keys), ending_line(snapshot)
        return f"{ending}; {again} again: now" if ending else f"stopping the lanes… {again} again leaves at once"
    done = view.message_done is not None and view.message_done(snapshot)
    if view.message and not done:
        return view.message
    if line := view.notice or ending_line(snapshot):
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
