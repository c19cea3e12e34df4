"""`tfmon replay`, `runs`, `diff` and `export`: what can be done with recorded races."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from tfmon import units
from tfmon.cli import options
from tfmon.errors import EXIT_FINE, EXIT_INTERRUPTED, UsageError
from tfmon.runner import settings as configured

if TYPE_CHECKING:
    from tfmon.model.ports import RunInfo
    from tfmon.recordings.compare import Side
    from tfmon.recordings.library import Run
    from tfmon.recordings.reader import Recording


@click.command(short_help="Show a recorded race.")
@click.argument("recording", required=False)
@click.option(
    "--example", is_flag=True, help="Show a race that comes with tfmon, and say what it was recorded on."
)
@options.headless
@options.as_json
@options.looks
def replay(
    recording: str | None, example: bool, headless: bool, as_json: bool, theme: str | None, mouse: bool | None
) -> None:
    """Show the recorded race RECORDING: a file, the id of a run or its beginning, or `last`.

    Space pauses, ← and → move by 5 s, `,` and `.` by one event, + and - change the speed; ? lists the other keys.
    """
    from tfmon.analysis.analysis import analyse
    from tfmon.recordings.library import EXAMPLE, find
    from tfmon.recordings.player import play_all
    from tfmon.recordings.reader import Recording, guard
    from tfmon.reports.race import to_json, to_text

    if example is (recording is not None):
        raise UsageError("replay needs a RECORDING, or --example instead", "tfmon runs lists those that are here")
    path = EXAMPLE if recording is None else find(recording)
    if headless or as_json:
        with guard(path):
            opened, end = play_all(path)
            found = analyse(end)
            text = (
                json.dumps(to_json(found, opened.header), indent=2, allow_nan=False) if as_json else to_text(found)
            )
        _warn_if_torn(opened)
        if example:
            click.echo(f"recorded on {opened.header.recorded_on}", err=True)
        click.echo(text or to_text(found))
        return
    if why := options.why_no_screen():
        raise UsageError(f"{why}: a replay needs the screen", "--headless and --json do without")
    from tfmon.runner import live

    screen = configured.screen_settings(theme, mouse, None)
    with Recording(path) as opened:
        if example:
            click.echo(f"recorded on {opened.header.recorded_on}", err=True)
        ended = live.replay(opened, screen)
    sys.exit(EXIT_FINE if ended else EXIT_INTERRUPTED)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@click.option(
    "--name", "naming", nargs=2, metavar="RUN NAME", help='Call RUN by NAME from now on; "" takes the name away.'
)
def runs(as_json: bool, naming: tuple[str, str] | None) -> None:
    """List the recorded races by their start, the latest last.

    The commands replay, diff and export take an id from this list, its beginning, a name that was given, `last`,
    or `last~1` for the race before it; a race that still runs is not the last.
    """
    from tfmon.recordings import library

    if naming is not None:
        word, name = naming
        path = library.find(word)
        library.rename(path, name)
        called = f"is called {name.strip()!r}" if name.strip() else "has no name any more"
        click.echo(f"{library.run_id(path)} {called}")
        return
    listed = library.runs()
    if as_json:
        click.echo(json.dumps([_run_json(run) for run in listed], indent=2, allow_nan=False))
        return
    if not listed:
        click.echo(f"no race was recorded in {library.folder()} yet")
        return
    infos = [run.info() for run in listed]
    heads = [f"{info.id} ({info.name})" if info.name else info.id for info in infos]
    width = max(map(len, heads))
    for head, info in zip(heads, infos, strict=True):
        click.echo(f"{head:{width}}  {_run_line(info)}")
    used = f"{units.memory(sum(info.bytes for info in infos))} of {units.memory(library.LIMIT_BYTES)}"
    click.echo(f"\n{used} in {library.folder()}; the oldest are dropped first")


def _run_json(run: Run) -> dict[str, Any]:
    info, header, closed = run.info(), run.header, run.closed
    if header is None:
        return {"id": info.id, "path": info.path, "name": info.name or None, "unreadable": info.problem}
    return {
        "id": info.id,
        "path": info.path,
        "name": info.name or None,
        "bytes": info.bytes,
        "started": info.started,
        "scenario": info.scenario,
        "mode": info.mode,
        "lanes": list(info.lanes),
        "hostname": header.machine.hostname,
        "tfmon": header.tfmon,
        "tensorflow": (closed.tensorflow if closed else None) or header.tensorflow,
        "closed": closed is not None,
        "running": info.running,
        "seconds": info.seconds,
        "ratio": info.ratio,
        "verdict": info.verdict or None,
        "failure": info.failure or None,
    }


def _run_line(info: RunInfo) -> str:
    if info.problem:
        return info.problem
    lasted = units.clock(info.seconds) if info.seconds is not None else "–"
    return f"{lasted:>7}  {units.memory(info.bytes):>9}  {info.outcome}"


@click.command(short_help="Compare two recorded races.")
@click.argument("first")
@click.argument("second")
@options.as_json
def diff(first: str, second: str, as_json: bool) -> None:
    """Compare the recorded race SECOND with FIRST: how much faster each lane was, and what differed.

    Both are files, ids of runs or their beginnings, `last`, or `last~1` for the race before it.
    """
    from tfmon.recordings.compare import compare
    from tfmon.reports.diff import to_json, to_text

    comparison = compare(_side(first), _side(second))
    click.echo(json.dumps(to_json(comparison), indent=2, allow_nan=False) if as_json else to_text(comparison))


def _side(word: str) -> Side:
    from tfmon.recordings.compare import side_of
    from tfmon.recordings.library import find

    side, opened = side_of(find(word))
    _warn_if_torn(opened)
    return side


@click.command(short_help="Write a recorded race for other programs.")
@click.argument("recording")
@click.option("--csv", "as_csv", is_flag=True, help="Write CSV: a line for each number.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object: header, result, and every number.")
@click.option(
    "--tensorboard", metavar="DIR", help="Write event files into the new folder DIR, for tensorboard --logdir DIR."
)
@click.option("--output", "-o", metavar="FILE", help="Write CSV or JSON into this new file instead of stdout.")
def export(recording: str, as_csv: bool, as_json: bool, tensorboard: str | None, output: str | None) -> None:
    """Write RECORDING for other programs: a file, the id of a run or its beginning, or `last`.

    What was not measured is not written. Units are in the names.
    """
    from tfmon.analysis.analysis import analyse
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
            _warn_if_torn(opened)
            if tensorboard is not None:
                folders = writing.write_tensorboard(opened, Path(tensorboard))
                click.echo(f"wrote {len(folders)} runs; tensorboard --logdir {tensorboard}")
            elif as_csv:
                with _target(output) as target:
                    writing.write_csv(opened, target)
            else:
                result = to_json(analyse(play_all(path)[1]), opened.header)
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


def _warn_if_torn(opened: Recording) -> None:
    if opened.torn:
        click.echo(f"tfmon: {opened.path} is cut off at its end; this is what it holds", err=True)
