"""`tfmon replay`, `runs` and `diff`: commands for recorded races."""

from __future__ import annotations

import json
import sys
from collections.abc import Container, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfmon import units
from tfmon.api.options import SHARE
from tfmon.api.settings import ScreenOptions
from tfmon.cli import export, flags
from tfmon.errors import TfmonError, UsageError

MOST_SWEEPS = 5

if TYPE_CHECKING:
    from tfmon.analysis.result import RaceResult
    from tfmon.api.sockets import RunnerGreeting
    from tfmon.model.ports import RunInfo


@click.command
@click.argument("recording", required=False)
@click.option(
    "--example", is_flag=True, help="Show a race that comes with tfmon: two settings on a CPU; no GPU was there."
)
@flags.headless
@flags.as_json
@flags.takes(ScreenOptions, "replay")
def replay(screen: ScreenOptions, recording: str | None, example: bool, headless: bool, as_json: bool) -> None:
    """Show the recorded race RECORDING: a file, the id of a run or its beginning, or `last`.

    Space pauses, ← and → move by 5 s, `,` and `.` by one event, + and - change the speed; ? lists the other keys.

    \b
    For example:
      tfmon replay last
      tfmon replay --example
      tfmon replay race.jsonl --json > result.json
    """
    from tfmon.analysis.analysis import analyse
    from tfmon.analysis.summarise import summarise
    from tfmon.recordings.header_lines import recorded_on
    from tfmon.recordings.library import EXAMPLE, find
    from tfmon.recordings.player import play_all
    from tfmon.recordings.reader import Recording, guard
    from tfmon.reports.race_report import to_text

    if example is (recording is not None):
        raise UsageError("replay needs a RECORDING, or --example instead", "tfmon runs lists those that are here")
    path = EXAMPLE if recording is None else find(recording)
    if headless or as_json:
        with guard(path):
            opened, end = play_all(path)
            result = analyse(end)
            shown = summarise(result, opened.header).to_json() if as_json else to_text(result)
        if opened.torn:
            export.tell_torn(path)
        if example:
            click.echo(f"recorded on {recorded_on(opened.header)}", err=True)
        flags.print_result(shown, str(path))
        return
    if why := flags.why_no_screen():
        raise UsageError(f"{why}: a replay needs the screen", "--headless and --json do without")
    from tfmon.api import live

    with Recording(path) as opened:
        if example:
            click.echo(f"recorded on {recorded_on(opened.header)}", err=True)
        sys.exit(live.replay(opened, screen))


