"""Reports of series."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.analysis.series_layout import SeriesTable, draw_curve
from tfmon.analysis.series_tables import answer as sweep_answer
from tfmon.analysis.series_tables import (
    baseline_text,
    crossover_json,
    crossover_table,
    estimate_json,
    progress_text,
    ratio_json,
    ratio_texts,
    scaling_of,
    sweep_table,
    tuning_json,
    tuning_table,
)
from tfmon.analysis.sweep_ranking import BASELINE, OPEN, Ranking, SweepRow, rank
from tfmon.analysis.tuning_trials import change_text
from tfmon.analysis.verdict_notes import Scaling
from tfmon.lanes.remote.remote_host import is_ray, word_of
from tfmon.model.knobs import exact, show
from tfmon.model.series import SeriesPlan
from tfmon.recordings import sweeps
from tfmon.reports import (
    DASH,
    TROUBLE,
    VERDICT,
    Block,
    Chart,
    Code,
    Lines,
    Note,
    NoteKind,
    Report,
    Section,
    Table,
    charts,
    common_keys,
    machine_rows,
    minute,
    recording_json,
    repeated,
    text,
    versions_text,
)

CHART = (90, 16)


def _table_of(table: SeriesTable, about: str = "") -> Table:
    left = [index for index, column in enumerate(table.columns) if not column.right]
    rows = [[text for text, _ in row.cells] for row in table.rows]
    values = [[_number(value) for _, value in row.cells] for row in table.rows]
    return Table([[column.name for column in table.columns], *rows], about, left=left, values=values)


def _number(value: object) -> float | None:
    if isinstance(value, tuple):
        value = value[1] if value[0] == 0 else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _charts_of(table: SeriesTable) -> Iterator[Chart]:
    for curve in table.curves:
        if any(point is not None for line in curve.lines for point in line.points):
            legend = "; ".join(f"{line.id}: {line.name}" for line in curve.lines if line.name)
            about = f"{curve.about} {legend}." if legend else curve.about
            drawn = ["".join(text for text, _ in row).rstrip() for row in draw_curve(curve, *CHART)]
            yield Chart(curve.title, about, charts.curve(curve, about), drawn=drawn)


def answer(analysis: Analysis) -> Iterator[Note | Code]:
    """Yield the result of a crossover or tuning, if the race was started for this series."""
    table = (crossover_table(analysis) or tuning_table(analysis)) if analysis.is_series else None
    if table is not None:
        yield from _answer_blocks(table, VERDICT)


def crossover(analysis: Analysis) -> tuple[Block, ...]:
    """Return the curve of the last crossover."""
    table = crossover_table(analysis)
    if table is None:
        return ()
    rows = _table_of(table)
    drawn: list[Block] = [replace(chart, about=table.curves[0].about, table=rows) for chart in _charts_of(table)]
    return (*(drawn or [rows]), Lines([f"{line.id}: {line.name}" for line in table.curves[0].lines]))


def tuning(analysis: Analysis) -> tuple[Block, ...]:
    """Return the tried changes and the best change."""
    table = tuning_table(analysis)
    if table is None:
        return ()
    tried = (_table_of(table),) if table.rows else ()
    return (*tried, *([] if analysis.is_series else _answer_blocks(table)))


def _answer_blocks(table: SeriesTable, kind: NoteKind = "") -> Iterator[Note | Code]:
    yield from (Note(line, kind) for line in table.answer)
    if table.code:
        yield Code("\n".join(table.code))
    yield from map(Note, table.notes)


LEARNS = "* trains differently from the baseline (other {}): a faster step is not all that counts"


def to_text(ranking: Ranking, file: str = "") -> str:
    """Return the ranking, the best first."""
    written = text.write(describe(ranking), brief=True)
    if not file:
        return written
    again = f"; tfmon sweep --resume {file} continues it" if ranking.settled < len(ranking.rows) else ""
    return f"{written}\n\nsaved in {file}{again}"


def describe(ranking: Ranking, began: str = "") -> Report:
    """Return a sweep in sections."""
    plan, table = ranking.state.plan, sweep_table(ranking)
    over = " × ".join(f"{units.several(len(values), 'value')} of {knob}" for knob, values in plan.over.items())
    places = f"{', '.join(plan.places)}, against {baseline_text(ranking)} on the same device"
    summary = f"{plan.scenario}: {over} on {places}"
    marked = [row for row in ranking.rows if row.ratio is not None and row.outcome != BASELINE]
    learns = dict.fromkeys(knob.replace("_", " ") for row in marked for knob in row.learns)
    note = [LEARNS.format(" or ".join(learns))] if learns else []
    table_block = _table_of(table, "Ratio: throughput over that of the baseline on the same device")
    return Report(
        f"{plan.scenario}: a sweep of {len(ranking.rows)} combinations",
        [
            Section("", (Note(summary), Note(progress_text(ranking)))),
            Section("Ranking", (table_block, Lines(note))),
            Section("Over the knobs", list(_charts_of(table)), long=True),
            Section("How it was measured", (Lines(list(_method(ranking))),), long=True),
            Section("Settings", (_knobs(plan), *repeated(command_line(plan))), long=True),
            Section("Machine and versions", (_machines(ranking),), long=True),
        ],
        [*(Note(line, VERDICT) for line in table.answer), *(Note(line, TROUBLE) for line in table.troubles)],
        minute(began),
        hosts=_hosts(plan),
        data=sweep_to_json(ranking),
    )


def of_sweep(path: Path) -> Report:
    """Return the report of a sweep; raises TfmonError."""
    described = describe(rank(sweeps.read(path)), sweeps.began(path))
    return replace(described, data={**described.data, "file": path.name})


def _hosts(plan: SeriesPlan) -> set[str]:
    """Return the names of machines, without Ray's kinds of GPU."""
    kinds = " ".join(plan.machines.values())
    hosts = [device.rpartition("/")[0] for device in plan.places]
    names = [word_of(host) if is_ray(host) else host.rpartition("@")[2] for host in hosts]
    return {name for name in names if name not in kinds} | {machine.hostname for machine in plan.hardware.values()}


