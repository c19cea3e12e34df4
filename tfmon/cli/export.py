"""`tfmon export`: a recorded race or sweep for people (HTML, Markdown) and for other programs."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from tfmon.cli import options
from tfmon.errors import UsageError

if TYPE_CHECKING:
    from tfmon.recordings.reader import Recording
    from tfmon.reports.html.report import Wanted

TAKEN = "is there already"
OTHERWISE = "name another file, or add --force to write over it"


@click.command(short_help="Write a report of a recorded race, or its numbers.")
@click.argument("recording", required=False, metavar="[RUN]")
@click.option("--example", is_flag=True, help="Write the race that comes with tfmon.")
@click.option(
    "--html", metavar="FILE", help="Write a report as one HTML file, which opens anywhere without network."
)
@click.option("--markdown", is_flag=True, help="Write the verdict and a table, to paste into an issue or a chat.")
@click.option("--csv", "as_csv", is_flag=True, help="Write CSV: a line for each number.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object: header, result, and every number.")
@click.option(
    "--tensorboard", metavar="DIR", help="Write event files into the new folder DIR, for tensorboard --logdir DIR."
)
@click.option(
    "--output", "-o", metavar="FILE", help="Write Markdown, CSV or JSON into this new file instead of stdout."
)
@click.option("--force", is_flag=True, help="Write over a file that is there already.")
@click.option(
    "--everything",
    is_flag=True,
    help="Also write names of hosts and users, home folders, and what looks like a secret: HTML and Markdown go "
    "without them.",
)
@click.option("--open", "show", is_flag=True, help="Open the HTML report in the browser.")
def export(
    recording: str | None,
    example: bool,
    html: str | None,
    markdown: bool,
    as_csv: bool,
    as_json: bool,
    tensorboard: str | None,
    output: str | None,
    force: bool,
    everything: bool,
    show: bool,
) -> None:
    """Write RUN for a colleague or for other programs: a file, an id or its beginning; by default the last race.

    RUN may be the file of a sweep, too.

    What was not measured is not written. Units are in the names.

    \b
    For example:
      tfmon export --html race.html
      tfmon export last~1 --markdown
      tfmon export last --csv -o race.csv
      tfmon export night.sweep --html sweep.html
    """
    from tfmon.recordings.library import EXAMPLE, find
    from tfmon.recordings.sweeps import is_sweep

    ways = [html is not None, markdown, as_csv, as_json, tensorboard is not None]
    if sum(ways) != 1:
        raise UsageError("tfmon export needs one of --html FILE, --markdown, --csv, --json and --tensorboard DIR")
    if output is not None and (html is not None or tensorboard is not None):
        raise UsageError("--output goes with --markdown, --csv or --json; --html and --tensorboard name their own")
    if show and html is None:
        raise UsageError("--open goes with --html FILE")
    if example and recording is not None:
        raise UsageError("tfmon export takes a RUN or --example, not both")
    path = EXAMPLE if example else find(recording or "last")
    with _one_line(html or output):
        if is_sweep(path):
            if tensorboard is not None:
                raise UsageError("--tensorboard is for races; a sweep has no steps", "--csv writes its table")
            _sweep(path, html, output, wanted(everything=everything), (markdown, as_csv), force=force, show=show)
        elif html is not None:
            write_html([path], Path(html), everything=everything, force=force, show=show)
        elif markdown:
            _markdown(path, output, everything=everything, force=force)
        else:
            _numbers(path, output, tensorboard, as_csv=as_csv, force=force)


# ---------------------------------------------------------------- for people


def write_html(paths: list[Path], target: Path, *, everything: bool, force: bool, show: bool = False) -> None:
    """Write the report of a recording, or of two compared, and say where; raises TfmonError and OSError."""
    from tfmon.reports.html.report import of_pair, of_race

    _check(target, force=force)
    if len(paths) == 1:
        page, run = of_race(paths[0], wanted(everything=everything))
        runs = [run]
    else:
        page, pair = of_pair(paths[0], paths[1], wanted(everything=everything))
        runs = list(pair)
    for path, run in zip(paths, runs, strict=True):
        if run.torn:
            tell_torn(path)
    _page(target, page, force=force, show=show, err=len(paths) > 1)


def _page(target: Path, page: str, *, force: bool, show: bool, err: bool = False) -> None:
    """Write a report, say where, and open it in the browser if that is wanted."""
    with _file(str(target), force=force) as file:
        file.write(page)
    click.echo(f"wrote {target} ({len(page.encode()) / 2**20:.1f} MiB)", err=err)
    if show and not _opened(target):
        click.echo(
            f"tfmon: there is no browser here to open it with; copy {target} to where there is one", err=True
        )


def write_pair(first: str, second: str, html: str, *, force: bool) -> None:
    """Write the report of two recordings, named as on the command line; raises TfmonError."""
    from tfmon.recordings.library import find

    with _one_line(html):
        write_html([find(first), find(second)], Path(html), everything=False, force=force)


def wanted(*, everything: bool) -> Wanted:
    """Return the parts of a report for the command line."""
    import platform

    from tfmon.reports.html.report import Wanted
    from tfmon.runner.repeat import command_line

    return Wanted(everything=everything, again=command_line, host=platform.node())


def _opened(target: Path) -> bool:
    """Open a file in the browser; return False where there is none with a window of its own."""
    import webbrowser

    windows = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if not windows and not os.environ.get("BROWSER"):
        return False
    with contextlib.suppress(webbrowser.Error):
        return webbrowser.open(target.absolute().as_uri())
    return False


def _markdown(path: Path, output: str | None, *, everything: bool, force: bool) -> None:
    from tfmon.analysis.analysis import analyse
    from tfmon.recordings.player import play_all
    from tfmon.recordings.reader import guard
    from tfmon.reports.markdown import to_markdown

    if output is not None:
        _check(Path(output), force=force)
    with guard(path):
        opened, end = play_all(path)
        text = to_markdown(analyse(end), opened.header, wanted(everything=everything))
    _warn_if_torn(opened)
    with _file(output, force=force) as target:
        target.write(text)


def _sweep(
    path: Path,
    html: str | None,
    output: str | None,
    wanted: Wanted,
    ways: tuple[bool, bool],
    *,
    force: bool,
    show: bool,
) -> None:
    """Write a sweep as HTML, or else as Markdown, CSV or JSON; raises TfmonError and OSError."""
    from tfmon.analysis.sweep import rank
    from tfmon.recordings import sweeps
    from tfmon.reports.html.report import of_sweep
    from tfmon.reports.markdown import sweep_to_markdown
    from tfmon.reports.sweep import to_csv, to_json

    if target := html or output:
        _check(Path(target), force=force)
    found = rank(sweeps.read(path))
    if html is not None:
        _page(Path(html), of_sweep(path, found, sweeps.began(path), wanted), force=force, show=show)
        return
    markdown, as_csv = ways
    text = sweep_to_markdown(found, wanted) if markdown else to_csv(found) if as_csv else ""
    text = text or json.dumps(to_json(found, str(path)), indent=2, allow_nan=False)
    with _file(output, force=force) as file:
        file.write(text.rstrip("\n") + "\n")


# ---------------------------------------------------------------- for other programs


def _numbers(path: Path, output: str | None, tensorboard: str | None, *, as_csv: bool, force: bool) -> None:
    from tfmon.analysis.analysis import analyse
    from tfmon.recordings import export as writing
    from tfmon.recordings.player import play_all
    from tfmon.recordings.reader import Recording, guard
    from tfmon.reports.race import to_json

    with guard(path), Recording(path) as opened:
        _warn_if_torn(opened)
        if tensorboard is not None:
            folders = writing.write_tensorboard(opened, Path(tensorboard))
            click.echo(f"wrote {len(folders)} runs; tensorboard --logdir {tensorboard}")
        elif as_csv:
            with _file(output, force=force) as target:
                writing.write_csv(opened, target)
        else:
            result = to_json(analyse(play_all(path)[1]), opened.header)
            with _file(output, force=force) as target:
                writing.write_json(opened, result, target)


# ---------------------------------------------------------------- files


@contextlib.contextmanager
def _one_line(output: str | None) -> Iterator[None]:
    """Say in one line which file cannot be written."""
    from tfmon.recordings.header import RecordingError

    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if output is None and error.filename is None:
            raise options.unwritable(error) from None
        raise RecordingError(f"{output or error.filename or 'stdout'}: {error.strerror or error}") from None


def _check(target: Path, *, force: bool) -> None:
    """Raise UsageError before any work for a file that could not be written after it."""
    if target.is_dir():
        raise UsageError(f"{target} is a folder", "name a file in it")
    if not target.absolute().parent.is_dir():
        raise UsageError(f"{target} cannot be written: there is no folder {target.parent}", "make it first")
    if target.exists() and not force:
        raise UsageError(f"{target} {TAKEN}", OTHERWISE)


@contextlib.contextmanager
def _file(output: str | None, *, force: bool) -> Iterator[TextIO]:
    """Open the file to write to, which must be a new one unless `force` says otherwise; without a name, stdout.

    What was there stays until all of the new file is written.
    """
    if output is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    target = Path(output)
    part = target.with_name(f".{target.name}.{os.getpid()}.part") if force else target
    try:
        file = part.open("w" if force else "x", encoding="utf-8", newline="")
    except FileExistsError:
        raise UsageError(f"{output} {TAKEN}", OTHERWISE) from None
    try:
        with file:
            yield file
        if force:
            part.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def _warn_if_torn(opened: Recording) -> None:
    if opened.torn:
        tell_torn(opened.path)


def tell_torn(path: Path) -> None:
    """Say that a recording is cut off."""
    click.echo(f"tfmon: {path} is cut off at its end; this is what it holds", err=True)
