"""Persistent data of races."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfmon.analysis.statistics import BETWEEN_PROCESSES_SD, MOST_DEGREES, compare, pairs_of
from tfmon.api.options import RaceOptions
from tfmon.api.run_base import state_folder
from tfmon.api.settings import LimitOptions
from tfmon.errors import TfmonError
from tfmon.lanes.plan import RacePlan
from tfmon.model.codec import CodecError, parse, read, to_json
from tfmon.model.events import FilesWritten, RaceBegan
from tfmon.model.folder_views import IN_PLACE, View
from tfmon.model.race import TURNS, BetweenProcesses, Machine
from tfmon.model.session import Session, Snapshot
from tfmon.probes.view_support import find_view
from tfmon.recordings import library
from tfmon.system.replace_file import replacing
from tfmon.system.view_files import settle, sweep

if TYPE_CHECKING:
    from tfmon.lanes.remote.connection import Connection

NOISY = 2 * BETWEEN_PROCESSES_SD
"""A race with a larger error is ignored."""


def path() -> Path:
    """Return the file of the measured between-process variance."""
    return state_folder() / "between-processes.json"


def recall(machines: Sequence[Machine]) -> BetweenProcesses | None:
    """Return the between-process variance of these machines."""
    return _read().get(_key(machines))


def remember_race(raced: Snapshot) -> None:
    """Store a race's variance, unless it is noisy."""
    if not raced.race.fresh or raced.race.mode != TURNS or len(raced.lanes) < 2:
        return
    first, last = raced.lanes[0], raced.lanes[-1]
    two_machines = raced.machine_key(first) != raced.machine_key(last)
    result = compare(pairs_of(first.slices, last.slices), two_machines=two_machines)
    if result is None or result.between.learnt is None:
        return
    if result.center.error * math.sqrt(result.between.processes) <= NOISY:
        remember([raced.machine_of(lane) for lane in raced.lanes], result.between.learnt)


def remember(machines: Sequence[Machine], learnt: BetweenProcesses) -> None:
    """Add a race's variance."""
    table, key = _read(), _key(machines)
    before = table.get(key) or BetweenProcesses(0.0, 0.0)
    squares, degrees = before.squares + learnt.squares, before.degrees + learnt.degrees
    part = min(1.0, MOST_DEGREES / degrees) if degrees > 0 else 0.0
    table[key] = BetweenProcesses(squares * part, degrees * part, before.races + 1)
    _write(table)


def _key(machines: Sequence[Machine]) -> str:
    names = (f"{machine.hostname}, {machine.cpu_name}, {machine.usable_cores:g} cores" for machine in machines)
    return " and ".join(dict.fromkeys(names))


def _read() -> dict[str, BetweenProcesses]:
    """Return the table, which is empty for an unreadable file."""
    try:
        table: dict[str, BetweenProcesses] = read(parse(path().read_bytes()), dict[str, BetweenProcesses])
    except (OSError, CodecError):
        return {}
    return {
        key: estimate
        for key, estimate in table.items()
        if math.isfinite(estimate.squares) and 0 < estimate.degrees < math.inf
    }


def _write(table: Mapping[str, BetweenProcesses]) -> None:
    with contextlib.suppress(OSError):
        path().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(path()) as file:
            file.write(json.dumps(to_json(table), indent=1).encode())


class Views:
    """The views of lanes with scripts. Thread: `plan` and `close` can block."""

    def __init__(
        self, session: Session, connections: Mapping[str, Connection], options: RaceOptions, *, restarts: bool
    ) -> None:
        self._session, self._connections, self._options, self._restarts = session, connections, options, restarts
        self._by_host: dict[str, View] = {}
        self._races: list[tuple[dict[str, View], float]] = []
        session.listen(self._hear, RaceBegan)

    def plan(self, plan: RacePlan) -> RacePlan:
        """Return a plan with views, unless a single lane is never restarted."""
        while len(self._races) > 1:
            self._settle_first()
        in_place = self._options.in_place
        if not plan.command or (not in_place and not self._restarts and len(plan.lanes) < 2):
            return plan
        hosts = dict.fromkeys(lane.spec.host for lane in plan.lanes)
        views = {host: View(IN_PLACE, str(Path.cwd())) if in_place else self._find(host) for host in hosts}
        return replace(plan, race=replace(plan.race, views=views))

    def _find(self, host: str) -> View:
        most, kept = LimitOptions.of_user().view_copy << 20, bool(self._options.record)
        if host not in self._by_host and host:
            from tfmon.lanes.remote import questions
            from tfmon.lanes.remote.connection import working_folder

            self._by_host[host] = self._connections[host].ask(questions.view, working_folder(), most, kept)
        elif host not in self._by_host:
            store, links = library.folder(), self._options.link
            sweep(store)
            self._by_host[host] = find_view(str(Path.cwd()), store, most, kept=kept, links=links)
        return self._by_host[host]

    def _hear(self, event: RaceBegan) -> None:
        self._races.append((event.race.views, time.monotonic()))

    def _settle_first(self) -> dict[str, View]:
        views, began_s = self._races.pop(0)
        age_s, settled = time.monotonic() - began_s, dict(views)
        for host, view in views.items():
            with contextlib.suppress(TfmonError, OSError):  # the next race removes the rest on a lost host
                if view.store and host:
                    settled[host] = self._connections[host].ask(settle, view, age_s)
                elif view.store:
                    settled[host] = settle(view, age_s)
        return settled

    def close(self) -> None:
        """Settle the written files."""
        while self._races:
            views = self._settle_first()
            if views and not self._races:
                self._session.accept(FilesWritten(views=views))
