"""Persistent data of races: files of lanes, between-process variance; and the lock of the running race."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfmon import units
from tfmon.analysis.statistics import BETWEEN_PROCESSES_SD, MOST_DEGREES, LogRatio, compare, log_speeds
from tfmon.api.settings import resolve
from tfmon.errors import TfmonError
from tfmon.lanes.plan import RacePlan
from tfmon.model.codec import plain
from tfmon.model.events import Event, FilesWritten, RaceBegan
from tfmon.model.race import TURNS, BetweenProcesses, Machine
from tfmon.model.session import Session, Snapshot
from tfmon.model.views import IN_PLACE, View, settle, sweep
from tfmon.probes.views import find_view
from tfmon.recordings import library

if TYPE_CHECKING:
    from tfmon.lanes.remote.connection import Connection

FOLDER_VARIABLE = "TFMON_STATE"
NOISY = 2 * BETWEEN_PROCESSES_SD
"""With a larger standard error of one process's speed, a race teaches nothing about others."""
MOST = 300


def state_folder() -> Path:
    """Return the folder for persistent data; it may not exist."""
    from platformdirs import user_state_path

    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named) if named else user_state_path("tfmon", appauthor=False)


def path() -> Path:
    """Return the file; it may not exist."""
    return state_folder() / "between-processes.json"


def recall(machines: Sequence[Machine], scenario: str, devices: Sequence[str]) -> BetweenProcesses | None:
    """Return the between-process variance of a scenario on these machines. `None` if unknown."""
    return _read_entry(_read().get(_key(machines, scenario, devices)))


def remember_lanes(raced: Snapshot) -> None:
    """Store the between-process variance of a race with fresh processes, for the next race."""
    if not raced.race.fresh or raced.race.mode != TURNS or len(raced.lanes) < 2:
        return
    first, last = raced.lanes[0], raced.lanes[-1]
    apart = raced.machine_key(first) != raced.machine_key(last)
    result = compare(log_speeds(first.slices), log_speeds(last.slices), apart=apart)
    if result is not None:
        machines = [raced.machine_of(lane) for lane in raced.lanes]
        remember_race(machines, raced.race.scenario, [lane.spec.kind for lane in raced.lanes], result)


def remember_race(machines: Sequence[Machine], scenario: str, devices: Sequence[str], log_ratio: LogRatio) -> None:
    """Store the between-process variance from a comparison with fresh processes, unless it is too noisy."""
    between = log_ratio.between
    if between is None or between.learnt is None or log_ratio.center.error * math.sqrt(between.processes) > NOISY:
        return
    remember(machines, scenario, devices, between.learnt)


def remember(machines: Sequence[Machine], scenario: str, devices: Sequence[str], learnt: BetweenProcesses) -> None:
    """Add a race's variance to the file, if writable; the total counts for at most `MOST_DEGREES`."""
    table, key = _read(), _key(machines, scenario, devices)
    before = _read_entry(table.pop(key, None)) or BetweenProcesses(0.0, 0.0)
    squares, degrees = before.squares + learnt.squares, before.degrees + learnt.degrees
    part = min(1.0, MOST_DEGREES / degrees) if degrees > 0 else 0.0
    table[key] = {"squares": squares * part, "degrees": degrees * part, "races": before.races + 1}
    _write({name: table[name] for name in list(table)[-MOST:]})


def _key(machines: Sequence[Machine], scenario: str, devices: Sequence[str]) -> str:
    places = dict.fromkeys(
        ", ".join((one.hostname, one.cpu_name, f"{one.usable_cores:g} cores", *one.gpus)) for one in machines
    )
    return f"{scenario} ({' and '.join(devices)}) on {' and on '.join(places)}"


def _read_entry(value: object) -> BetweenProcesses | None:
    if not isinstance(value, Mapping):
        return None
    numbers = [value.get(name) for name in ("squares", "degrees", "races")]
    if not all(isinstance(one, int | float) and math.isfinite(one) for one in numbers):
        return None
    squares, degrees, races = (float(one) for one in numbers if isinstance(one, int | float))
    return BetweenProcesses(squares, degrees, int(races)) if degrees > 0 else None


