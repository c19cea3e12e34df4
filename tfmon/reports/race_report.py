"""The report of a race."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.analysis.compare_profiles import profiled_pair, side_of
from tfmon.analysis.health import FIRST_BATCHES
from tfmon.analysis.result import HERE, HISTORY_HEADS, LaneResult, RaceResult
from tfmon.analysis.summarise import summarise
from tfmon.analysis.verdict import KIND_TEXTS
from tfmon.model.folder_views import describe
from tfmon.model.knobs import show
from tfmon.model.lane_relations import collision_lines
from tfmon.model.race import TURNS
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
    minute,
    repeated,
    series_report,
    steps,
    text,
    versions_text,
)
from tfmon.reports import course as over_time
from tfmon.reports.profile_report import diff_section, memory_section
from tfmon.reports.recorded_numbers import Course
from tfmon.reports.secrets import other_processes

NOTABLE_PEAK = 1.05


def to_text(analysis: Analysis, result: RaceResult | None = None) -> str:
    """Return the result, the verdict last."""
    result = result or summarise(analysis)
    return "\n".join([text.write(report(analysis, result), brief=True, last=True), *_recording_lines(result)])


def report(
    analysis: Analysis,
    result: RaceResult,
    course: Course | None = None,
    again: str = "",
    examination: Sequence[Block] = (),
) -> Report:
    """Return the report of a race; `again` is the command that repeats the race."""
    lanes = analysis.snapshot.lanes
    tried = Section(
        "What was tried and changed",
        (*series_report.crossover(analysis), *series_report.tuning(analysis), _history(result)),
    )
    figures = Section("Result", list(_result(result)))
    profiled = profiled_pair(lanes)
    sides = [side for side in map(side_of, lanes) if side.profiles]
    title, started = result.title or result.scenario, result.started
    return Report(
        title=title if result.scenario in title else f"{result.scenario}: {title}",
        when=f"{minute(started)}, {units.clock(result.seconds or 0.0)} long" if started is not None else "",
        answer=list(_answer(analysis, result, torn=course is not None and course.torn)),
        sections=[
            *((tried, figures) if result.is_series else (figures,)),
            steps.account(result),
            Section("What limits the lanes", (Lines(list(_limits(result))), *_causes(result))),
            *(over_time.sections(course) if course is not None else ()),
            steps.section(analysis),
            *((diff_section(*profiled),) if profiled is not None else ()),
            *((memory_section(sides, "Memory at its peak, by layer"),) if sides else ()),
            *(() if result.is_series else (tried,)),
            Section("How it was measured", (Lines(list(_method(result))),)),
            Section("Settings", (_settings(result), *repeated(again)), long=True),
            Section("Machine and versions", (_machines(result), *examination), long=True),
        ],
        keys=[(steps.key_of(lane), steps.full_name(lane)) for lane in lanes] if len(lanes) > 1 else (),
        hosts=host_names(result.machines.items()),
        processes=other_processes(analysis.snapshot),
        data=result.to_json(),
    )


def _answer(analysis: Analysis, result: RaceResult, *, torn: bool) -> Iterator[Note | Code]:
    verdict = result.verdict
    notes = list(series_report.answer(analysis))
    if not notes:
        earlier = verdict.earlier if len(result.lanes) > 1 else None
        notes = [Note(line, VERDICT) for line in (earlier, verdict.answer) if line]
        notes += map(Note, verdict.ranked)
    yield from notes
    yield from (
        Note(line) for line in (*verdict.finish, *result.differs, verdict.note, result.interrupted) if line
    )
    if torn:
        yield Note("The recording is cut off at its end; this is what it holds.", TROUBLE)


def _result(result: RaceResult) -> Iterator[Block]:
    columns = [column for column in _COLUMNS if any(column[1](lane) is not None for lane in result.lanes)]
    rows = [["lane", *(title for title, _, _ in columns)]]
    for lane in result.lanes if columns else ():
        rows.append([lane.label, *("n/a" if value(lane) is None else write(lane) for _, value, write in columns)])
    values = [[None, *(value(lane) for _, value, _ in columns)] for lane in result.lanes]
    brief = [0, *(index for index, column in enumerate(columns, 1) if column[0] not in _LONG)]
    if columns:
        yield Table(rows, "Steady state: discarded windows do not count", values=values, brief=brief)
    chosen = {lane.place: lane.device_chosen for lane in result.lanes if lane.device_chosen}
    yield Lines([f"{device} is {reason}" for device, reason in chosen.items()])
    for lane in result.lanes:
        yield from _failure(lane)
    if result.machine.no_gpu:
        yield Note(f"no GPU lane: {result.machine.no_gpu}")


def _failure(lane: LaneResult) -> Iterator[Block]:
    if lane.ended_early:
        yield Note(f"{lane.label}: ended {lane.ended_early}")
    if lane.error is None:
        return
    yield Note(f"{lane.label}: {lane.error}", TROUBLE)
    if lane.hint:
        yield Note(lane.hint)
    if lane.output:
        yield Code("\n".join(lane.output))


def _limits(result: RaceResult) -> Iterator[str]:
    answer = "" if result.is_series else f"{result.verdict.answer} {result.verdict.note}"
    for lane in result.lanes:
        elsewhere = f"{answer} {' '.join(cause.text for cause in lane.causes)}"
        for concern in lane.concerns:
            is_first_batches = concern.text.startswith(FIRST_BATCHES) and FIRST_BATCHES in elsewhere
            if concern.text not in answer and not is_first_batches:
                yield f"{lane.label}: {concern.text}"
        if lane.bottleneck_text is not None:
            yield from (f"{lane.label}: {line}" for line in (lane.bottleneck_text, *lane.bottleneck_notes))


def _causes(result: RaceResult) -> Iterator[Block]:
    for lane in result.lanes:
        for cause in (cause for cause in lane.causes if cause.count):
            sentence = "; ".join(filter(None, (cause.text, cause.advice, cause.effect)))
            yield Note(f"{lane.label}: {sentence}{':' if cause.code else ''}")
            if cause.code:
                yield Code("\n".join(cause.code))


def _memory_text(lane: LaneResult) -> str:
    memory, most = lane.private_bytes, lane.peak_private_bytes
    if memory is None:
        return "n/a"
    peak = f" (peak {units.memory(most)})" if most is not None and most > NOTABLE_PEAK * memory else ""
    return units.memory(memory) + peak


_Column = tuple[str, Callable[[LaneResult], float | None], Callable[[LaneResult], str]]


def _column(title: str, value: Callable[[LaneResult], float | None], write: Callable[[float], str]) -> _Column:
    return title, value, lambda lane: write(value(lane) or 0.0)


_COLUMNS: tuple[_Column, ...] = (
    _column("examples/s", lambda lane: lane.examples_per_s, units.rate),
    (
        "95 % CI",
        lambda lane: lane.examples_per_s_ci95[0] if lane.examples_per_s_ci95 else None,
        lambda lane: units.rates(*lane.examples_per_s_ci95) if lane.examples_per_s_ci95 else "",
    ),
    _column("steps/s", lambda lane: lane.steps_per_s, units.rate),
    _column("step p50", lambda lane: lane.step_ms["p50"], units.milliseconds),
    _column("p95", lambda lane: lane.step_ms["p95"], units.milliseconds),
    _column("p99", lambda lane: lane.step_ms["p99"], units.milliseconds),
    (
        "loss",
        lambda lane: lane.last_loss,
        lambda lane: " → ".join("n/a" if loss is None else units.loss(loss) for loss in lane.loss.values()),
    ),
    ("memory", lambda lane: lane.private_bytes, _memory_text),
    _column("CPU", lambda lane: lane.cpu_pct, units.percent),
    _column("GPU busy", lambda lane: lane.gpu_busy_pct, units.percent),
    _column("GPU memory", lambda lane: lane.gpu_memory_used_bytes, units.memory),
)
_LONG = ("95 % CI", "p99", "GPU memory")


def _history(result: RaceResult) -> Table | None:
    if not result.history or (result.is_series and len(result.history) < 3):
        return None  # the series' table has the same rows
    rows = [change.cells(len(result.lanes)) for change in result.history]
    return Table([HISTORY_HEADS, *rows], "Every change, and the verdict from then on", left=(0, 1, 2, 3, 5))


def _method(result: RaceResult) -> Iterator[str]:
    verdict, lanes = result.verdict, result.lanes
    machines = {result.machine_of(lane).boot or lane.host for lane in lanes}
    if len(lanes) > 1 and result.mode == TURNS:
        rounds = f"{units.several(result.rounds, 'round')} since a knob or the mode last changed"
        if len(machines) == 1:
            how = "the lanes took turns: one trained at a time, in slices"
        elif len(machines) == len(lanes):
            how = "each lane had its own machine: in every round all trained at the same time, for one slice each"
        else:
            how = "the lanes of each machine took turns, in slices; the machines trained at the same time"
        yield f"{how}, {rounds}; the ratio is taken round by round"
        if any(lane.gpu_busy_pct is not None for lane in lanes):
            yield "GPU busy is over the whole race, other lanes' slices included; CPU is over a lane's own"
    elif len(lanes) > len(machines) > 1:
        yield "all lanes trained at once; lanes of one machine shared its cores, so their figures are contended"
    elif len(machines) == 1 < len(lanes):
        yield "all lanes trained at once and shared the cores: their figures are contended"
    elif len(lanes) > 1:
        yield "all lanes trained at once, each on its own machine"
    yield from (f"{lane.label}: {lane.measured_text}" for lane in lanes if lane.windows)
    if verdict.ratio and verdict.ratio_ci95 and verdict.interval_kind and not result.is_series:
        yield (
            f"95 % confidence interval of the ratio: {units.ratio_in(verdict.ratio, *verdict.ratio_ci95)[1]}, "
            f"{KIND_TEXTS[verdict.interval_kind]}, from {units.several(verdict.pairs or 0, 'pair')}; "
            f"differences below {100 * verdict.margin:g} % count as none"
        )
    elif verdict.contention:
        yield verdict.contention
    if result.between_processes is not None:
        races = units.several(result.between_processes.races, "earlier race")
        yield f"the interval includes how much equal processes differ, as {races} showed"
    most = max((lane.processes or 0 for lane in lanes), default=0)
    if result.fresh and most > 1:
        yield f"fresh processes: {most} of each lane raced, one after the other"
    yield from _view_lines(result)
    unknown = ((lane, *item) for lane in lanes for item in lane.not_measured.items())
    yield from (f"{lane.label}: {figure} not measured: {reason}" for lane, figure, reason in unknown)


def _view_lines(result: RaceResult) -> Iterator[str]:
    views = result.views.values()
    yield from describe({"" if host == HERE else host: view for host, view in result.views.items()})
    yield from collision_lines(result.collisions)
    written = [
        f"{name} {units.several(files, 'file')}, {units.memory(size)}"
        for view in views
        for name, (files, size) in view.written.items()
        if files
    ]
    if written:
        yield f"written by {'; '.join(written)}: tfmon runs --files RUN lists it"
    if edited := ", ".join(name for view in views for name in view.edited):
        yield f"edited in the working folder while the lanes ran, and perhaps seen by them: {edited}"


def _recording_lines(result: RaceResult) -> list[str]:
    path, reason = result.recording, result.recording_stopped
    if reason is None:
        return [] if path is None else [f"recorded in {path}"]
    if path is None:
        return [f"not recorded: {reason}"]
    return [f"recorded in {path} until {units.clock(result.recording_stopped_s or 0.0)}, and no further: {reason}"]


def _settings(result: RaceResult) -> Table | None:
    lanes, defaults = result.lanes, result.defaults
    knobs = list(dict.fromkeys([*result.differing, *(knob for lane in lanes for knob in lane.knobs)]))
    rows = [["knob", *(lane.label for lane in lanes), "default"]]
    for knob in knobs:
        cells = [show(lane.knobs[knob]) if knob in lane.knobs else DASH for lane in lanes]
        rows.append([knob, *cells, show(defaults[knob]) if knob in defaults else DASH])
    marked = [index for index, knob in enumerate(knobs, 1) if knob in result.differing]
    about = "In effect at the end" + ("; lanes differ in what is marked" if marked else "")
    return Table(rows, about, left=range(len(lanes) + 2), marked=marked) if knobs else None


def _machines(result: RaceResult) -> Table:
    rows = [["", ""], *machine_rows(result.machine)]
    for host, state in result.hosts.items():
        rows += [[f"{name} of {host}", value] for name, value in machine_rows(state.machine)]
    rows.append(["tfmon", f"{result.tfmon}, Python {result.python}" if result.python else result.tfmon])
    for lane in result.lanes:
        device = lane.device_name and f"on {lane.device_name}"
        rows.append([lane.label, ", ".join(filter(None, (device, versions_text(lane.versions)))) or DASH])
    rows += [[name, value] for name, value in (result.environment or {}).items()]
    rows += [["scenario file", f"digest {result.source}"]] if result.source else []
    return Table(rows, left=(0, 1))
