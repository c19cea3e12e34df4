"""Puts a report together: of one race, of two that are compared, or of a sweep."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tfmon
from tfmon.analysis.sweep import Found
from tfmon.doctor.report import Report, run_checks
from tfmon.errors import TfmonError
from tfmon.hosts.reservation import is_ray, word_of
from tfmon.model.session import Snapshot
from tfmon.reports import diff
from tfmon.reports import race as result
from tfmon.reports import sweep as ranking
from tfmon.reports.html import library, pair, race, sweep
from tfmon.reports.html.gather import Run, gather
from tfmon.reports.html.private import HIDDEN, hider, keep, strangers_in
from tfmon.reports.html.writer import Html, Writer


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a report is to hold."""

    everything: bool = False
    """Whether host, user, home folders and what looks like a secret may stand in it."""
    again: Callable[[Snapshot], str] = lambda _: ""
    """Returns the command that repeats a race; raises TfmonError where there is none."""
    host: str = ""
    """Name of this machine: the doctor examines it where it is that of the race."""


def of_race(path: Path, wanted: Wanted) -> tuple[str, Run]:
    """Return the report of a recording as HTML, and the race; raises RecordingError and UsageError."""
    with ThreadPoolExecutor(1) as pool:
        script = pool.submit(library.script)
        run = gather(path)
        writer = Writer(race_hider(wanted, run.end))
        told = result.to_json(run.found, run.header)
        parts = [race.head(writer, run), race.controls(writer, run), *_sections(writer, run, wanted)]
        page = writer.page(f"tfmon: {run.header.scenario}", script.result(), *parts, _foot(writer, told, wanted))
    return page, run


def of_pair(first: Path, second: Path, wanted: Wanted) -> tuple[str, tuple[Run, Run]]:
    """Return the report of two recordings, the second compared with the first, and the races; raises likewise."""
    with ThreadPoolExecutor(1) as pool:
        script = pool.submit(library.script)
        runs = gather(first, pair.PREFIXES[0]), gather(second, pair.PREFIXES[1])
        found = pair.comparison_of(*runs)
        writer = Writer(race_hider(wanted, *(run.end for run in runs)))
        parts = [pair.head(writer, found)]
        for run, name in zip(runs, ("first", "second"), strict=True):
            parts.append(race.controls(writer, run, f"lanes shown of the {name} race"))
        parts += pair.sections(writer, found, runs)
        for run, name in zip(runs, ("First", "Second"), strict=True):
            writer.level = 3
            inner = [race.head(writer, run, "h3"), *_sections(writer, run, wanted)]
            writer.level = 2
            parts.append(writer.section(f"{name} race: {run.id}", *inner))
        title = f"tfmon: {runs[0].id} and {runs[1].id}"
        page = writer.page(title, script.result(), *parts, _foot(writer, diff.to_json(found), wanted))
    return page, runs


def of_sweep(path: Path, found: Found, began: str, wanted: Wanted) -> str:
    """Return the report of a sweep; raises UsageError.

    Args:
        path: Its file.
        found: What it came to.
        began: When.
        wanted: What the report is to hold.
    """
    script, plan = library.script(), found.state.plan
    writer = Writer(sweep_hider(found, wanted))
    parts = [sweep.head(writer, found, began), *sweep.sections(writer, found)]
    told = ranking.to_json(found, str(path))
    return writer.page(f"tfmon: sweep of {plan.scenario}", script, *parts, _foot(writer, told, wanted))


def sweep_hider(found: Found, wanted: Wanted) -> Callable[[str], str]:
    """Return a function that removes the names of the machines of a sweep from a text."""
    if wanted.everything:
        return keep
    plan = found.state.plan
    kinds = " ".join(plan.machines.values())  # a kind of GPU that Ray is asked for is nobody's name
    hosts = [place.rpartition("/")[0] for place in plan.places]
    names = [word_of(host) if is_ray(host) else host.rpartition("@")[2] for host in hosts]
    return hider({wanted.host, *(name for name in names if name not in kinds)})


def _sections(writer: Writer, run: Run, wanted: Wanted) -> list[Html]:
    try:
        again = wanted.again(run.end)
    except TfmonError as error:
        again = f"no command line can: {error.line}"
    return race.sections(writer, run, again, _examined(run, wanted))


def _examined(run: Run, wanted: Wanted) -> Report | None:
    """Return the doctor's findings without loading TensorFlow, if this is the machine of the race."""
    if not wanted.host or run.end.machine.hostname != wanted.host:
        return None
    return run_checks(sys.executable, imports=False)


def race_hider(wanted: Wanted, *races: Snapshot) -> Callable[[str], str]:
    """Return a function that removes the names of machines, and of others on their GPUs, from a text."""
    if wanted.everything:
        return keep
    hosts = [found for race in races for found in race.hosts.items()]
    names = {name for host, state in hosts for name in (host.rpartition("@")[2], state.machine.hostname)}
    return hider(names, {name for race in races for name in strangers_in(race)})


def _foot(writer: Writer, told: dict[str, Any], wanted: Wanted) -> Html:
    """Return the result as JSON, and how the file was made; puts the JSON into the page for programs, too."""
    for file in ("recording", "file"):
        if told.get(file):
            told[file] = Path(told[file]).name
    writer.data("tfmon-result", told)
    shown = json.dumps(told, indent=1, allow_nan=False, ensure_ascii=False)
    made = f"Written by tfmon {tfmon.__version__} on {time.strftime('%Y-%m-%d')}; charts by Vega-Lite."
    hidden = (
        ""
        if wanted.everything
        else f" {HIDDEN} stands for names of machines and users, for what other users run, and for what looks "
        "like a secret."
    )
    return writer.section(
        "For programs",
        writer.folded(
            "The result as JSON; it also stands in this file under the id tfmon-result", writer.tag("pre", shown)
        ),
        writer.tag("p", made + hidden, class_="quiet"),
    )
