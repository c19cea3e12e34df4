"""A sweep in sections, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from tfmon import units
from tfmon.analysis.curve_chart import draw_series
from tfmon.analysis.sweep import BASELINE, OPEN, Found, Row
from tfmon.analysis.sweep_text import answer, curves_of, progress_text, scaling_of, settings_text, troubles
from tfmon.lanes.remote.host import is_ray, word_of
from tfmon.model.knobs import exact, short_name, show
from tfmon.model.sweep import SweepPlan
from tfmon.reports import charts, estimate_json, head, scaling_json, text
from tfmon.reports.charts import Series
from tfmon.reports.experiments import CHART
from tfmon.reports.race import machine_rows, repeated, versions_text
from tfmon.reports.sections import DASH, TROUBLE, VERDICT, Chart, Lines, Note, Report, Section, Table

LEARNS = "* trains differently from the baseline (other {}): a faster step is not all that counts"
"""Stands below a table in which a row is marked."""
AGAINST = "throughput / baseline's"
IDS = "ABCDEFGH"
"""What series of a curve are called; more are in the table."""
MOST_BARS = 40
NUMBERS = ("ratio", "ex/s", "memory")
"""Columns of the table that are aligned to the right."""


def to_json(found: Found, file: str = "") -> dict[str, Any]:
    """Return a sweep as plain values, the best combination first. Units: in the names."""
    state, plan = found.state, found.state.plan
    return {
        **head(),
        "scenario": plan.scenario,
        "over": {knob: list(values) for knob, values in plan.over.items()},
        "baseline": plan.baseline,
        "places": [{"place": place, "device_name": plan.machines.get(place) or None} for place in plan.places],
        "until_ci": plan.until_ci,
        "limit_s": plan.each_s,
        "all": plan.everything,
        "text": answer(found),
        "best": {
            kind: None if (best := found.best(kind)) is None else best.combination.settings for kind in plan.kinds
        },
        "scaling": [scaling_json(one) for one in scaling_of(found)],
        "combinations": [row_json(row) for row in found.ranked],
        "settled": found.settled,
        "lost_places": state.lost,
        "interrupted": state.ended or None,
        "file": file or None,
    }


def row_json(row: Row) -> dict[str, Any]:
    """Return one combination as plain values."""
    known, figures = row.combination, row.combination.figures
    missing = {} if figures is None or not figures.memory_missing else {"memory_bytes": figures.memory_missing}
    return {
        "number": known.number,
        "device": known.kind,
        "settings": known.settings,
        **estimate_json("ratio", row.ratio),
        "interval_kind": row.ratio.kind if row.ratio else None,
        "pairs": len(known.pairs),
        "visits": known.visits,
        "measured_s": known.measured_s,
        "examples_per_s": figures.examples_per_s if figures else None,
        "baseline_examples_per_s": figures.baseline_examples_per_s if figures else None,
        "step_ms": figures.step_ms if figures else None,
        "memory_bytes": figures.memory_bytes if figures else None,
        "bottleneck": figures.bottleneck or None if figures else None,
        "bottleneck_text": figures.bottleneck_text or None if figures else None,
        "place": figures.place if figures else row.place or None,
        "state": row.state,
        "learns_differently_by": list(row.learns),
        "deaths": list(known.deaths),
        "reason": row.reason or None,
        "missing": missing,
    }


def to_csv(found: Found) -> str:
    """Return a sweep as CSV: a line a combination, the best first, and a column for each knob."""
    knobs = list(found.state.plan.over)
    names = (
        "device", "ratio", "ratio_low", "ratio_high", "pairs", "visits", "examples_per_s",
        "baseline_examples_per_s", "step_ms", "memory_bytes", "bottleneck", "place", "state", "reason",
    )  # fmt: skip
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*knobs, *names])
    for row in found.ranked:
        data, ratio = row_json(row), row.ratio
        ends = ("", "", "") if ratio is None else (ratio.value, ratio.low, ratio.high)
        values = {**data, "ratio": ends[0], "ratio_low": ends[1], "ratio_high": ends[2]}
        writer.writerow(
            [*(show(row.combination.settings[knob]) for knob in knobs), *(values[name] for name in names)]
        )
    return out.getvalue().rstrip("\n")


def to_text(found: Found, file: str = "") -> str:
    """Return the answer and the ranking, the best combination first, as plain text."""
    written = text.write(describe(found), brief=True)
    if not file:
        return written
    again = [f"saved in {file}"]
    if any(row.outcome == OPEN for row in found.rows):
        again.append(f"tfmon sweep --resume {file} goes on with it")
    return f"{written}\n\n{'; '.join(again)}"


# ---------------------------------------------------------------- in sections


def describe(found: Found, began: str = "") -> Report:
    """Return the result of a sweep: its ranking, the ratio over its knobs, how and where it was measured."""
    plan = found.state.plan
    over = " × ".join(f"{units.several(len(values), 'value')} of {knob}" for knob, values in plan.over.items())
    where = f"{plan.scenario}: {over} on {', '.join(plan.places)}, against the baseline on the same device"
    return Report(
        f"{plan.scenario}: a sweep of {len(found.rows)} combinations",
        [
            Section("", (Note(where), Note(progress_text(found)))),
            Section("Ranking", (_ranking(found), Lines(reason_lines(found)), Lines(learns_note(found)))),
            Section("Over the knobs", tuple(_charts(found)), long=True),
            Section("How it was measured", (Lines(list(_method(found))),), long=True),
            Section("Settings", (_knobs(plan), *repeated(command_line(plan))), long=True),
            Section("Machine and versions", (_machines(found),), long=True),
        ],
        [*(Note(line, VERDICT) for line in answer(found)), *(Note(line, TROUBLE) for line in troubles(found))],
        began[:16].replace("T", " "),
        hosts=_hosts(plan),
        data=to_json(found),
    )


def _hosts(plan: SweepPlan) -> set[str]:
    """Return the names of machines; a kind of GPU that Ray is asked for is nobody's name."""
    kinds = " ".join(plan.machines.values())
    hosts = [place.rpartition("/")[0] for place in plan.places]
    names = [word_of(host) if is_ray(host) else host.rpartition("@")[2] for host in hosts]
    return {*(name for name in names if name not in kinds), *(one.hostname for one in plan.hardware.values())}


