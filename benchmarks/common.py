"""Shared parts of the benchmarks: the command line, a race of one lane and its events, an interval."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))  # for `support`
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for this checkout

from tfmon.analysis.intervals import student
from tfmon.api.options import RaceOptions
from tfmon.api.planner import plan_race
from tfmon.api.program import Program
from tfmon.catalog import find_scenario
from tfmon.errors import TfmonError
from tfmon.lanes.group import LaneGroup
from tfmon.lanes.launch import BOOTSTRAP
from tfmon.lanes.plan import RacePlan
from tfmon.model.event_base import Event
from tfmon.model.lane_events import READY, PhaseEntered, Window
from tfmon.model.race import CONCURRENT, ScenarioInfo
from tfmon.model.session import Session, Snapshot
from tfmon.probes.base import Ticker
from tfmon.probes.find_gpus import find_gpus
from tfmon.probes.host_probe import HostProbe
from tfmon.probes.machine import read_machine


def measured_on() -> str:
    """Return the date, the commit, the versions and the machine of this measurement."""
    git = ("git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD")
    commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    versions = ", ".join(f"{name} {version(name.lower())}" for name in ("tfmon", "TensorFlow"))
    machine = f"{os.cpu_count()} cores of {read_machine().cpu_name}"
    date = f"{datetime.now(timezone.utc):%Y-%m-%d}"
    return f"{date}, commit {commit}, {versions}, Python {platform.python_version()}, {machine}"


GETTING_READY_S = 120.0
ANSWER_S = 10.0
"""Timeout for an immediate action of a child."""


def options_of(description: str | None, **defaults: Any) -> argparse.Namespace:
    """Read the command line: an option for each default, of its type; `None` is text, `False` a flag."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, **defaults)
    return parser.parse_args()


def command_of(
    description: str | None, measured: Mapping[str, tuple[object, dict[str, Any]]]
) -> argparse.Namespace:
    """Read the command line: the name of a measurement, with the options of its defaults."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    for name, (_, defaults) in measured.items():
        add_options(commands.add_parser(name), **defaults)
    return parser.parse_args()


def run_command(
    description: str | None, measured: Mapping[str, tuple[Callable[..., object], dict[str, Any]]], *given: object
) -> object:
    """Run the measurement on the command line with its options; return its result."""
    options = command_of(description, measured)
    return measured[options.what][0](*given, options)


def result_of(*words: str) -> dict[str, Any]:
    """Return what `tfmon` with these words and `--json` prints.

    Errors: SystemExit if it fails.
    """
    command = [sys.executable, "-m", "tfmon", *words, "--json"]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def kept_rows(out: str, key: Mapping[str, object]) -> list[dict[str, Any]]:
    """Return the rows of a file with this key; empty if the file does not exist."""
    file = Path(out)
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [row for row in rows if key.items() <= row.items()]


def keep_row(out: str, row: Mapping[str, object]) -> None:
    """Add a row to a file: a run that was stopped goes on after it."""
    with Path(out).open("a") as file:
        file.write(json.dumps(row) + "\n")


@contextlib.contextmanager
def program_of(options: RaceOptions, scenario: ScenarioInfo) -> Iterator[Program]:
    """Race a scenario as the program does, until the block ends."""
    program = Program(options)
    try:
        program.begin(program.plan(scenario))
        yield program
    finally:
        program.close()


def add_options(parser: argparse.ArgumentParser, **defaults: Any) -> None:
    """Give a parser an option for each default."""
    for name, default in defaults.items():
        if default is False:
            parser.add_argument(f"--{name}", action="store_true")
        else:
            kind = str if default is None else type(default)
            parser.add_argument(f"--{name}", type=kind, default=default, help=f"default {default}")


def mean_and_reach(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean, and half its 95 % interval by Student's t."""
    reach = student(0.05, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return statistics.mean(values), reach


def met(reached: bool) -> str:
    """Return the word for a goal."""
    return "met" if reached else "MISSED"


def is_steady(event: Event) -> bool:
    """Return whether an event is a window without a mark."""
    return isinstance(event, Window) and not event.marks


class Watch:
    """Hears every event of a session, and lets another thread wait for one."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._events: list[Event] = []
        self._change = threading.Condition()
        session.listen(self._hear)

    @property
    def heard(self) -> int:
        """Number of events so far, at which a later `wait` or `since` begins."""
        return len(self._events)

    def snapshot(self) -> Snapshot:
        """Return the current snapshot of the session."""
        return self.session.snapshot()

    def since(self, start: int) -> list[Event]:
        """Return the events from a place on."""
        return self._events[start:]

    def wait(self, fits: Callable[[Event], bool], start: int, timeout_s: float) -> Event:
        """Return the first event that fits, from a place on.

        Errors: SystemExit when it does not come in time or a lane fails first.
        """
        deadline = time.monotonic() + timeout_s
        with self._change:
            while True:
                for event in self._events[start:]:
                    if fits(event):
                        return event
                start = len(self._events)
                for lane in self.session.snapshot().lanes:
                    if lane.trouble is not None:
                        raise SystemExit(f"{lane.title}: {lane.trouble.message}")
                if not self._change.wait(deadline - time.monotonic()):
                    raise SystemExit(f"the lane did not answer within {timeout_s:g} s")

    def _hear(self, event: Event) -> None:
        with self._change:
            self._events.append(event)
            self._change.notify_all()


@contextlib.contextmanager
def racing(plan: RacePlan, script: Path = BOOTSTRAP) -> Iterator[tuple[LaneGroup, Watch]]:
    """Run a plan's one lane as the program does, with sampling at 1 Hz beside it; it is ready and paused.

    `script` is the program of its process.
    """
    session = Session(read_machine(), time.monotonic_ns)
    watch = Watch(session)
    lanes = LaneGroup(session, lambda _scenario: plan, script)
    ticker = Ticker(HostProbe(lanes.pids), session.accept, interval_s=1.0)
    try:
        lanes.begin(plan)
        lanes.pause([plan.lanes[0].spec.name])
        ticker.start()
        watch.wait(lambda event: isinstance(event, PhaseEntered) and event.phase == READY, 0, GETTING_READY_S)
        yield lanes, watch
    finally:
        lanes.stop()
        ticker.close()


def plan_one_lane(scenario: str, lane: str) -> RacePlan:
    """Plan a race of one lane."""
    try:
        python = Path(sys.executable)
        race_options = RaceOptions(lanes=(lane,), mode=CONCURRENT, python=python)
        return plan_race(find_scenario(scenario), race_options, lambda _: find_gpus(python))[0]
    except TfmonError as error:
        raise SystemExit(str(error)) from error
