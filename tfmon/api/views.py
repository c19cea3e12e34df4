"""The views of the working folder in one run of tfmon: found before a race, settled when it is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfmon.api.settings import resolve
from tfmon.errors import TfmonError
from tfmon.lanes.plan import RacePlan
from tfmon.model.codec import plain
from tfmon.model.events import Event, FilesWritten, RaceBegan
from tfmon.model.session import Session
from tfmon.model.views import IN_PLACE, View, settle, sweep
from tfmon.probes.views import find_view
from tfmon.recordings import library

if TYPE_CHECKING:
    from tfmon.lanes.remote.connection import Connection


class Views:
    """Finds the views of the lanes of a user's command, and settles what they wrote once a race is over.

    Thread: `plan` may block for some tenths of a second, and for as long as the files of an earlier race take, as
    does `close`.
    """

    def __init__(self, session: Session, connection: Callable[[str], Connection], *, kept: bool) -> None:
        """Listen to a session; `connection` returns that to a host, `kept` says whether files are kept."""
        self._session, self._connection, self._kept = session, connection, kept
        self._found: dict[str, View] = {}
        self._races: list[tuple[dict[str, View], float]] = []
        """Views and start of the races that are not settled; the last one may be under way."""
        session.listen(self._hear)

    def plan(self, plan: RacePlan, *, in_place: bool | None) -> RacePlan:
        """Return a plan with the views of its lanes.

        Args:
            plan: The race.
            in_place: Whether the lanes share the folder; None for: where there is one lane.
        """
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
            with suppress(TfmonError, OSError):  # what a lost host has is removed by its next race
                if view.store and host:
                    settled[host] = self._ask(host, "settle", {"view": plain(view), "age_s": age_s})
                elif view.store:
                    settled[host] = settle(view, age_s)
        return settled

    def close(self) -> None:
        """Settle what the lanes wrote; they have ended, and their hosts must still be known."""
        while self._races:
            views = self._settle_first()
            if views and not self._races:
                self._session.accept(FilesWritten(at_ns=time.monotonic_ns(), views=views))