def _ranking(found: Found) -> Table:
    heads, *lines = rows_of(found)
    about = "Ratio: throughput over that of the baseline on the same device"
    left = [place for place, name in enumerate(heads) if name not in NUMBERS]
    return Table([heads, *lines], about, left=left, values=[_values(heads, one) for one in found.ranked])


def _values(heads: Sequence[str], row: Row) -> list[float | None]:
    """Return the numbers behind the cells of a row, to sort by."""
    figures = row.combination.figures
    known = {
        short_name(knob): float(value)
        for knob, value in row.combination.settings.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    known |= {"ratio": row.ratio.value, "95 % interval": row.ratio.low} if row.ratio else {}
    sampled = {"ex/s": figures.examples_per_s, "memory": figures.memory_bytes} if figures else {}
    return [known.get(head, sampled.get(head)) for head in heads]


def _charts(found: Found) -> Iterator[Chart]:
    """Yield the ratio over each knob that is a number; of words, the intervals beside each other."""
    several = len(found.state.plan.kinds) > 1
    for curve in curves_of(found):
        knob, where = curve.knob.replace("_", " "), f" on {curve.kind}" if several else ""
        lines = list(zip(IDS, curve.series, strict=False))
        legend = "; ".join(f"{id}: {settings_text(others)}" for id, (others, _) in lines if others)
        series, spans = [], []
        for place, (id, (others, ratios)) in enumerate(lines):
            known = [(float(at), one) for at, one in zip(curve.values, ratios, strict=True) if one is not None]
            points = [(at, one.value, *units.ratio_in(one.value, one.low, one.high)) for at, one in known]
            series.append(Series(id if others else "", settings_text(others), place, points))
            spans += [(series[-1].key, at, one.low, one.high) for at, one in known]
        if not spans:
            continue
        about = f"Throughput over the baseline's, with 95 % intervals.{f' {legend}.' if legend else ''}"
        title = f"Ratio over {knob}{where}"
        spec = charts.curve(series, AGAINST, knob, f"{title}. {about}", spans=spans)
        drawn = draw_series(curve.values, [ratios for _, (_, ratios) in lines], IDS, *CHART)
        yield Chart(title, about, spec, drawn=drawn.lines if drawn else ())
    bars = [
        (_name(row), one.value, one.low, one.high, "{} ({})".format(*ratio_cells(row)))
        for row in found.ranked[:MOST_BARS]
        if (one := row.ratio) is not None
    ]
    if len(bars) > 1 and not curves_of(found):
        about = "To the baseline, with 95 % intervals; right of the dashed line it is faster."
        yield Chart("Ratios", about, charts.intervals(bars, f"Ratios. {about}", AGAINST))


def _method(found: Found) -> Iterator[str]:
    """Yield how it was measured."""
    plan = found.state.plan
    yield (
        "each combination was raced in turns against the baseline on the same device, in visits with fresh "
        f"processes of both, until its ratio was known to within ±{100 * plan.until_ci:g} % or it had been "
        f"raced for {plan.each_s:g} s"
    )
    if not plan.everything:
        yield "what could not win any more was stopped early: its interval is wider"
    for kind in plan.kinds:
        choices = found.choices[kind]
        yield (
            f"{kind}: the best is chosen from {units.several(choices, 'combination')}, and every interval is "
            f"always valid: each may miss the truth in 1 of {20 * choices} sweeps"
        )
    raced_s = sum(row.combination.measured_s for row in found.rows)
    visits = sum(row.combination.visits for row in found.rows)
    yield f"raced for {units.clock(raced_s)} in all, in {units.several(visits, 'visit')}"


def command_line(plan: SweepPlan) -> str:
    """Return the command that does a sweep again."""
    words = ["tfmon", "sweep"] if plan.command else ["tfmon", "sweep", plan.scenario]
    for knob, swept in plan.over.items():
        words += ["--over", f"{knob}={','.join(map(exact, swept))}"]
    for flag, given in (("--on", plan.words), ("--set", plan.settings)):
        words += [word for one in given for word in (flag, one)]
    numbers = ("--until-ci", 100 * plan.until_ci, "%"), ("--limit", plan.each_s, ""), ("--slice", plan.slice_s, "")
    words += [word for flag, value, unit in numbers for word in (flag, f"{value:g}{unit}")]
    words += ["--all"] if plan.everything else []
    return shlex.join([*words, "--", *plan.command] if plan.command else words)


def _knobs(plan: SweepPlan) -> Table:
    """Return the values of each knob, and the settings of the baseline."""
    rows = [["knob", "values", "baseline"]]
    for knob in dict.fromkeys([*plan.over, *plan.baseline]):
        swept = ", ".join(map(show, plan.over.get(knob, ())))
        rows.append([knob, swept or DASH, show(plan.baseline[knob]) if knob in plan.baseline else DASH])
    return Table(rows, "What is swept is marked", left=range(3), marked=range(1, len(plan.over) + 1))


def _machines(found: Found) -> Table:
    """Return each place with its device, its machine and the versions there."""
    plan = found.state.plan
    figures = (row.combination.figures for row in found.rows)
    versions = {one.place: versions_text(one.versions) for one in figures if one is not None}
    rows = [["", ""]]
    for place in dict.fromkeys(plan.places):
        rows.append([place, plan.machines.get(place) or "unknown"])
        if place in plan.hardware:
            rows += [[f"{place}: {name}", value] for name, value in machine_rows(plan.hardware[place])]
        rows.append([f"{place}: versions", versions.get(place) or "unknown"])
    return Table(rows, left=(0, 1))


def rows_of(found: Found) -> list[list[str]]:
    """Return the ranking as cells, the head first: knobs, device where there are several, figures, state."""
    plan, several = found.state.plan, len(found.state.plan.kinds) > 1
    heads = [
        *map(short_name, plan.over), *(["device"] if several else []),
        "ratio", "95 % interval", "ex/s", "memory", "limited by", "place", "state",
    ]  # fmt: skip
    return [heads, *(_cells(row, several=several) for row in found.ranked)]


def reason_lines(found: Found) -> list[str]:
    """Return why combinations have no figure, or died."""
    return [f"{_name(row)}: {row.state}: {row.reason}" for row in found.ranked if row.reason]


def learns_note(found: Found) -> list[str]:
    """Say which marked ratios are of combinations that train differently; empty if none is marked."""
    marked = [row for row in found.rows if row.ratio is not None and row.outcome != BASELINE]
    learns = dict.fromkeys(knob.replace("_", " ") for row in marked for knob in row.learns)
    return [LEARNS.format(" or ".join(learns))] if learns else []


def _name(row: Row) -> str:
    return " ".join(f"{short_name(knob)} {show(value)}" for knob, value in row.combination.settings.items())


def _cells(row: Row, *, several: bool) -> list[str]:
    known, figures = row.combination, row.combination.figures
    kind = [known.kind] if several else []
    return [
        *(show(value) for value in known.settings.values()),
        *kind,
        *ratio_cells(row),
        units.rate(figures.examples_per_s) if figures and figures.examples_per_s else "–",
        units.memory(figures.memory_bytes) if figures and figures.memory_bytes else "–",
        figures.bottleneck or "–" if figures else "–",
        row.place or (figures.place if figures else "–"),
        row.state
        + (f" ({units.several(len(known.pairs), 'pair')})" if row.outcome == OPEN and known.pairs else ""),
    ]


def ratio_cells(row: Row) -> tuple[str, str]:
    """Return the ratio and its interval; a ratio of what trains differently has a mark."""
    if row.ratio is None:
        return "–", "–"
    if row.outcome == BASELINE:
        return "1×", "by definition"
    factor, interval = units.ratio_in(row.ratio.value, row.ratio.low, row.ratio.high)
    return factor + ("*" if row.learns else ""), interval


def progress_line(found: Found, rows: Sequence[Row] = ()) -> str:
    """Say in one line how far it is, what is measured, and the best so far."""
    now = [f"{_name(row)} on {row.place}" for row in rows or found.rows if row.place]
    bests = [found.best(kind) for kind in found.state.plan.kinds]
    best = [f"best {_name(row)} {ratio_cells(row)[0]}" for row in bests if row and row.ratio and row.ratio.low > 1]
    return "   ".join([progress_text(found), *now[:2], *best])