def _method(ranking: Ranking) -> Iterator[str]:
    plan = ranking.state.plan
    yield (
        "each combination was raced in turns against the baseline on the same device, in visits with fresh "
        f"processes of both, until its ratio was known to within ±{100 * plan.until_ci:g} % or it had been "
        f"raced for {plan.each_s:g} s"
    )
    if not plan.everything:
        yield "what could not win any more was stopped early: its interval is wider"
    for kind in plan.kinds:
        choices = ranking.choices[kind]
        yield (
            f"{kind}: the best is chosen from {units.several(choices, 'combination')}, and every interval is "
            f"always valid: each may miss the truth in 1 of {20 * choices} sweeps"
        )
    raced_s = sum(row.attempt.measured_s for row in ranking.rows)
    visits = sum(row.attempt.visits for row in ranking.rows)
    yield f"raced for {units.clock(raced_s)} in all, in {units.several(visits, 'visit')}"


def command_line(plan: SeriesPlan) -> str:
    """Return the command for a sweep."""
    argv = ["tfmon", "sweep"] if plan.command else ["tfmon", "sweep", plan.scenario]
    for knob, swept in plan.over.items():
        argv += ["--over", f"{knob}={','.join(map(exact, swept))}"]
    for flag, option_values in (("--on", plan.words), ("--set", plan.settings)):
        argv += [word for option in option_values for word in (flag, option)]
    numbers = ("--until-ci", 100 * plan.until_ci, "%"), ("--limit", plan.each_s, ""), ("--slice", plan.slice_s, "")
    argv += [word for flag, value, unit in numbers for word in (flag, f"{value:g}{unit}")]
    argv += ["--all"] if plan.everything else []
    return shlex.join([*argv, "--", *plan.command] if plan.command else argv)


def _knobs(plan: SeriesPlan) -> Table:
    rows = [["knob", "values", "baseline"]]
    for knob in dict.fromkeys([*plan.over, *plan.baseline]):
        swept = ", ".join(map(show, plan.over.get(knob, ())))
        rows.append([knob, swept or DASH, show(plan.baseline[knob]) if knob in plan.baseline else DASH])
    return Table(rows, "What is swept is marked", left=range(3), marked=range(1, len(plan.over) + 1))


def _machines(ranking: Ranking) -> Table:
    plan = ranking.state.plan
    measured = (row.figures for row in ranking.rows if row.attempt.figures is not None)
    versions = {figures.place: versions_text(figures.versions) for figures in measured}
    rows = [["", ""]]
    for device in dict.fromkeys(plan.places):
        rows.append([device, plan.machines.get(device) or "unknown"])
        if device in plan.hardware:
            rows += [[f"{device}: {name}", value] for name, value in machine_rows(plan.hardware[device])]
        rows.append([f"{device}: versions", versions.get(device) or "unknown"])
    return Table(rows, left=(0, 1))


