"""Persistent data of races."""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfmon.analysis.statistics import BETWEEN_PROCESSES_SD, MOST_DEGREES, compare, log_speeds
from tfmon.api.run_base import state_folder
from tfmon.api.settings import LimitOptions
from tfmon.errors import TfmonError
from tfmon.lanes.plan import RacePlan
from tfmon.model.codec import CodecError, parse, plain, read, to_json
from tfmon.model.events import Event, FilesWritten, RaceBegan
from tfmon.model.folder_views import IN_PLACE, View
from tfmon.model.race import TURNS, BetweenProcesses, Machine
from tfmon.model.session import Session, Snapshot
from tfmon.probes.view_support import find_view
from tfmon.recordings import library
from tfmon.system.view_files import settle, sweep

if TYPE_CHECKING:
    from tfmon.lanes.remote.connection import Connection

NOISY = 2 * BETWEEN_PROCESSES_SD
"""A larger error teaches nothing."""


def path() -> Path:
    """Return the file."""
    return state_folder() / "between-processes.json"


def recall(machines: Sequence[Machine]) -> BetweenProcesses | None:
    """Return the between-process variance of these machines."""
    return _read().get(_key(machines))


def remember_race(raced: Snapshot) -> None:
    """Store a race's variance, unless it is noisy."""
    if not raced.race.fresh or raced.race.mode != TURNS or len(raced.lanes) < 2:
        return
    first, last = raced.lanes[0], raced.lanes[-1]
    apart = raced.machine_key(first) != raced.machine_key(last)
    result = compare(log_speeds(first.slices), log_speeds(last.slices), apart=apart)
    between = result.between if result is not None else None
    if result is None or between is None or between.learnt is None:
        return
    if result.center.error * math.sqrt(between.processes) <= NOISY:
        remember([raced.machine_of(lane) for lane in raced.lanes], between.learnt)


def remember(machines: Sequence[Machine], learnt: BetweenProcesses) -> None:
    """Add a race's variance."""
    table, key = _read(), _key(machines)
    before = table.get(key) or BetweenProcesses(0.0, 0.0)
    squares, degrees = before.squares + learnt.squares, before.degrees + learnt.degrees
    part = min(1.0, MOST_DEGREES / degrees) if degrees > 0 else 0.0
    table[key] = BetweenProcesses(squares * part, degrees * part, before.races + 1)
    _write(table)


def _key(machines: Sequence[Machine]) -> str:
    return " and ".join(
        dict.fromkeys(
            f"{machine.hostname}, {machine.cpu_name}, {machine.usable_cores:g} cores" for machine in machines
        )
    )


def _read() -> dict[str, BetweenProcesses]:
    """Return the table. Empty for a broken file, because no race depends on it."""
    try:
        table: dict[str, BetweenProcesses] = read(parse(path().read_bytes()), dict[str, BetweenProcesses])
    except (OSError, CodecError):
        return {}
    return {key: one for key, one in table.items() if math.isfinite(one.squares) and 0 < one.degrees < math.inf}


def _write(table: Mapping[str, BetweenProcesses]) -> None:
    """Replace the file atomically, if possible."""
    with contextlib.suppress(OSError):
        path().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path().parent, prefix=path().name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(to_json(table), file, indent=1)
            Path(name).replace(path())
        except OSError:
            Path(name).unlink(missing_ok=True)


class Views:
    """The views of a user's lanes. Thread: `plan` and `close` can block."""

    def __init__(
        self, session: Session, connection: Callable[[str], Connection], *, kept: bool, links: Sequence[str]
    ) -> None:
        self._session, self._connection, self._kept = session, connection, kept
        self._links = tuple(links)
        self._found: dict[str, View] = {}
        self._races: list[tuple[dict[str, View], float]] = []
        session.listen(self._hear)

    def plan(self, plan: RacePlan, *, in_place: bool, restarts: bool) -> RacePlan:
        """Return a plan with views. A single lane that is not restarted has none."""
        while len(self._races) > 1:
            self._settle_first()
        if not plan.command or (not in_place and not restarts and len(plan.lanes) < 2):
            return plan
        hosts = dict.fromkeys(lane.spec.host for lane in plan.lanes)
        views = {host: View(IN_PLACE, str(Path.cwd())) if in_place else self._find(host) for host in hosts}
        return replace(plan, race=replace(plan.race, views=views))

    def _find(self, host: str) -> View:
        most = LimitOptions.of_user().view_copy << 20
        if host not in self._found and host:
            from tfmon.lanes.remote.connection import working_folder

            about = {"folder": working_folder(), "copy_bytes": most, "kept": self._kept}
            self._found[host] = self._ask(host, "view", about)
        elif host not in self._found:
            sweep(library.folder())
            self._found[host] = find_view(
                str(Path.cwd()), library.folder(), most, kept=self._kept, links=self._links
            )
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
            with contextlib.suppress(TfmonError, OSError):  # the next race removes the rest on a lost host
                if view.store and host:
                    settled[host] = self._ask(host, "settle", {"view": plain(view), "age_s": age_s})
                elif view.store:
                    settled[host] = settle(view, age_s)
        return settled

    def close(self) -> None:
        """Settle the written files."""
        while self._races:
            views = self._settle_first()
            if views and not self._races:
                self._session.accept(FilesWritten(at_ns=time.monotonic_ns(), views=views))
