"""The header, the status line, and messages. Pure."""

from __future__ import annotations

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
from tfmon.ui.source import Display, running_line, shows

_MODES = {"concurrent": "both at once", "turns": "taking turns"}


def header_row(analysis: Analysis, width: int) -> Row:
    """Return the header with the parts that fit."""
    snapshot = analysis.snapshot
    race, used = snapshot.race, machine_rows.machines(snapshot)
    names = ", ".join(host or state.machine.hostname or "here" for host, state in used)
    versions = ", ".join(
        filter(None, dict.fromkeys(lane.process.versions["tensorflow"] for lane in snapshot.lanes))
    )
    right = [
        ((elapsed(snapshot), STRONG),),
        ((busy_badge(analysis), strong(WARN)),),
        ((_mode(snapshot), DIM),),
        *_machine_parts(snapshot),
        ((f"TF {versions}" if versions else "", DIM),),
        (("" if len(used) == 1 and used[0][0] else names, DIM),),
    ]
    left: Row = ((" tfmon  ", DIM), (race.scenario or "…", STRONG))
    row: Row = ()
    for part in right:
        longer = (*row, *([(" · ", DIM)] if row else []), *part)
        if part[0][0] and cells(left) + cells(longer) + 3 <= width:
            row = longer
    if cells(left) + cells(row) + len(race.title) + 6 <= width:
        left = (*left, (f"  {race.title}", DIM))
    return spread(left, (*row, (" ", TEXT)), width)


def busy_badge(analysis: Analysis) -> str:
    """Return that other programs keep the machine busy, and how many cores."""
    snapshot = analysis.snapshot
    samples = [state.sample for _, state in machine_rows.machines(snapshot) if state.sample is not None]
    others = max((known(sample.others_cpu_pct) or 0.0 for sample in samples), default=0.0)
    said = any(found.bottleneck and found.bottleneck.others == MACHINE_BUSY for found in analysis.lanes)
    if others > BUSY_OTHERS_PCT and not snapshot.over:
        return f"! {MACHINE_BUSY}: {others / 100:.1f} cores"
    return f"! {MACHINE_BUSY}" if said else ""


def _mode(snapshot: Snapshot) -> str:
    mode, count, machines = snapshot.race.mode, len(snapshot.lanes), snapshot.machines
    if count < 2:
        return ""
    if mode == TURNS and machines > 1:
        return "in rounds" if machines == count else "turns on each machine"
    return "all at once" if mode == "concurrent" and count > 2 else _MODES.get(mode, mode)


def _machine_parts(snapshot: Snapshot) -> list[Row]:
    (host, state), *others = machine_rows.machines(snapshot)
    which: list[Row] = [machine_rows.count_row(snapshot)] if host or others else []
    if others:
        return which
    machine, gpus = state.machine, "no GPU" if snapshot.lanes else ""
    cores = f"{units.cores(machine.usable_cores)} of {machine.cores} cores" if machine.cores else ""
    if machine.gpus:
        name = machine.gpus[0].removeprefix("NVIDIA ").removeprefix("GeForce ")
        gpus = name if len(machine.gpus) == 1 else f"{len(machine.gpus)} GPUs, {name}"
    return [*which, ((cores, TEXT),), ((gpus, TEXT),)]


COST_SAMPLES = 10


def status_row(snapshot: Snapshot, view: Display, per_page: int, width: int) -> Row:
    """Return the message or the focus, and the progress."""
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
    if view.focused is not None:
        acts_on = f"   keys act on {titles.get(view.focused, view.focused)} only · "
        return ((acts_on, TEXT), *all_lanes)
    if len(snapshot.lanes) < 2:
        return ()
    one_lane = (key_of("focus.next", view.keys), KEY), (" picks one", DIM)
    return (("   keys act on all lanes · ", DIM), *one_lane)


def _not_recorded(snapshot: Snapshot, recording: RecordingState) -> str:
    if not recording.path:
        return f"not recorded: {recording.reason}"
    began_ns = snapshot.race.started_ns
    since_s = 0.0 if began_ns is None or recording.stopped_ns is None else (recording.stopped_ns - began_ns) / 1e9
    return f"recording stopped at {units.clock(max(0.0, since_s))}: {recording.reason}"


def message_of(view: Display, snapshot: Snapshot) -> str:
    """Return the present message, an unseen failure, or the running experiment."""
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
    """Return which lane failed while hidden, when, and why."""
    unseen = [lane for lane in snapshot.lanes if lane.spec.name in view.unseen]
    if not unseen:
        return ""
    lane, others = unseen[0], len(unseen) - 1
    ago = units.clock((snapshot.at_ns - lane.phase_since_ns) / 1e9)
    more = f" (and {others} more)" if others else ""
    reason = f": {lane.trouble.message}" if lane.trouble is not None else ""
    return f"{lane.title}{more} {lane.phase} {ago} ago, while hidden ({key}){reason}"


def refusal_line(snapshot: Snapshot) -> str:
    """Return the latest refusal of a change, with its lane."""
    lane = max(snapshot.lanes, key=lambda lane: lane.changes.refused_ns, default=None)
    if lane is None or not lane.changes.refused or snapshot.at_ns - lane.changes.refused_ns >= REFUSED_NS:
        return ""
    return f"{lane.title} refused: {lane.changes.refused}"


BAR_CELLS = 20


def progress_row(snapshot: Snapshot) -> Row:
    """Return the progress of the slowest lane. Empty without a known length."""
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
