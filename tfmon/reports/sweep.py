"""A sweep as a table, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from tfmon import units
from tfmon.analysis.sweep import BASELINE, OPEN, Found, Row
from tfmon.analysis.sweep_text import answer, progress_text, scaling_of, troubles
from tfmon.model.knobs import short_name, show
from tfmon.reports import estimate_json, head, scaling_json, table

LEARNS = "* trains differently from the baseline (other {}): a faster step is not all that counts"
"""Stands below a table in which a row is marked."""
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
    """Return the answer and the table, the best combination first, as plain text."""
    plan = found.state.plan
    over = " × ".join(f"{len(values)} {knob}" for knob, values in plan.over.items())
    lines = [f"{plan.scenario}: {over} on {', '.join(plan.places)}, against the baseline on the same device"]
    lines += answer(found)
    lines += troubles(found)
    lines += [progress_text(found), ""]
    rows = rows_of(found)
    lines += table(rows, right=[place for place, name in enumerate(rows[0]) if name in NUMBERS])
    for below in (reason_lines(found), [note] if (note := learns_note(found)) else []):
        lines += ["", *below] if below else []
    if file:
        again = [f"saved in {file}"]
        if any(row.outcome == OPEN for row in found.rows):
            again.append(f"tfmon sweep --resume {file} goes on with it")
        lines += ["", "; ".join(again)]
    return "\n".join(lines)


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


def learns_note(found: Found) -> str:
    """Say which ratios are of combinations that learn something else; empty if none is."""
    learns = dict.fromkeys(knob.replace("_", " ") for row in found.rows for knob in row.learns)
    return LEARNS.format(" or ".join(learns)) if learns else ""


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
