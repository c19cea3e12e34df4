"""A race in sections: its result, trials, the parts of step time, method, and machines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tfmon import units
from tfmon.analysis.analysis import Analysis, LaneAnalysis
from tfmon.analysis.health import FIRST_BATCHES, concerns
from tfmon.analysis.history import HEADS
from tfmon.analysis.others import contention
from tfmon.analysis.profile_diff import profiled_pair, side_of
from tfmon.analysis.series import rates
from tfmon.analysis.verdict import KIND_TEXTS
from tfmon.model.knobs import show
from tfmon.model.lane_state import DONE, HOST_LOST, STAGES, LaneState
from tfmon.model.race import TURNS
from tfmon.model.readings import Missing, known
from tfmon.model.session import Snapshot
from tfmon.recordings.header import Header
from tfmon.reports import (
    DASH,
    TROUBLE,
    VERDICT,
    Block,
    Code,
    Lines,
    Note,
    Report,
    Section,
    Table,
    host_names,
    machine_rows,
    profile_diff,
    recording_lines,
    repeated,
    series,
    steps,
    text,
    versions_text,
    view_lines,
)
from tfmon.reports import course as over_time
from tfmon.reports.gather import Course
from tfmon.reports.html import other_processes
from tfmon.reports.profile import memory_section
from tfmon.reports.steps import full_name
from tfmon.version import __version__

NOTABLE_PEAK = 1.05
"""From this multiple of its mean on, a lane's memory peak is reported."""
_OWN_FRAME = re.compile(r'\s+File ".*/tfmon/(script|trainer|lanes|hosts)/\w+\.py", line ')
OUTPUT_LINES = 12


def to_text(analysis: Analysis) -> str:
    """Return the result as plain text, the verdict last."""
    return "\n".join([text.write(report(analysis), brief=True, last=True), *recording_lines(analysis.snapshot)])


def report(
    analysis: Analysis,
    header: Header | None = None,
    course: Course | None = None,
    again: str = "",
    examination: Sequence[Block] = (),
) -> Report:
    """Return the report of a race; of a recorded one with its `header`, and its `course` over time.

    `examination` is the doctor's report on its machine.
    """
    snapshot = analysis.snapshot
    names = {lane.spec.name: full_name(lane) for lane in snapshot.lanes}
    keys = {lane.spec.name: lane.spec.id or lane.spec.name for lane in snapshot.lanes}
    changed = (*series.crossover(analysis), *series.tuning(analysis), _history(analysis))
    tried = Section("What was tried and changed", changed)
    result = Section("Result", list(_result(analysis)))
    text = "" if analysis.is_series else f"{analysis.answer} {analysis.verdict.note}"
    limits = [line for one in analysis.lanes for line in _limits(snapshot, one, text)]
    profiled = profiled_pair(snapshot.lanes)
    sides = [side for side in map(side_of, snapshot.lanes) if side.profiles]
    title, when = snapshot.race.title or snapshot.race.scenario, []
    if header is not None:
        when = [header.started[:16].replace("T", " "), f"{units.clock(snapshot.raced_s or 0.0)} long"]
    return Report(
        title=title if snapshot.race.scenario in title else f"{snapshot.race.scenario}: {title}",
        when=", ".join(when),
        answer=list(_answer(analysis, torn=course is not None and course.torn)),
        sections=[
            *((tried, result) if analysis.is_series else (result,)),
            Section("What limits the lanes", (Lines(limits), *_causes(analysis))),
            *(over_time.sections(course, names, keys) if course is not None else ()),
            *steps.sections(analysis),
            *((profile_diff.section(*profiled),) if profiled is not None else ()),
            *((memory_section(sides, "Memory at its peak, by layer"),) if sides else ()),
            *(() if analysis.is_series else (tried,)),
            Section("How it was measured", (Lines(list(_method(analysis))),)),
            Section("Settings", (_settings(snapshot, header), *repeated(again)), long=True),
            Section("Machine and versions", (_machines(snapshot, header), *examination), long=True),
        ],
        keys=[(keys[name], called) for name, called in names.items()] if len(names) > 1 else (),
        hosts=host_names((host, state.machine) for host, state in snapshot.hosts.items()),
        others=other_processes(snapshot),
    )


def _answer(analysis: Analysis, *, torn: bool) -> Iterator[Note | Code]:
    """Yield the result of the race: the answer of its experiment, or the verdict, with its limits."""
    snapshot, verdict, race = analysis.snapshot, analysis.verdict, analysis.snapshot.race
    notes = list(series.answer(analysis))
    if not notes:
        earlier = analysis.earlier if len(snapshot.lanes) > 1 else ""
        notes = [Note(line, VERDICT) for line in (earlier, analysis.answer) if line]
        notes += map(Note, verdict.ranked)
    yield from notes
    limits = "" if analysis.is_series else verdict.note
    yield from (Note(line) for line in (*analysis.finish_lines, *race.differs, limits, race.interrupted) if line)
    if torn:
        yield Note("The recording is cut off at its end; this is what it holds.", TROUBLE)


