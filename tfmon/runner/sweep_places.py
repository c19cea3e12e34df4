"""The places of a sweep: each has the lanes and probes of a race of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TYPE_CHECKING

from tfmon.catalog import ScenarioInfo
from tfmon.errors import TfmonError, UsageError
from tfmon.lanes.suspend import Suspender
from tfmon.model.knobs import Settings, exact
from tfmon.model.session import Session
from tfmon.model.sweep import kind_of
from tfmon.runner.planner import RaceOptions
from tfmon.runner.program import Program

if TYPE_CHECKING:
    from tfmon.hosts.ray_cluster import RayCluster

END_S = 10.0
"""How long a place may take to end its lanes."""
POLL_S = 0.05
MOST_WORKERS = 128
AT_ONCE = 16
"""So many places are opened or closed at the same time."""


class PlaceStation:
    """One place: a program of its own, whose races are the visits. It is the sweep's `Station`."""

    def __init__(self, info: ScenarioInfo, word: str, race: RaceOptions, number: int = 1) -> None:
        """Connect to the place, and find out what it is; raises TfmonError where it cannot be used."""
        self._info = info
        self._options = replace(race, lanes=(word,))
        self._program = Program(self._options)
        self._began = False
        try:
            plan = self._program.plan(info)
        except BaseException:
            self._program.close()
            raise
        spec = plan.lanes[0].spec
        self._word = spec.place  # a word that means any free GPU has become one: both lanes need the same
        self.place = f"{spec.place} #{number}" if number > 1 else spec.place
        self.kind = kind_of(spec)
        self.session: Session = self._program.session
        known = self.session.snapshot()
        host = known.hosts.get(spec.host)
        machine = host.machine if host is not None else known.machine
        self.machine = machine.boot or spec.host
        self.device = machine.cpu_name if spec.kind == "cpu" else next(iter(machine.gpus[spec.index :]), "")

    @property
    def suspension(self) -> Suspender:
        """What suspends its lanes along with tfmon."""
        return self._program.lanes.suspension

    def begin(self, settings: Settings) -> tuple[str, str]:
        """Start fresh processes of the baseline and of a combination, and return the names of the lanes."""
        words = ",".join([self._word, *(f"{knob}={exact(value)}" for knob, value in settings.items())])
        plan = self._program.plan(self._info, replace(self._options, lanes=(self._word, words)))
        if self._began:
            self._program.lanes.begin(plan)
        else:
            self._began = True
            self._program.begin(plan)
        base, changed = plan.lanes
        return base.spec.name, changed.spec.name

    def end(self) -> None:
        """End both lanes, and return when their processes are gone."""
        if self._began:
            self._program.lanes.finish()
            deadline = time.monotonic() + END_S
            while not self._program.lanes.all_over and time.monotonic() < deadline:
                time.sleep(POLL_S)

    def close(self) -> None:
        """End everything here."""
        self._program.close()


def split_places(words: Sequence[str], cluster: RayCluster | None = None) -> list[tuple[str, int]]:
    """Return each place with its number among those of the same name, from 1.

    A word for Ray stands for as many places as there is room for on the cluster now, with `*N` for N.

    Raises:
        UsageError: one is empty, has settings, or there are too many.
        TfmonError: the cluster has no room, or cannot be asked.
    """
    from tfmon.hosts.reservation import is_ray

    places: list[tuple[str, int]] = []
    for word in [part.strip() for one in words for part in one.split(",")]:
        name, star, times = word.partition("*")
        if not name or "=" in name or (star and not (times.isdecimal() and int(times) > 0)):
            raise UsageError(f"--on {word} is no place", "such as --on cpu, --on gpu:0,gpu2/gpu or --on ray/gpu*2")
        on_ray = is_ray(name.partition("/")[0])
        if star and not on_ray:
            raise UsageError(f"--on {word}: only a Ray cluster has a place several times", f"--on {name}")
        count = int(times) if star else _room(name, cluster) if on_ray else 1
        already = sum(one == name for one, _ in places)
        places += [(name, already + number) for number in range(1, min(count, 2 * MOST_WORKERS) + 1)]
        if len(places) > MOST_WORKERS:
            raise UsageError(
                f"{word} is too many: {MOST_WORKERS} workers are the most", f"--on {name}*{MOST_WORKERS}"
            )
    return places


def _room(word: str, cluster: RayCluster | None) -> int:
    from tfmon.hosts.ray_cluster import RayCluster

    room = (cluster or RayCluster()).workers(word)
    if not room:
        raise TfmonError(
            f"Ray has no room for {word} now", f"--on {word}*1 waits for it; tfmon hosts --ray lists it"
        )
    return min(room, MOST_WORKERS)


def open_stations(info: ScenarioInfo, words: Sequence[str], race: RaceOptions) -> list[PlaceStation]:
    """Connect to the places; what was opened is closed where one of them cannot be used."""
    places = split_places(words, race.ray)
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="tfmon-connect") as pool:
        waiting = [pool.submit(PlaceStation, info, word, race, number) for word, number in places]
        try:
            return [one.result() for one in waiting]
        except BaseException:  # Ctrl+C, too
            for one in waiting:
                one.cancel()
            opened, _ = wait(waiting)
            close_all([one.result() for one in opened if not one.cancelled() and one.exception() is None])
            raise


def close_all(stations: Sequence[PlaceStation]) -> None:
    """Close stations, many at the same time: each may take seconds."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="tfmon-close") as pool:
        list(pool.map(PlaceStation.close, stations))
