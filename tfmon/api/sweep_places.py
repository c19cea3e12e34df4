"""The places of a sweep."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TYPE_CHECKING

from tfmon.api.options import Purpose, RaceOptions
from tfmon.api.program import Program
from tfmon.catalog import ScenarioInfo
from tfmon.errors import DeviceAbsentError, UsageError
from tfmon.lanes.remote.remote_host import is_ray, word_of
from tfmon.lanes.suspend import Suspender
from tfmon.model.folder_views import View
from tfmon.model.knobs import KnobValue, exact
from tfmon.model.series import Attempt, kind_of
from tfmon.model.spec import KINDS, counted, devices_of
from tfmon.series.engine import RaceStation

if TYPE_CHECKING:
    from tfmon.lanes.plan import RacePlan
    from tfmon.lanes.remote.ray import RayCluster
    from tfmon.model.spec import LaneSpec

END_S = 10.0
POLL_S = 0.05
MOST_WORKERS = 128
AT_ONCE = 16
ON = ("on",)


class ProgramStation(RaceStation):
    """A place whose races are the visits."""

    def __init__(self, options: RaceOptions, purpose: Purpose) -> None:
        self.options = options
        self.program = Program(options, purpose)
        self.session = self.program.session
        self._began = False

    @property
    def suspension(self) -> Suspender:
        """Suspends its lanes along with tfmon."""
        return self.program.lanes.suspension

    def race(self, plan: RacePlan) -> tuple[str, str]:
        """Start fresh lanes; return their names."""
        if self._began:
            self.program.lanes.begin(plan)
        else:
            self._began = True
            self.program.begin(plan)
        first, second = plan.lanes
        return first.spec.name, second.spec.name

    def end(self) -> None:
        """End both lanes, and wait."""
        if self._began:
            self.program.lanes.finish()
            deadline = time.monotonic() + END_S
            while not self.program.lanes.all_over and time.monotonic() < deadline:
                time.sleep(POLL_S)

    def close(self) -> None:
        """End everything here."""
        self.program.close()


class PlaceStation(ProgramStation):
    """One place of a sweep."""

    def __init__(
        self, info: ScenarioInfo, word: str, race: RaceOptions, number: int = 1, counts: Sequence[int] = ()
    ) -> None:
        super().__init__(race, Purpose(watched=False, restarts=True))
        self._info = info
        self._counts = counts
        self._word = word
        self.views: dict[str, View] = {}
        self.absent: dict[int, str] = {}
        """Unavailable numbers of devices, with the error."""
        try:
            spec = self._find(word)
        except BaseException:
            self.close()
            raise
        if not counts:
            self._word = spec.place  # both lanes need the same GPU
        self.place = f"{self._word} #{number}" if number > 1 else self._word
        self.kind = spec.kind if counts else kind_of(spec)
        known = self.session.snapshot()
        host = known.hosts.get(spec.host)
        machine = host.machine if host is not None else known.machine
        self.machine = machine.boot or spec.host
        self.hardware = machine
        self.device = machine.cpu_name if spec.kind == "cpu" else next(iter(machine.gpus[spec.index :]), "")

    def _find(self, word: str) -> LaneSpec:
        """The largest number is searched first, to reserve it in Ray."""
        for count in sorted(self._counts, reverse=True)[:-1]:
            try:
                self._planned(_with_count(word, count))
            except DeviceAbsentError as error:
                self.absent[count] = error.message
        return self._planned(_with_count(word, min(self._counts)) if self._counts else word).lanes[0].spec

    def _planned(self, *lanes: str) -> RacePlan:
        plan = self.program.plan(self._info, replace(self.options, lanes=lanes))
        self.views = plan.race.views
        return plan

    def begin(self, attempt: Attempt) -> tuple[str, str]:
        """Start both lanes; return their names."""
        settings = attempt.settings
        knobs = [f"{knob}={exact(value)}" for knob, value in settings.items() if knob not in KINDS]
        base, changed = self._word, self._word
        if self._counts:
            base, changed = _with_count(base, min(self._counts)), _with_count(base, devices_of(settings))
        plan = self._planned(base, ",".join([changed, *knobs]))
        return self.race(plan)


def _with_count(word: str, count: int) -> str:
    host, slash, kind = word.rpartition("/")
    return f"{host}{slash}{count}x{kind}"


def split_places(given: Sequence[str], cluster: RayCluster | None = None, most: int = 0) -> list[tuple[str, int]]:
    """Return each place with its number among equal ones; raises UsageError or TfmonError.

    A word for Ray expands to the free places, or N with `*N`.
    """
    places: list[tuple[str, int]] = []
    unlimited: list[str] = []
    for word in [part.strip() for one in given for part in one.split(",")]:
        name, star, times = word.partition("*")
        if not name or "=" in name or (star and not (times.isdecimal() and int(times) > 0)):
            raise UsageError(
                f"--on {word} is not a place", "such as --on cpu, --on gpu:0,gpu2/gpu, --on ray/gpu*2", options=ON
            )
        on_ray = is_ray(name.partition("/")[0])
        if star and not on_ray:
            raise UsageError(
                f"--on {word}: only a Ray cluster has a place several times", f"--on {name}", options=ON
            )
        if on_ray and not star:
            _check_disjoint(name, unlimited)
            unlimited.append(name)
        count = int(times) if star else _room(_with_count(name, most) if most else name, cluster) if on_ray else 1
        already = sum(one == name for one, _ in places)
        places += [(name, already + number) for number in range(1, min(count, 2 * MOST_WORKERS) + 1)]
        if len(places) > MOST_WORKERS:
            raise UsageError(
                f"{word} is too many: {MOST_WORKERS} workers are the most",
                f"--on {name}*{MOST_WORKERS}",
                options=ON,
            )
    return places


def _check_disjoint(name: str, others: Sequence[str]) -> None:
    host, _, kind = name.rpartition("/")
    for other in others:
        other_host, _, other_kind = other.rpartition("/")
        kind_of_node, before = word_of(host), word_of(other_host)
        if kind == other_kind and (kind_of_node == before or not kind_of_node or not before):
            raise UsageError(
                f"--on {other} and {name} have devices in common", f"say how many: --on {name}*2", options=ON
            )


def _room(word: str, cluster: RayCluster | None) -> int:
    from tfmon.lanes.remote.ray import RayCluster

    room = (cluster or RayCluster()).workers(word)
    if not room:
        raise DeviceAbsentError(
            f"Ray has no room for {word} now",
            f"--on {word}*1 waits for it; tfmon hosts --ray lists it",
            options=ON,
        )
    return min(room, MOST_WORKERS)


def open_stations(
    info: ScenarioInfo, places_given: Sequence[str], race: RaceOptions, over: Mapping[str, Sequence[KnobValue]]
) -> list[PlaceStation]:
    """Connect to the places; raises UsageError or TfmonError."""
    name = counted(over)
    counts = [int(value) for value in over.get(name, ())]
    places = split_places(places_given, race.ray_cluster, max(counts, default=0))
    for word, _ in places:
        if name and word.rpartition("/")[2] != KINDS[name]:
            hint = f"such as --on {KINDS[name]} or HOST/{KINDS[name]}"
            raise UsageError(f"--on {word} has no number of {name} to sweep over", hint, options=ON)
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="tfmon-connect") as pool:
        waiting = [pool.submit(PlaceStation, info, word, race, number, counts) for word, number in places]
        try:
            return [one.result() for one in waiting]
        except BaseException:  # Ctrl+C, too
            for one in waiting:
                one.cancel()
            opened, _ = wait(waiting)
            close_all([one.result() for one in opened if not one.cancelled() and one.exception() is None])
            raise


def close_all(stations: Sequence[PlaceStation]) -> None:
    """Close stations at the same time."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="tfmon-close") as pool:
        list(pool.map(PlaceStation.close, stations))