def _result(analysis: Analysis) -> Iterator[Block]:
    """Yield the figures of every lane, and why lanes failed."""
    snapshot = analysis.snapshot
    columns = [one for one in _COLUMNS if any(one[1](lane) is not None for lane in analysis.lanes)]
    rows = [["lane", *(title for title, _, _ in columns)]]
    for one in analysis.lanes if columns else ():
        cells = ["n/a" if of(one) is None else write(one) for _, of, write in columns]
        rows.append([snapshot.called(one.lane), *cells])
    values = [[None, *(of(one) for _, of, _ in columns)] for one in analysis.lanes]
    brief = [0, *(place for place, column in enumerate(columns, 1) if column[0] not in _LONG)]
    if columns:
        yield Table(rows, "Steady state: discarded windows do not count", values=values, brief=brief)
    chosen = {lane.spec.place: lane.spec.chosen for lane in snapshot.lanes if lane.spec.chosen}
    yield Lines([f"{place} is {reason}" for place, reason in chosen.items()])
    for lane in snapshot.lanes:
        yield from _failure(snapshot, lane)
    if snapshot.machine.no_gpu:
        yield Note(f"no GPU lane: {snapshot.machine.no_gpu}")


def _failure(snapshot: Snapshot, lane: LaneState) -> Iterator[Block]:
    if lane.trouble is None:
        if lane.phase == DONE and lane.phase_before in STAGES and not lane.points:
            stage = f"while it was {STAGES[lane.phase_before]}"
            before = "before its first step" if lane.script.command else stage
            yield Note(f"{snapshot.called(lane)}: ended {before}")
        return
    yield Note(f"{snapshot.called(lane)}: {lane.trouble.message}", TROUBLE)
    if lane.trouble.hint:
        yield Note(lane.trouble.hint)
    if lane.trouble.kind == HOST_LOST:
        return  # what it printed is not the reason
    output = _of_the_script(lane.end.event.output_tail) if lane.end.event is not None else []
    if output:
        yield Code("\n".join(output[-OUTPUT_LINES:]))


def _of_the_script(output: Sequence[str]) -> list[str]:
    """Return output without traceback lines of tfmon's files."""
    lines: list[str] = []
    own = False
    for line in output:
        own = bool(_OWN_FRAME.match(line)) or (own and line.startswith("    "))
        if not own:
            lines.append(line)
    return lines


def _limits(snapshot: Snapshot, analysis: LaneAnalysis, text: str) -> Iterator[str]:
    bottleneck, name = analysis.bottleneck, snapshot.called(analysis.lane)
    named = f"{text} {' '.join(one.text for one in analysis.causes)}"  # a cause is in a section of its own
    for one in concerns(snapshot, analysis.lane):
        if one.text not in text and not (one.text.startswith(FIRST_BATCHES) and FIRST_BATCHES in named):
            yield f"{name}: {one.text}"
    if bottleneck is not None:
        yield f"{name}: {bottleneck.text}"
        yield from (f"{name}: {line}" for line in bottleneck.also)
        if bottleneck.supposed is not None:
            yield f"{name}: {bottleneck.help}"


def _causes(analysis: Analysis) -> Iterator[Block]:
    for one in analysis.lanes:
        for cause in (cause for cause in one.causes if cause.count):
            told = (cause.text, cause.advice, *([cause.effect] if cause.effect else []))
            colon = ":" if cause.code else ""
            yield Note(f"{analysis.snapshot.called(one.lane)}: {'; '.join(filter(None, told))}{colon}")
            if cause.code:
                yield Code("\n".join(cause.code))


def _loss_text(analysis: LaneAnalysis) -> str:
    losses = (analysis.lane.totals.losses.first, analysis.lane.totals.losses.last)
    return " → ".join("n/a" if loss is None else units.loss(loss) for loss in losses)


def _memory_text(analysis: LaneAnalysis) -> str:
    memory, most = analysis.lane.memory_bytes, known(analysis.lane.tree.peak_private_bytes)
    if isinstance(memory, Missing):
        return "n/a"
    above = most is not None and most > NOTABLE_PEAK * memory
    return units.memory(memory) + (f" (peak {units.memory(most)})" if above and most is not None else "")


def _column(
    title: str, of: Callable[[LaneState], float | None], write: Callable[[float], str]
) -> tuple[str, Callable[[LaneAnalysis], float | None], Callable[[LaneAnalysis], str]]:
    return title, lambda one: of(one.lane), lambda one: write(of(one.lane) or 0.0)