def _read() -> dict[str, Any]:
    """Return the table. Empty for a missing or broken file, because no race depends on it."""
    try:
        table = json.loads(path().read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return table if isinstance(table, dict) else {}


def _write(table: Mapping[str, Any]) -> None:
    """Replace the file atomically; leave it if that is impossible."""
    with contextlib.suppress(OSError):
        path().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path().parent, prefix=path().name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(table, file, indent=1)
            Path(name).replace(path())
        except OSError:
            Path(name).unlink(missing_ok=True)


class Views:
    """The views of a user's lanes, whose written files are settled after a race.

    Thread: `plan` and `close` can block for tenths of a second, plus the time for the files of an earlier race.
    """

    def __init__(self, session: Session, connection: Callable[[str], Connection], *, kept: bool) -> None:
        """Listen to a session; `connection` returns that to a host, `kept` whether files are kept."""
        self._session, self._connection, self._kept = session, connection, kept
        self._found: dict[str, View] = {}
        self._races: list[tuple[dict[str, View], float]] = []
        """Views and start of the unsettled races; the last can be under way."""
        session.listen(self._hear)

    def plan(self, plan: RacePlan, *, in_place: bool | None) -> RacePlan:
        """Return a plan with the views of its lanes; `in_place` None: for a single lane."""
        while len(self._races) > 1:
            self._settle_first()
        if not plan.command or (in_place is None and len(plan.lanes) < 2):
            return plan
        hosts = dict.fromkeys(lane.spec.host for lane in plan.lanes)
        views = {host: View(IN_PLACE, str(Path.cwd())) if in_place else self._find(host) for host in hosts}
        return replace(plan, race=replace(plan.race, views=views))

    def _find(self, host: str) -> View:
        most = int(float(resolve("view_copy").value)) << 20
        if host not in self._found and host:
            from tfmon.lanes.remote.connection import working_folder  # late: most races need no host

            about = {"folder": working_folder(), "copy_bytes": most, "kept": self._kept}
            self._found[host] = self._ask(host, "view", about)
        elif host not in self._found:
            sweep(library.folder())
            self._found[host] = find_view(str(Path.cwd()), library.folder(), most, kept=self._kept)
        return self._found[host]

    def _ask(self, host: str, question: str, about: dict[str, Any]) -> View:
        from tfmon.lanes.remote.questions import read_part

        return read_part(self._connection(host).ask(question, **about), "view", View)

    def _hear(self, event: Event) -> None:
        if isinstance(event, RaceBegan):
            self._races.append((event.race.views, time.monotonic()))

    def _settle_first(self) -> dict[str, View]:
        views, began_s = self._races.pop(0)
        age_s, settled = time.monotonic() - began_s, dict(views)
        for host, view in views.items():
            with contextlib.suppress(TfmonError, OSError):  # what a lost host has is removed by its next race
                if view.store and host:
                    settled[host] = self._ask(host, "settle", {"view": plain(view), "age_s": age_s})
                elif view.store:
                    settled[host] = settle(view, age_s)
        return settled

    def close(self) -> None:
        """Settle the written files of ended lanes, whose hosts must still be known."""
        while self._races:
            views = self._settle_first()
            if views and not self._races:
                self._session.accept(FilesWritten(at_ns=time.monotonic_ns(), views=views))


LOOK_EVERY_S = 0.1
TOLD_EVERY_S = 1.0
Tell = Callable[[str], None]
_IN_THIS_PROCESS = threading.Lock()


@contextlib.contextmanager
def alone(wait: bool, tell: Tell | None) -> Iterator[None]:
    """Wait until this user has no other race that Python began; raises TfmonError instead, if not to wait."""
    since_s, told_s, looks = time.monotonic(), -TOLD_EVERY_S, 0
    with contextlib.ExitStack() as entered:
        while other := _enter(entered):
            looks += 1
            if not wait and looks > 1:  # a race on a terminal holds the lock for a moment, to look
                raise TfmonError(f"another race is under way{other}", "wait=True waits until it is over")
            now_s = time.monotonic()
            if tell is not None and now_s >= told_s + TOLD_EVERY_S:
                told_s = now_s
                tell(f"another race is under way{other}; waiting for its end: {units.clock(now_s - since_s)}")
            time.sleep(LOOK_EVERY_S)
        yield


@contextlib.contextmanager
def beside() -> Iterator[str]:
    """Announce a race on a terminal to others; return the text about another race: neither waits."""
    with contextlib.ExitStack() as entered:
        with contextlib.ExitStack() as looked:
            other = _enter(looked)
        other = other or _enter(entered, "terminal.lock")
        yield (
            f"another race is under way{other}: the lanes of each disturb the figures of the other"
            if other
            else ""
        )


def _enter(entered: contextlib.ExitStack, name: str = "race.lock") -> str:
    """Lock both files, to be released by `entered`; return the process that has a taken lock."""
    if not _IN_THIS_PROCESS.acquire(blocking=False):
        return " in this process"
    with contextlib.ExitStack() as mine:
        mine.callback(_IN_THIS_PROCESS.release)
        path = state_folder() / name
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            fd = None  # a folder that cannot be written: other processes are not seen
        if fd is not None:
            mine.callback(os.close, fd)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(fd, 0)
                os.write(fd, str(os.getpid()).encode())
            except BlockingIOError:
                return f" (process {os.read(fd, 20).decode('ascii', 'replace')})"
            except OSError:
                pass  # a file system without locks, or without room for the number
        entered.push(mine.pop_all())
    return ""
