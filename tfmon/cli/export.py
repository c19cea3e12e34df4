"""`tfmon export`: a recorded race for other programs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import click

from tfmon.errors import UsageError


@click.command()
@click.argument("recording")
@click.option("--csv", "as_csv", is_flag=True, help="One line for each number.")
@click.option("--json", "as_json", is_flag=True, help="One object: header, result, and every number.")
@click.option("--tensorboard", metavar="DIR", help="Event files in the new folder DIR; tensorboard --logdir DIR.")
@click.option("--output", "-o", metavar="FILE", help="Write CSV or JSON into this new file, not to stdout.")
def export(recording: str, as_csv: bool, as_json: bool, tensorboard: str | None, output: str | None) -> None:
    """Write RECORDING for other programs: a file, the id of a run or how it begins, or `last`.

    What was not measured is left out; units are in the names.
    """
    from tfmon.recordings import export as writing
    from tfmon.recordings.header import RecordingError
    from tfmon.recordings.library import find
    from tfmon.recordings.player import play_all
    from tfmon.recordings.reader import Recording, guard
    from tfmon.reports.race import to_json

    if as_csv + as_json + (tensorboard is not None) != 1:
        raise UsageError("tfmon export needs one of --csv, --json and --tensorboard DIR")
    if tensorboard is not None and output is not None:
        raise UsageError("--output goes with --csv or --json; --tensorboard names its own folder")
    path = find(recording)
    try:
        with guard(path), Recording(path) as opened:
            if opened.torn:
                click.echo(f"tfmon: {path} is cut off at its end; this is what it holds", err=True)
            if tensorboard is not None:
                folders = writing.write_tensorboard(opened, Path(tensorboard))
                click.echo(f"wrote {len(folders)} runs; tensorboard --logdir {tensorboard}")
            elif as_csv:
                with _target(output) as target:
                    writing.write_csv(opened, target)
            else:
                _, end = play_all(path)
                result = to_json(end, end.race.interrupted)
                with _target(output) as target:
                    writing.write_json(opened, result, target)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RecordingError(f"{error.filename or output or 'stdout'}: {error.strerror or error}") from None


@contextlib.contextmanager
def _target(output: str | None) -> Iterator[TextIO]:
    """Open the file to write to, which must be a new one; without a name, stdout."""
    if output is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    try:
        target = Path(output).open("x", encoding="utf-8", newline="")  # noqa: SIM115 - closed below
    except FileExistsError:
        raise UsageError(f"{output} is there already", "name another file, or remove it") from None
    with target:
        yield target