_COLUMNS = (
    _column("examples/s", lambda lane: lane.steady.examples_per_s, units.rate),
    (
        "95 % CI",
        lambda one: one.speed.low if one.speed else None,
        lambda one: rates(one.speed) if one.speed else "",
    ),
    _column("steps/s", lambda lane: lane.steps_per_s, units.rate),
    _column("step p50", lambda lane: lane.step_ms(0.5), units.milliseconds),
    _column("p95", lambda lane: lane.step_ms(0.95), units.milliseconds),
    _column("p99", lambda lane: lane.step_ms(0.99), units.milliseconds),
    ("loss", lambda one: one.lane.totals.losses.last, _loss_text),
    ("memory", lambda one: known(one.lane.memory_bytes), _memory_text),
    _column("CPU", lambda lane: lane.tree.racing_cpu_pct.value, units.percent),
    _column("GPU busy", lambda lane: lane.gpu_use.racing_busy_pct.value, units.percent),
    _column("GPU memory", lambda lane: known(lane.gpu_use.used_bytes), units.memory),
)
"""Columns of the table of lanes: title, sort key (`None` if unknown), text."""
_LONG = ("95 % CI", "p99", "GPU memory")


def _history(analysis: Analysis) -> Table | None:
    if analysis.is_series and len(analysis.history) < 3:
        return None  # it would say the same as the table of what was tried
    rows = [row.cells(analysis.snapshot) for row in analysis.history]
    left = (0, 1, 2, 3, 5)
    return Table([HEADS, *rows], "Every change, and the verdict from then on", left=left) if rows else None


def _method(analysis: Analysis) -> Iterator[str]:
    """Yield the mode, what counts, and the use of the interval."""
    snapshot, verdict = analysis.snapshot, analysis.verdict
    race, lanes = snapshot.race, snapshot.lanes
    if len(lanes) > 1 and race.mode == TURNS:
        rounds = len({one.round for lane in lanes for one in lane.slices})
        yield (
            f"the lanes took turns: one trained at a time, in slices, {units.several(rounds, 'round')} since a "
            "knob or the mode last changed; the ratio is taken round by round"
        )
        if any(lane.gpu_use.racing_busy_pct.samples for lane in lanes):
            yield "GPU busy is over the whole race, other lanes' slices included; CPU is over a lane's own"
    elif len(lanes) > 1:
        yield "all lanes trained at once and shared the cores: their figures are contended"
    for one in analysis.lanes:
        if one.windows:
            yield f"{snapshot.called(one.lane)}: {one.measured_text}; {one.discarded_text}"
    if verdict.interval is not None and not analysis.is_series:
        low, high = verdict.interval.low, verdict.interval.high
        yield (
            f"95 % confidence interval of the ratio: {units.ratio_in(verdict.interval.value, low, high)[1]}, "
            f"{KIND_TEXTS[verdict.interval.kind]}, from {units.several(verdict.interval.pairs, 'pair')}; "
            f"differences below {100 * race.margin:g} % count as none"
        )
    elif took := replace(contention([lane.slices for lane in lanes]), cpu_ratio=None).text():
        yield took
    if race.between is not None:
        races = units.several(race.between.races, "earlier race")
        yield f"the interval includes how much equal processes differ, as {races} showed"
    most = max((lane.process.number for lane in lanes), default=0)
    if race.fresh and most > 1:
        yield f"fresh processes: {most} of each lane raced, one after the other"
    yield from view_lines(snapshot)
    for lane in lanes:
        unknown = ((what, reason) for what, reason in lane.script.not_measured.items() if reason)
        yield from (f"{snapshot.called(lane)}: {what} not measured: {reason}" for what, reason in unknown)


def _settings(snapshot: Snapshot, header: Header | None) -> Table | None:
    """Return every knob with its value in effect at the end; differing knobs are marked."""
    lanes, defaults = snapshot.lanes, header.knobs if header is not None else {}
    knobs = list(dict.fromkeys([*snapshot.differing, *(name for lane in lanes for name in lane.in_effect)]))
    rows = [["knob", *map(snapshot.called, lanes), "default"]]
    for knob in knobs:
        cells = [show(lane.in_effect[knob]) if knob in lane.in_effect else DASH for lane in lanes]
        rows.append([knob, *cells, show(defaults[knob]) if knob in defaults else DASH])
    differing = [place for place, knob in enumerate(knobs, 1) if knob in snapshot.differing]
    about = "In effect at the end" + ("; lanes differ in what is marked" if differing else "")
    return Table(rows, about, left=range(len(lanes) + 2), marked=differing) if knobs else None


def _machines(snapshot: Snapshot, header: Header | None) -> Table:
    """Return the machines, the versions, and the variables that control TensorFlow."""
    rows = [["", ""], *machine_rows(snapshot.machine)]
    for host, state in snapshot.hosts.items():
        if host:
            rows += [[f"{name} of {host}", value] for name, value in machine_rows(state.machine)]
    versions = f"{header.tfmon}, Python {header.python}" if header is not None else __version__
    rows.append(["tfmon", versions])
    for lane in snapshot.lanes:
        on = snapshot.device_name(lane)
        text = ", ".join(filter(None, (on and f"on {on}", versions_text(lane.process.versions))))
        rows.append([snapshot.called(lane), text or DASH])
    if header is not None:
        rows += [[name, value] for name, value in header.environment.items()]
        rows += [["scenario file", f"digest {header.source}"]] if header.source else []
    return Table(rows, left=(0, 1))
