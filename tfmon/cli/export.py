"""`tfmon export`: a recorded race or sweep for people and other programs."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from tfmon.cli import flags
from tfmon.errors import UsageError
from tfmon.system.replace_file import replacing

if TYPE_CHECKING:
    from tfmon.reports import Report


@click.command
@click.argument("recording", required=False, metavar="[RUN]")
@click.option("--example", is_flag=True, help="Write the race that comes with tfmon.")
@click.option(
    "--html", metavar="FILE", help="Write a report as one HTML file, which opens anywhere without network."
)
@click.option("--markdown", is_flag=True, help="Write the report as Markdown, to paste into an issue or a chat.")
@click.option("--text", "as_text", is_flag=True, help="Write the whole report as plain text.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object: header, result, and every number.")
@click.option(
    "--output", "-o", metavar="FILE", help="Write Markdown, text or JSON into this new file, not to stdout."
)
@click.option("--force", is_flag=True, help="Write over a file that is there already.")
@click.option(
    "--everything",
    is_flag=True,
    help="Also write names of hosts and users, home folders, and what looks like a secret: HTML and Markdown go "
    "without them; text and JSON have them.",
)
def export(
    recording: str | None,
    example: bool,
    html: str | None,
    markdown: bool,
    as_text: bool,
    as_json: bool,
    output: str | None,
    force: bool,
    everything: bool,
) -> None:
    """Write RUN for a colleague or for other programs: a file, an id or its beginning; by default the last race.

    RUN may be the file of a sweep, too.

    What was not measured is not written. Units are in the names.

    \b
    For example:
      tfmon export --html race.html
      tfmon export last~1 --markdown
      tfmon export last --json -o race.json
      tfmon export night.sweep --html sweep.html
    """
    import platform

    from tfmon.analysis.sweep_ranking import rank
    from tfmon.recordings import sweeps
    from tfmon.recordings.library import EXAMPLE, find
    from tfmon.reports import text
    from tfmon.reports.secrets import hides
    from tfmon.reports.series_report import sweep_to_json

    formats = [html is not None, markdown, as_text, as_json]
    if sum(formats) != 1:
        raise UsageError("tfmon export needs one of --html FILE, --markdown, --text and --json")
    if output is not None and html is not None:
        raise UsageError("--output does not go with --html FILE, which names its own")
    if example and recording is not None:
        raise UsageError("tfmon export takes a RUN or --example, not both")
    path = EXAMPLE if example else find(recording or "last")
    with _one_line(html or output):
        if target := html or output:
            _check(Path(target), force=force)
        if html is not None:
            write_html(lambda: _report(path), Path(html), everything=everything, force=force)
        elif markdown or as_text:
            report = _report(path)
            hide = hides(report, platform.node(), everything=everything)
            written = text.to_markdown(report, hide) if markdown else text.fitted(text.write(report))
            _write(written, output)
        elif sweeps.is_sweep(path):
            plain = sweep_to_json(rank(sweeps.read(path)), str(path))
            _write(json.dumps(plain, indent=2, allow_nan=False), output)
        else:
            _numbers(path, output)


def write_html(
    make: Callable[[], Report], target: Path, *, everything: bool, force: bool, err: bool = False
) -> None:
    """Write a report as an HTML page."""
    import platform
    from concurrent.futures import ThreadPoolExecutor

    from tfmon.reports import html
    from tfmon.reports.secrets import hides

    _check(target, force=force)
    with ThreadPoolExecutor(1) as pool:
        script = pool.submit(html.charts_script)
        report = make()
        page = html.write(report, hides(report, platform.node(), everything=everything), script.result())
    _write(page, str(target))
    click.echo(f"wrote {target} ({len(page.encode()) / 2**20:.1f} MiB)", err=err)


def _report(path: Path) -> Report:
    import platform

    from tfmon.api.repeat_command import command_of
    from tfmon.recordings.sweeps import is_sweep
    from tfmon.reports.recorded import of_race
    from tfmon.reports.series_report import of_sweep

    if is_sweep(path):
        return of_sweep(path)
    report, torn = of_race(path, command_of, platform.node())
    if torn:
        tell_torn(path)
    return report


def _numbers(path: Path, output: str | None) -> None:
    from tfmon.analysis.analysis import analyse
    from tfmon.analysis.summarise import summarise
    from tfmon.recordings.player import end_of
    from tfmon.recordings.reader import Recording, guard
    from tfmon.reports.recorded_numbers import write_json

    with guard(path), Recording(path) as opened:
        if opened.torn:
            tell_torn(path)
        result = summarise(analyse(end_of(opened)), opened.header).to_json()
        with _file(output) as target:
            write_json(opened, result, target)


@contextlib.contextmanager
def _one_line(output: str | None) -> Iterator[None]:
    from tfmon.recordings.header_lines import RecordingError

    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if output is None and error.filename is None:
            raise flags.unwritable(error) from None
        raise RecordingError(f"{output or error.filename or 'stdout'}: {error.strerror or error}") from None


def _check(target: Path, *, force: bool) -> None:
    if target.is_dir():
        raise UsageError(f"{target} is a folder", "name a file in it")
    if not target.absolute().parent.is_dir():
        raise UsageError(f"{target} cannot be written: there is no folder {target.parent}", "make it first")
    if target.exists() and not force:
        raise UsageError(f"{target} is there already", "name another file, or add --force to write over it")


def _write(text: str, output: str | None) -> None:
    with _file(output) as file:
        file.write(text.rstrip("\n") + "\n")


@contextlib.contextmanager
def _file(output: str | None) -> Iterator[TextIO]:
    """Open the output file or stdout."""
    if output is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    with replacing(Path(output)) as file, io.TextIOWrapper(file, "utf-8") as text:
        yield text


def tell_torn(path: Path) -> None:
    """Print that a recording is cut off."""
    click.echo(f"tfmon: {path} is cut off at its end; this is what it holds", err=True)
