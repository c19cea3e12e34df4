"""`tfmon runs`: the races that were recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfmon import units

if TYPE_CHECKING:
    from tfmon.recordings.header import Closed, Header


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def runs(as_json: bool) -> None:
    """List the recorded races, the latest last.

    tfmon replay, diff and export take their ids, how these begin, `last`, and `last~1` for the one before it.
    """
    from tfmon.recordings.header import RecordingError
    from tfmon.recordings.library import LIMIT_BYTES, folder, recordings, run_id
    from tfmon.recordings.reader import peek

    rows: list[dict[str, Any]] = []
    for path in recordings():
        try:
            rows.append(_row(path, *peek(path)))
        except RecordingError as error:
            rows.append({"id": run_id(path), "path": str(path), "unreadable": error.message})
    if as_json:
        click.echo(json.dumps(rows, indent=2, allow_nan=False))
        return
    if not rows:
        click.echo(f"no race was recorded in {folder()} yet")
        return
    width = max(len(row["id"]) for row in rows)
    for row in rows:
        click.echo(f"{row['id']:{width}}  {_line(row)}")
    total = sum(row.get("bytes", 0) for row in rows)
    click.echo(
        f"\n{units.memory(total)} of {units.memory(LIMIT_BYTES)} in {folder()}; the oldest are dropped first"
    )


def _row(path: Path, header: Header, closed: Closed | None) -> dict[str, Any]:
    from tfmon.recordings.library import run_id

    return {
        "id": run_id(path),
        "path": str(path),
        "bytes": path.stat().st_size,
        "started": header.started,
        "scenario": header.scenario,
        "mode": header.mode,
        "lanes": [lane.name for lane in header.lanes],
        "hostname": header.machine.hostname,
        "tfmon": header.tfmon,
        "tensorflow": (closed.tensorflow if closed else None) or header.tensorflow,
        "closed": closed is not None,
        "seconds": closed.seconds if closed else None,
        "ratio": closed.ratio if closed else None,
        "verdict": closed.verdict if closed else None,
    }


def _line(row: dict[str, Any]) -> str:
    if "unreadable" in row:
        return str(row["unreadable"])
    lasted = units.clock(row["seconds"]) if row["seconds"] is not None else "–"
    verdict = row["verdict"] or "was not closed: it is being written, or tfmon was killed"
    return f"{lasted:>7}  {units.memory(row['bytes']):>9}  {verdict}"
