"""The views of the working folder in one run of tfmon: found before a race, settled as its lanes end."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tfmon.errors import TfmonError
from tfmon.lanes.plan import RacePlan
from tfmon.model import threads
from tfmon.model.codec import plain
from tfmon.model.events import Event, FilesWritten, LaneEnded, LaneStarted, RaceBegan
from tfmon.model.session import Session
from tfmon.model.views import IN_PLACE, LaneView, View, Written, close_store, settle
from tfmon.probes.views import find_view
from tfmon.recordings import library
from tfmon.runner.settings import resolve

if TYPE_CHECKING:
    from tfmon.hosts.connection import Connection


class Views:
    """Finds the views of the lanes of a user's command, and settles what each lane wrote once it has ended.

    Thread: `plan` may block for some tenths of a second, `close` for as long as the files take; the rest any.
    """

    def __init__(
        self,
        session: Session,
        connection: Callable[[str], Connection],
        failed: threads.Failed,
        *,
        kept: bool,
        recording: Path | None,
    ) -> None:
        """Listen to a session.

        Args:
            session: That of the race.
            connection: Returns the connection to a host.
            failed: Takes the reason why nothing can be settled any more.
            kept: Whether the files that lanes write are kept.
            recording: The file that the user named for the recording, which may be in the folder.
        """
        self._recording = recording.absolute() if recording is not None else None
        self._session = session
        self._connection = connection
        self._failed = failed
        self._kept = kept
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tfmon-views")
        self._running: dict[str, tuple[str, LaneView, float]] = {}
        """Host, view and start of the process of each lane that has a view."""
        self._stores: list[Path] = []
        self._found: dict[str, View] = {}
        session.listen(self._hear)

    def plan(self, plan: RacePlan, *, in_place: bool | None) -> RacePlan:
        """Return a plan with the views of its lanes.

        Args:
            plan: The race.
            in_place: Whether the lanes share the folder; None for: where there is one lane.
        """
        if not plan.command or (in_place is None and len(plan.lanes) < 2):
            return plan
        hosts = dict.fromkeys(lane.spec.host for lane in plan.lanes)
        views = {host: View(IN_PLACE, str(Path.cwd())) if in_place else self._find(host) for host in hosts}
        return replace(plan, race=replace(plan.race, views=views))

    def _find(self, host: str) -> View:
        if host not in self._found:
            mib = {name: int(float(resolve(name).value)) << 20 for name in ("view_copy", "view_files")}
            if host:
                from tfmon.hosts.connection import working_folder
                from tfmon.hosts.questions import read_view_answer  # late: most races need no host

                limits = {"copy_bytes": mib["view_copy"], "limit_bytes": mib["view_files"]}
                found = self._connection(host).ask("view", folder=working_folder(), **limits)
                self._found[host] = read_view_answer(found)
            else:
                folder = str(Path.cwd())
                self._found[host] = find_view(folder, library.folder(), mib["view_copy"], mib["view_files"])
        return replace(self._found[host], kept=self._kept)

    def close(self) -> None:
        """Wait until all that ended is settled; the lanes and their hosts must still be known."""
        with suppress(RuntimeError):  # closed before
            self._end_race()
        self._pool.shutdown(wait=True)

    # ---------------------------------------------------------------- as lanes end

    def _hear(self, event: Event) -> None:
        with suppress(RuntimeError):  # closed meanwhile
            match event:
                case RaceBegan():
                    self._end_race()
                    views = event.race.views.items()
                    self._stores = [Path(view.store) for host, view in views if view.store and not host]
                case LaneStarted():
                    self._retire(event.lane)  # the end of a process that is replaced is not told
                    if event.files:
                        known = self._session.snapshot()
                        host = known.lane(event.lane).spec.host
                        view = known.race.views[host]
                        lane_view = LaneView(view.kind, view.folder, event.files, view.limit_bytes)
                        self._running[event.lane] = host, lane_view, time.monotonic()
                case LaneEnded():
                    self._retire(event.lane)

    def _submit(self, work: Callable[[], object]) -> None:
        self._pool.submit(threads.guarded, "tfmon-views", work, self._failed)

    def _end_race(self) -> None:
        for lane in list(self._running):
            self._retire(lane)
        for store in self._stores:
            self._submit(partial(close_store, store))
        self._stores = []

    def _retire(self, lane: str) -> None:
        """Settle the process of a lane that has ended."""
        if (ended := self._running.pop(lane, None)) is not None:
            self._submit(partial(self._settle, lane, *ended))

    def _settle(self, lane: str, host: str, view: LaneView, started_s: float) -> None:
        age_s = time.monotonic() - started_s
        try:
            if host:
                from tfmon.hosts.questions import read_written_answer

                found = self._connection(host).ask("settle", view=plain(view), age_s=age_s)
                written: Written = read_written_answer(found)
            else:
                written = settle(view, age_s)
        except (TfmonError, OSError):
            return  # a lost host settles it with its next race
        edited = tuple(name for name in written.edited if Path(view.folder, name) != self._recording)
        written = replace(written, edited=edited)
        self._session.accept(FilesWritten(lane=lane, at_ns=time.monotonic_ns(), files=view.place, written=written))
