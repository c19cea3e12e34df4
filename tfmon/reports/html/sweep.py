"""The sections about a sweep: ranking, ratio over its knobs, throughput against memory, how it was measured."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from tfmon import units
from tfmon.analysis.sweep import BASELINE, Found, Row
from tfmon.analysis.sweep_text import answer, progress_text, settings_text, troubles
from tfmon.model.knobs import KnobValue, exact, short_name, show
from tfmon.model.sweep import SweepPlan
from tfmon.reports.html import charts, maps
from tfmon.reports.html.charts import Series
from tfmon.reports.html.writer import NOTHING, Html, Writer
from tfmon.reports.sweep import NUMBERS, learns_note, ratio_cells, reason_lines, rows_of

DASH = "–"
MOST_CELLS = 400
"""A larger map cannot be read."""
AGAINST = "throughput / baseline's"


def head(writer: Writer, found: Found, began: str) -> Html:
    """Return the title and the best combinations in words."""
    state = found.state
    return Html("".join((
        writer.tag("h1", f"{state.plan.scenario}: a sweep of {len(found.rows)} combinations"),
        writer.tag("p", f"{began[:16].replace('T', ' ')}, {progress_text(found)}", class_="quiet"),
        *(writer.tag("p", line, class_="verdict") for line in answer(found)),
        *(writer.tag("p", line, class_="trouble") for line in troubles(found)),
    )))  # fmt: skip


def sections(writer: Writer, found: Found) -> list[Html]:
    """Return every section about a sweep but its head."""
    plan, several = found.state.plan, len(found.state.plan.kinds) > 1
    parts = [writer.section("Ranking", ranking(writer, found))]
    for kind in plan.kinds:
        rows = [row for row in found.rows if row.combination.kind == kind]
        where = f" on {kind}" if several else ""
        parts.append(writer.section(f"Over the knobs{where}", over_knobs(writer, plan, rows)))
        parts.append(writer.section(f"Throughput against memory{where}", against_memory(writer, rows)))
    parts.append(writer.section("How it was measured", writer.lines(list(method(found)))))
    again = Html(writer.tag("p", "To do it again:") + writer.tag("pre", command_line(plan)))
    places = writer.lines([f"measured on {place}" for place in machines(plan)])
    return [*parts, writer.section("Settings", _knobs(writer, plan), again, places)]


# ---------------------------------------------------------------- the ranking


def ranking(writer: Writer, found: Found) -> Html:
    """Return the table of all combinations, the best first; a head sorts by its column."""
    (*heads, state), *lines = rows_of(found)
    best = {row.number for kind in found.state.plan.kinds for row in front(found.rows, kind)}
    rows = [[*heads, state, "least memory"]]
    for line, row in zip(lines, found.ranked, strict=True):
        rows.append([*line, "yes" if row.number in best else ""])
    about = (
        "Ratio: throughput over that of the baseline on the same device. Least memory: no combination with as "
        "little has more throughput. A head sorts by its column."
    )
    left = [place for place, name in enumerate(rows[0]) if name not in NUMBERS]
    table = writer.table(
        rows, about, left=left, sortable=True, values=[_values(rows[0], one) for one in found.ranked]
    )
    note = learns_note(found)
    return Html(table + writer.lines(reason_lines(found)) + (writer.tag("p", note) if note else NOTHING))


def _values(heads: Sequence[str], row: Row) -> list[float | None]:
    """Return the numbers behind the cells of a row, to sort by."""
    figures = row.combination.figures
    known = {short_name(knob): _number(value) for knob, value in row.combination.settings.items()}
    known |= {"ratio": row.ratio.value, "95 % interval": row.ratio.low} if row.ratio else {}
    known |= {"ex/s": figures.examples_per_s, "memory": figures.memory_bytes} if figures else {}
    return [known.get(head) for head in heads]


def front(rows: Sequence[Row], kind: str) -> list[Row]:
    """Return the combinations on a kind of device that none with as little memory beats, from the least memory."""
    known = [row for row in rows if row.combination.kind == kind and _memory(row) is not None and row.ratio]
    best: list[Row] = []
    for row in sorted(known, key=lambda one: (_memory(one), -_ratio(one))):
        if not best or _ratio(row) > _ratio(best[-1]):
            best.append(row)
    return best


def _memory(row: Row) -> float | None:
    return row.combination.figures.memory_bytes if row.combination.figures else None


def _ratio(row: Row) -> float:
    return row.ratio.value if row.ratio else 0.0


def _number(value: KnobValue) -> float | None:
    """Return the value of a knob that is a number above 0; None for any other."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


# ---------------------------------------------------------------- charts