@click.command
@click.argument("host", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@click.option("--files", "listing", metavar="RUN", help="List the files that the lanes of RUN wrote.")
@click.option(
    "--keep-files",
    "keeping",
    nargs=2,
    metavar="LANE DIR",
    help="Copy what LANE wrote, such as A or A-2, into the new folder DIR: of the RUN of --files, or of the last.",
)
def runs(host: str | None, as_json: bool, listing: str | None, keeping: tuple[str, str] | None) -> None:
    """List the recorded races by their start, the latest last, and the latest sweeps.

    With HOST, one that ssh or the settings file knows, list those there.

    The commands replay, diff and export take an id from this list, its beginning, `last`, or `last~1` for the race
    before it; a race that still runs is not the last.

    \b
    For example:
      tfmon runs
      tfmon runs gpu2
      tfmon runs --files last
      tfmon runs --files last --keep-files A out
    """
    from tfmon.api import sockets
    from tfmon.recordings import library, sweeps
    from tfmon.reports.text import fitted

    if listing is not None or keeping is not None:
        if as_json or host is not None:
            raise UsageError("--files and --keep-files exclude --json and HOST", "leave it out")
        _files(library.find(listing or "last"), keeping)
        return
    if host is None:
        listed, live = library.runs(), sockets.under_way()
    else:
        from tfmon.api.remote_runs import RemoteRuns

        remote = RemoteRuns(host)
        listed, live = remote.recorded(), remote.runs
        remote.close()
    attachable = {run.name: run for run in live}
    if as_json:
        rows = [_run_json(run, host, attachable.pop(run.id, None)) for run in listed]
        for name, run in attachable.items():
            facts = {"pid": run.pid, "scenario": run.scenario, "tfmon": run.tfmon, "attachable": True}
            rows.append({"id": name, "host": host, **facts})
        click.echo(json.dumps(rows, indent=2, allow_nan=False))
        return
    races = {name: run.scenario for name, run in attachable.items() if host or not name.endswith(sweeps.SUFFIX)}
    lines = _run_lines(listed, races, f"{host}/" if host is not None else "")
    if host is not None:
        more = f"tfmon attach {host}/RUN shows one; of one that is over, the recording is copied here"
        lines = [*lines, "", more] if lines else [f"no race was recorded on {host} yet, and none is under way"]
    else:
        lines = lines or [f"no race was recorded in {library.folder()} yet"]
        if listed:
            used = f"{units.memory(sum(run.bytes for run in listed))} of {units.memory(library.LIMIT_BYTES)}"
            lines += ["", f"{used} in {library.folder()}; the oldest are dropped first"]
        lines += _sweep_lines(attachable)
    for line in lines:
        click.echo(fitted(line))


def _run_lines(listed: Sequence[RunInfo], attachable: dict[str, str], prefix: str) -> list[str]:
    width = max((len(info.id) for info in listed), default=0)
    lines = []
    for info in listed:
        lasted = units.clock(info.seconds) if info.seconds is not None else "–"
        under_way = f"under way: tfmon attach {prefix}{info.id}" if attachable.pop(info.id, "") else ""
        text = f"{lasted:>7}  {units.memory(info.bytes):>9}  {under_way or info.outcome}"
        lines.append(f"{prefix}{info.id:{width}}  {info.problem or text}")
    for name, scenario in attachable.items():
        lines.append(f"{prefix}{name}  {scenario} is under way: tfmon attach {prefix}{name}")
    return lines


def _sweep_lines(attachable: Container[str]) -> list[str]:
    from tfmon.recordings import sweeps

    files = sorted(sweeps.folder().glob(f"*{sweeps.SUFFIX}"))
    if not files:
        return []
    from tfmon.analysis.series_tables import answer
    from tfmon.analysis.sweep_ranking import OPEN, rank
    from tfmon.system.view_files import is_locked

    lines = []
    for path in files[-MOST_SWEEPS:]:
        try:
            ranking = rank(sweeps.read(path))
            text = "; ".join(answer(ranking)[: len(ranking.state.plan.kinds)])
            if path.name in attachable:
                text += f"; under way: tfmon attach {path.name} shows it"
            elif any(row.outcome == OPEN for row in ranking.rows):
                text += "; under way" if is_locked(path) else f"; tfmon sweep --resume {path} continues it"
        except TfmonError as error:
            text = error.message
        lines.append(f"{path.name}  {text}")
    more = f", {len(files) - MOST_SWEEPS} more" if len(files) > MOST_SWEEPS else ""
    return ["", *lines, "", f"sweeps in {sweeps.folder()}{more}; tfmon export shows one"]


def _files(path: Path, keeping: tuple[str, str] | None) -> None:
    from tfmon.model.folder_views import IN_PLACE, View
    from tfmon.recordings.library import run_id
    from tfmon.recordings.reader import peek
    from tfmon.system.view_files import WRITTEN, files_of, is_locked, take_out, tidy

    views = peek(path)[0].views
    local_view = views.get("", View(IN_PLACE, ""))
    if keeping is not None:
        lane, target = keeping
        try:
            count = take_out(Path(local_view.store, lane), Path(target))
        except OSError as error:
            message = f"{lane} of {run_id(path)}: {error.strerror}: {error.filename}"
            raise UsageError(message, "tfmon runs --files RUN lists them") from None
        click.echo(f"wrote {units.several(count, 'file')} of {lane} to {target}")
        return
    lines = [f"on {host}: {view.store}" for host, view in views.items() if host and view.store]
    for lane_folder in sorted(Path(local_view.store).glob("*")) if local_view.store else ():
        if not is_locked(lane_folder.parent):
            tidy(lane_folder, local_view)  # of a race that was killed
        for name, size in sorted(files_of(lane_folder / WRITTEN)):
            lines.append(f"{lane_folder.name}  {'removed' if size is None else units.memory(size):>9}  {name}")
    click.echo("\n".join(lines) or f"the lanes of {run_id(path)} kept no files")


def _run_json(info: RunInfo, host: str | None, live: RunnerGreeting | None) -> dict[str, Any]:
    header, closed = info.header, info.closed
    if header is None:
        return {"id": info.id, "host": host, "path": info.path, "unreadable": info.problem}
    return {
        "id": info.id,
        "host": host,
        "path": info.path,
        "bytes": info.bytes,
        "started": info.started,
        "scenario": info.scenario,
        "mode": info.mode,
        "lanes": list(info.lanes),
        "hostname": header.machine.hostname,
        "hosts": list(header.hosts),
        "tfmon": header.tfmon,
        "tensorflow": (closed.tensorflow if closed else None) or header.tensorflow,
        "closed": closed is not None,
        "running": info.running,
        "pid": live.pid if live is not None else None,
        "attachable": live is not None,
        "seconds": info.seconds,
        "ratio": info.ratio,
        "verdict": info.verdict or None,
        "failure": info.failure or None,
    }


@click.command
@click.argument("first")
@click.argument("second")
@click.option(
    "--slower-than",
    type=SHARE,
    help="Exit 4 if any lane of SECOND is slower by more than PERCENT, 5 if inconclusive, else 0.",
)
@click.option(
    "--more-memory-than",
    type=SHARE,
    help="The same where any lane takes more memory, or GPU memory, by more than PERCENT.",
)
@click.option("--html", metavar="FILE", help="Write the comparison as one HTML file, too.")
@click.option("--force", is_flag=True, help="Write over a report that is there already.")
@flags.as_json
def diff(
    first: str,
    second: str,
    slower_than: float | None,
    more_memory_than: float | None,
    html: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Compare the recorded race SECOND with FIRST: how much faster each lane was, and what differed.

    Both are files (recordings, or results of `tfmon race --json`), ids of runs or their beginnings, `last`, or
    `last~1` for the race before it. For a gate (--slower-than, --more-memory-than) both may be folders of as many
    files, raced alternately.

    \b
    For example:
      tfmon diff last~1 last
      tfmon diff baseline.json run.json --slower-than 5%
      tfmon diff baselines/ runs/ --slower-than 5% --more-memory-than 5%
    """
    from tfmon.analysis.compare import compare_all
    from tfmon.analysis.gate import MORE_MEMORY, SLOWER, exit_code, judge
    from tfmon.reports.diff import describe, to_json, to_text

    folders = [word for word in (first, second) if Path(word).is_dir()]
    limits = {SLOWER: slower_than, MORE_MEMORY: more_memory_than}
    watched = {name: limit for name, limit in limits.items() if limit is not None}
    if folders and (not watched or html is not None):
        raise UsageError(
            f"{folders[0]} is a folder of races, which only a gate takes", "add --slower-than 5%, and no --html"
        )
    comparison, *rest = races = compare_all(_results(first), _results(second))
    if rest:
        note = f"the tables are of the first of {len(races)} races each"
        comparison = replace(comparison, notes=(*comparison.notes, note))
    gates = [judge(races, limit, name) for name, limit in watched.items()]
    if html is not None:
        page = Path(html)
        export.write_html(lambda: describe(comparison, gates), page, everything=False, force=force, err=True)
    flags.print_result((to_json if as_json else to_text)(comparison, gates), "")
    sys.exit(exit_code(gates))


def _results(word: str) -> list[RaceResult]:
    from tfmon.recordings.library import find
    from tfmon.recordings.results import read_race, read_races

    folder = Path(word)
    path = folder if folder.is_dir() else find(word)
    result = read_races(path) if folder.is_dir() else [read_race(path)]
    if any(torn for _, torn in result):
        export.tell_torn(path)
    return [figures for figures, _ in result]