def progress_line(ranking: Ranking) -> str:
    """Return the progress and the present best."""
    now = [f"{change_text(row.attempt)} on {row.place}" for row in ranking.rows if row.place]
    bests = [ranking.best(kind) for kind in ranking.state.plan.kinds]
    best = [
        f"best {change_text(row.attempt)} {ratio_texts(row)[0]}"
        for row in bests
        if row and row.ratio and row.ratio.low > 1
    ]
    return "   ".join([progress_text(ranking), *now[:2], *best])


def happened(before: Ranking, ranking: Ranking, told: dict[int, str]) -> Iterator[str]:
    """Yield a line for each settled combination and each lost device.

    `told` has the last line of each settled combination, which can be open again for a moment.
    """
    several = len(ranking.state.plan.kinds) > 1
    for old, row in zip(before.rows, ranking.rows, strict=True):
        name = change_text(row.attempt) + (f" on {row.attempt.kind}" if several else "")
        lost = row.attempt.deaths[len(old.attempt.deaths) :]
        again = lost[:-1] if row.attempt.failed else lost
        yield from (f"{name}: {reason}; it is tried again" for reason in again)
        if old.outcome == OPEN != row.outcome:
            ratio = "{} ({}), ".format(*ratio_texts(row)) if row.ratio else ""
            line = f"{name}: {ratio}{row.state}{f': {row.reason}' if row.reason else ''}"
            if told.get(row.attempt.number) != line:
                told[row.attempt.number] = line
                yield line
    for device, reason in ranking.state.lost.items():
        if device not in before.state.lost:
            yield f"{device} is not used any more: {reason}"


def series_to_json(analysis: Analysis) -> dict[str, Any]:
    """Return a crossover or tuning as JSON."""
    part, recording = crossover_json(analysis) or tuning_json(analysis) or {}, recording_json(analysis.snapshot)
    return {**common_keys(), "scenario": analysis.snapshot.race.scenario, **part, **recording}


def sweep_to_json(ranking: Ranking, file: str = "") -> dict[str, Any]:
    """Return a sweep as JSON."""
    state, plan = ranking.state, ranking.state.plan
    return {
        **common_keys(),
        "scenario": plan.scenario,
        "over": {knob: list(values) for knob, values in plan.over.items()},
        "baseline": {**ranking.baseline, **plan.baseline},
        "places": [{"place": device, "device_name": plan.machines.get(device) or None} for device in plan.places],
        "until_ci": plan.until_ci,
        "limit_s": plan.each_s,
        "all": plan.everything,
        "text": sweep_answer(ranking),
        "best": {
            kind: best.attempt.settings if (best := ranking.best(kind)) and best.span[0] >= 1 else None
            for kind in plan.kinds
        },
        "scaling": [_scaling_json(scaling) for scaling in scaling_of(ranking)],
        "combinations": [_combination_json(row) for row in ranking.ranked],
        "settled": ranking.settled,
        "lost_places": state.lost,
        "interrupted": state.ended or None,
        "file": file or None,
    }


FIGURES = (
    "examples_per_s", "baseline_examples_per_s", "step_ms", "memory_bytes", "bottleneck", "bottleneck_text",
    "place",
)  # fmt: skip


def _combination_json(row: SweepRow) -> dict[str, Any]:
    known, figures = row.attempt, row.figures
    return {
        "number": known.number,
        "device": known.kind,
        "settings": known.settings,
        **ratio_json("ratio", row.ratio),
        "pairs": len(known.pairs),
        "visits": known.visits,
        "measured_s": known.measured_s,
        **{name: None if (figure := getattr(figures, name)) == "" else figure for name in FIGURES},
        "state": row.state,
        "learns_differently_by": list(row.learns),
        "deaths": list(known.deaths),
        "reason": row.reason or None,
        "missing": {"memory_bytes": figures.memory_missing} if figures.memory_missing else {},
    }


def _scaling_json(scaling: Scaling) -> dict[str, Any]:
    return {
        "devices": scaling.devices,
        "over_devices": scaling.over,
        **estimate_json("ratio", scaling.ratio),
        "of_linear": scaling.of_linear,
    }