def over_knobs(writer: Writer, plan: SweepPlan, rows: Sequence[Row]) -> Html:
    """Return the ratio over the values of the knobs: a curve, a map, or intervals beside each other."""
    if not any(row.ratio for row in rows if row.outcome != BASELINE):
        return NOTHING
    if len(plan.over) > 1:
        return _map(writer, plan, rows)
    ((knob, knob_values),) = plan.over.items()
    name, known = knob.replace("_", " "), [row for row in rows if row.ratio is not None]
    if any(_number(value) is None for value in knob_values):
        about = "To the baseline, with 95 % intervals; right of the dashed line it is faster."
        bars = [
            (show(row.combination.settings[knob]), one.value, one.low, one.high, _words(row))
            for row in known
            if (one := row.ratio) is not None
        ]
        return writer.figure(f"Ratio over {name}", about, charts.intervals(bars, f"Over {name}. {about}", AGAINST))
    points, spans = [], []
    for row in sorted(known, key=lambda one: float(one.combination.settings[knob])):
        at = float(row.combination.settings[knob])
        points.append((at, _ratio(row), ratio_cells(row)[0], ratio_cells(row)[1]))
        if row.ratio is not None:
            spans.append(("", at, row.ratio.low, row.ratio.high))
    about = "To the baseline, with 95 % intervals."
    spec = charts.curve(
        [Series("", settings_text(plan.baseline), 0, points)],
        AGAINST,
        name,
        f"Ratio over {name}. {about}",
        spans=spans,
    )
    return writer.figure(f"Ratio over {name}", about, spec)


def _map(writer: Writer, plan: SweepPlan, rows: Sequence[Row]) -> Html:
    """Return the map over the two knobs with the most values; a cell stands for the best of all others."""
    across, down = sorted(plan.over, key=lambda knob: -len(plan.over[knob]))[:2]
    if len(plan.over[across]) * len(plan.over[down]) > MOST_CELLS:
        return NOTHING
    fields: dict[tuple[KnobValue, KnobValue], Row] = {}
    for row in sorted(rows, key=_ratio):  # the best of those at a place comes last
        fields[row.combination.settings[across], row.combination.settings[down]] = row
    places = [(x, y) for y in plan.over[down] for x in plan.over[across]]
    cells = [
        maps.Cell(
            show(at[0]),
            show(at[1]),
            fields[at].ratio,
            ratio_cells(fields[at])[0],
            settings_text(fields[at].combination.settings),
            _words(fields[at]),
        )
        for at in places
    ]
    more = "; a field stands for the best of the other knobs" if len(plan.over) > 2 else ""
    about = f"To the baseline: lighter is faster{more}."
    names = across.replace("_", " "), down.replace("_", " ")
    return writer.figure(f"Ratio over {names[0]} and {names[1]}", about, maps.heat(cells, names, about))


def _words(row: Row) -> str:
    """Return the ratio of a combination with its interval, or why there is none."""
    factor, interval = ratio_cells(row)
    return f"{factor} ({interval})" if row.ratio else f"{row.state}: {row.reason}" if row.reason else row.state


def against_memory(writer: Writer, rows: Sequence[Row]) -> Html:
    """Return the ratio of each combination against its memory; nothing where no memory is known."""
    known = [(row, memory) for row in rows if row.ratio and (memory := _memory(row)) is not None]
    if not known:
        return NOTHING
    unit, scale = ("GiB", 2.0**30) if max(memory for _, memory in known) >= 2.0**32 else ("MiB", 2.0**20)
    best = {row.number for row in front([row for row, _ in known], known[0][0].combination.kind)}
    points = [
        maps.Point(
            settings_text(row.combination.settings),
            float(f"{memory / scale:.5g}"),
            _ratio(row),
            _words(row),
            row.number in best,
        )
        for row, memory in sorted(known, key=lambda one: one[1])
    ]
    about = (
        "Memory of the GPU, or of the process on the CPU. Filled: no other combination with as little memory has "
        "more throughput, by the middle of the intervals. Those without a figure are not shown."
    )
    spec = maps.scatter(points, f"memory, {unit}", AGAINST, about)
    return writer.figure("All combinations", about, spec)


# ---------------------------------------------------------------- method and settings


def method(found: Found) -> Iterator[str]:
    """Yield how it was measured."""
    plan = found.state.plan
    yield (
        "Each combination was raced in turns against the baseline on the same device, in visits with fresh "
        f"processes of both, until its ratio was known to within ±{100 * plan.until_ci:g} % or it had been "
        f"raced for {plan.each_s:g} s."
    )
    if not plan.everything:
        yield "What could not win any more was stopped early: its interval is wider."
    for kind in plan.kinds:
        choices = found.choices[kind]
        yield (
            f"{kind}: the best is chosen from {choices} combinations, and every interval is always valid: each "
            f"may miss the truth in 1 of {20 * choices} sweeps."
        )
    raced_s = sum(row.combination.measured_s for row in found.rows)
    visits = sum(row.combination.visits for row in found.rows)
    yield f"Raced for {units.clock(raced_s)} in all, in {visits} visits."


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


def _knobs(writer: Writer, plan: SweepPlan) -> Html:
    """Return the values of each knob, and the settings of the baseline."""
    rows = [["knob", "values", "baseline"]]
    for knob in dict.fromkeys([*plan.over, *plan.baseline]):
        swept = ", ".join(map(show, plan.over.get(knob, ())))
        rows.append([knob, swept or DASH, show(plan.baseline[knob]) if knob in plan.baseline else DASH])
    swept_rows = range(1, len(plan.over) + 1)
    return writer.table(rows, "What is swept is marked", left=range(3), marked=swept_rows)


def machines(plan: SweepPlan) -> list[str]:
    """Return each place with what it is."""
    return [f"{place}: {plan.machines[place]}" if plan.machines.get(place) else place for place in plan.places]
