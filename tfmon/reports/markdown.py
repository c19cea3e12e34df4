"""The result of a race or a sweep as Markdown: the verdict, a table, and what it was measured on. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from tfmon import units
from tfmon.analysis.analysis import Analysis, LaneAnalysis
from tfmon.analysis.finish import finish_lines
from tfmon.analysis.sweep import Found
from tfmon.analysis.sweep_text import answer, progress_text, troubles
from tfmon.errors import TfmonError
from tfmon.recordings.header import Header
from tfmon.reports import history_table
from tfmon.reports.html import sweep
from tfmon.reports.html.report import Wanted, race_hider, sweep_hider
from tfmon.reports.race import cells
from tfmon.reports.sweep import NUMBERS, learns_note, rows_of

_HEADS = ("lane", "examples/s", "95 % CI", "step p50", "p95", "loss", "memory", "CPU", "bottleneck")
Table: TypeAlias = Sequence[Sequence[str]]
MOST_ROWS = 40
"""Most combinations in a table that is pasted."""
_SPECIAL = re.compile(r"([\\`*\[\]<>|~#]|(?<![^\W_])_|_(?![^\W_]))")
"""What Markdown would take for markup; not `_` within a word."""


def to_markdown(found: Analysis, header: Header, wanted: Wanted) -> str:
    """Return the result as Markdown; without names of hosts and users, unless everything is wanted."""
    snapshot, verdict = found.snapshot, found.verdict
    troubles = [f"{one.lane.title}: {one.lane.trouble.message}" for one in found.lanes if one.lane.trouble]
    notes = [verdict.note, *finish_lines(snapshot), snapshot.race.interrupted, *troubles]
    notes += [_measured(found), header.recorded_on]
    try:
        again = wanted.again(snapshot)
    except TfmonError as error:
        again, notes = "", [*notes, f"no command line repeats it: {error.line}"]
    lanes: Table = [_HEADS, *map(_cells, found.lanes)]
    verdicts = [*filter(None, [found.earlier]), verdict.text]
    return _written(
        verdicts, [(lanes, (0, 8)), (history_table(found), range(6))], notes, again, race_hider(wanted, snapshot)
    )


def sweep_to_markdown(found: Found, wanted: Wanted) -> str:
    """Return the ranking of a sweep as Markdown; without names of hosts, unless everything is wanted."""
    plan = found.state.plan
    heads, *rows = rows_of(found)
    more = len(rows) - MOST_ROWS
    notes = [
        f"{plan.scenario}: {progress_text(found)}",
        *troubles(found),
        f"… and {more} more combinations" if more > 0 else "",
        learns_note(found),
        f"measured on {'; '.join(sweep.machines(plan))}",
    ]
    left = [place for place, name in enumerate(heads) if name not in NUMBERS]
    hide, again = sweep_hider(found, wanted), sweep.command_line(plan)
    return _written(answer(found), [([heads, *rows[:MOST_ROWS]], left)], notes, again, hide)


def _written(
    verdicts: Sequence[str],
    tables: Sequence[tuple[Table, Collection[int]]],
    notes: Sequence[str],
    again: str,
    hide: Callable[[str], str],
) -> str:
    """Return verdicts, tables with the places of their columns of words, notes, and the command that does it."""

    def text(words: str) -> str:
        return _SPECIAL.sub(r"\\\1", hide(" ".join(words.split())))

    lines = [line for verdict in verdicts for line in (f"**{text(verdict)}**", "")]
    for table, left in tables:
        for heads, *rows in [table] if table else []:
            ruled = [heads, ["---" if place in left else "---:" for place in range(len(heads))]]
            ruled += [[text(cell) for cell in row] for row in rows]
            lines += [*("| " + " | ".join(row) + " |" for row in ruled), ""]
    lines += [f"- {text(note)}" for note in notes if note]
    if again := hide(again):
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", again)), default=0))
        lines += ["", fence, again, fence]
    return "\n".join(lines) + "\n"


def _cells(found: LaneAnalysis) -> tuple[str, ...]:
    lane, speed = found.lane, found.speed
    rate, _, *more, _ = cells(lane)
    between = "n/a" if speed is None else f"{units.rate(speed.low)} to {units.rate(speed.high)}"
    bottleneck = found.bottleneck.text if found.bottleneck else "n/a"
    return (f"{lane.spec.id} {lane.title}".strip(), rate, between, *more, bottleneck)


def _measured(found: Analysis) -> str:
    """Say how it was measured."""
    race = found.snapshot.race
    parts = [
        f"{one.lane.spec.id or one.lane.title} measured for {units.seconds(one.lane.steady.span_ns / 1e9)}, "
        f"{units.discarded(one.lane.discarded_shares)}"
        for one in found.lanes
    ]
    return f"{race.scenario}, lanes in mode {race.mode}; {'; '.join(parts)}"
