"""`tfmon diff`: two recorded races compared."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

import tfmon
from tfmon import units
from tfmon.cli import options

if TYPE_CHECKING:
    from tfmon.model.lane_state import LaneState
    from tfmon.recordings.compare import Change, Comparison, Side


@click.command()
@click.argument("first")
@click.argument("second")
@options.as_json
def diff(first: str, second: str, as_json: bool) -> None:
    """Compare the recorded race SECOND with FIRST: how much faster each lane was, and what was different.

    Both are files, ids of runs or how they begin, `last`, or `last~1` for the one before it.
    """
    from tfmon.recordings.compare import compare

    one, other = _side(first), _side(second)
    comparison = compare(one, other)
    if as_json:
        click.echo(json.dumps(to_json(comparison), indent=2, allow_nan=False))
    else:
        click.echo(to_text(comparison))


def _side(word: str) -> Side:
    from tfmon.recordings.compare import Side
    from tfmon.recordings.library import find, run_id
    from tfmon.recordings.player import play_all
    from tfmon.recordings.reader import guard

    path = find(word)
    with guard(path):
        opened, end = play_all(path)
    if opened.torn:
        click.echo(f"tfmon: {path} is cut off at its end; this is what it holds", err=True)
    return Side(run_id(path), opened.header, end)


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as plain values. Units: throughput in examples/s, intervals at 95 %."""

    def side(one: Side) -> dict[str, Any]:
        return {"id": one.id, "scenario": one.header.scenario, "started": one.header.started}

    def change(one: Change | None) -> dict[str, Any]:
        interval = None if one is None or one.low is None else [one.low, one.high]
        return {"ratio": one.ratio if one else None, "ratio_ci95": interval}

    return {
        "schema": 1,
        "tfmon": tfmon.__version__,
        "first": side(comparison.first),
        "second": side(comparison.second),
        "lanes": [
            {
                "first": pair.first.title,
                "second": pair.second.title,
                "examples_per_s": [_speed(pair.first), _speed(pair.second)],
                **change(pair.change),
            }
            for pair in comparison.lanes
        ],
        "alone": list(comparison.alone),
        "verdict": change(comparison.verdict),
        "differences": [
            {"about": one.about, "what": one.what, "first": one.first, "second": one.second}
            for one in comparison.differences
        ],
        "notes": list(comparison.notes),
    }


def to_text(comparison: Comparison) -> str:
    """Return the comparison as tables of plain text."""
    first, second = comparison.first, comparison.second
    lines = [f"first   {_named(first)}", f"second  {_named(second)}", ""]
    speeds = [["examples/s", "first", "second", "second / first", ""]]
    for pair in comparison.lanes:
        titles = dict.fromkeys((pair.first.title, pair.second.title))
        cells = [units.rate(speed) if (speed := _speed(lane)) else "n/a" for lane in (pair.first, pair.second)]
        speeds.append([" / ".join(titles), *cells, *_written(pair.change)])
    if comparison.verdict is not None:
        speeds.append(["ratio of the lanes", "", "", *_written(comparison.verdict)])
    lines += [*_table(speeds), *comparison.alone, *comparison.notes, ""]
    if not comparison.differences:
        return "\n".join([*lines, "scenario, knobs, versions, machine and environment are the same"])
    rows = [["different", "", "first", "second"]]
    about = ""
    for one in comparison.differences:
        rows.append([one.about if one.about != about else "", one.what, one.first, one.second])
        about = one.about
    return "\n".join(lines + _table(rows))


def _named(side: Side) -> str:
    return f"{side.id}  {side.header.scenario}, {side.header.started[:16].replace('T', ' ')}"


def _speed(lane: LaneState) -> float | None:
    return lane.steady.examples_per_s


def _written(change: Change | None) -> list[str]:
    if change is None:
        return ["n/a", ""]
    if change.low is None or change.high is None:
        return [units.ratio(change.ratio), "no interval"]
    factor, interval = units.ratio_in(change.ratio, change.low, change.high)
    return [factor, f"95 % CI {interval}" + ("" if change.sure else ": too close to call")]


def _table(rows: list[list[str]]) -> list[str]:
    """Return rows as lines, their columns as wide as they must be."""
    from rich.cells import cell_len, set_cell_size

    widths = [max(cell_len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(set_cell_size(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
