"""A sweep in sections, and how far it is in one line."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from tfmon import units
from tfmon.analysis.series_tables import progress_text, ratio_texts, sweep_table
from tfmon.analysis.sweep import BASELINE, OPEN, Found, SweepRow
from tfmon.lanes.remote.host import is_ray, word_of
from tfmon.model.knobs import exact, short_name, show
from tfmon.model.series import SweepPlan
from tfmon.reports import text
from tfmon.reports.experiments import charts_of, table_of
from tfmon.reports.race import machine_rows, repeated, versions_text
from tfmon.reports.sections import DASH, TROUBLE, VERDICT, Lines, Note, Report, Section, Table
from tfmon.reports.series_json import sweep_to_json

LEARNS = "* trains differently from the baseline (other {}): a faster step is not all that counts"
"""Stands below a table in which a row is marked."""


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
    plan, table = found.state.plan, sweep_table(found)
    over = " × ".join(f"{units.several(len(values), 'value')} of {knob}" for knob, values in plan.over.items())
    where = f"{plan.scenario}: {over} on {', '.join(plan.places)}, against the baseline on the same device"
    ranking = table_of(table, "Ratio: throughput over that of the baseline on the same device")
    return Report(
        f"{plan.scenario}: a sweep of {len(found.rows)} combinations",
        [
            Section("", (Note(where), Note(progress_text(found)))),
            Section("Ranking", (ranking, Lines(learns_note(found)))),
            Section("Over the knobs", list(charts_of(table)), long=True),
            Section("How it was measured", (Lines(list(_method(found))),), long=True),
            Section("Settings", (_knobs(plan), *repeated(command_line(plan))), long=True),
            Section("Machine and versions", (_machines(found),), long=True),
        ],
        [*(Note(line, VERDICT) for line in table.answer), *(Note(line, TROUBLE) for line in table.troubles)],
        began[:16].replace("T", " "),
        hosts=_hosts(plan),
        data=sweep_to_json(found),
    )


def _hosts(plan: SweepPlan) -> set[str]:
    """Return the names of machines; a kind of GPU that Ray is asked for is nobody's name."""
    kinds = " ".join(plan.machines.values())
    hosts = [place.rpartition("/")[0] for place in plan.places]
    names = [word_of(host) if is_ray(host) else host.rpartition("@")[2] for host in hosts]
    return {*(name for name in names if name not in kinds), *(one.hostname for one in plan.hardware.values())}


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


def learns_note(found: Found) -> list[str]:
    """Say which marked ratios are of combinations that train differently; empty if none is marked."""
    marked = [row for row in found.rows if row.ratio is not None and row.outcome != BASELINE]
    learns = dict.fromkeys(knob.replace("_", " ") for row in marked for knob in row.learns)
    return [LEARNS.format(" or ".join(learns))] if learns else []


def _name(row: SweepRow) -> str:
    return " ".join(f"{short_name(knob)} {show(value)}" for knob, value in row.combination.settings.items())


def progress_line(found: Found) -> str:
    """Say in one line how far it is, what is measured, and the best so far."""
    now = [f"{_name(row)} on {row.place}" for row in found.rows if row.place]
    bests = [found.best(kind) for kind in found.state.plan.kinds]
    best = [f"best {_name(row)} {ratio_texts(row)[0]}" for row in bests if row and row.ratio and row.ratio.low > 1]
    return "   ".join([progress_text(found), *now[:2], *best])


def happened(before: Found, found: Found) -> Iterator[str]:
    """Yield a line for each combination that is settled since, and for each process and place that is lost."""
    several = len(found.state.plan.kinds) > 1
    for old, row in zip(before.rows, found.rows, strict=True):
        name = _name(row) + (f" on {row.combination.kind}" if several else "")
        lost = row.combination.deaths[len(old.combination.deaths) :]
        again = lost[:-1] if row.combination.failed else lost
        yield from (f"{name}: {why}; it is tried again" for why in again)
        if old.outcome == OPEN != row.outcome:
            ratio = "{} ({}), ".format(*ratio_texts(row)) if row.ratio else ""
            yield f"{name}: {ratio}{row.state}{f': {row.reason}' if row.reason else ''}"
    for place, why in found.state.lost.items():
        if place not in before.state.lost:
            yield f"{place} is not used any more: {why}"
