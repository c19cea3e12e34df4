"""What share of a worker's time a sweep spends measuring or building, and how much sooner two workers are through.

    python benchmarks/sweep_workers.py [--combinations 16] [--slice 0.25] [--limit 4]

The lanes' step is a timed wait. The workers are on two stand-in hosts, which count as separate machines: places of
one machine take turns.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest import mock

from common import met, options_of

from tfmon.api import program as programs
from tfmon.api import sweep_program
from tfmon.api.options import SweepOptions
from tfmon.api.sweep_program import SweepProgram
from tfmon.lanes.group import LaneGroup
from tfmon.model.event_base import Event
from tfmon.model.events import ClockStarted
from tfmon.model.lane_events import BUILDING, READY, PhaseEntered, SliceEnded
from tfmon.model.session import Session

CHILD = Path(__file__).parents[1] / "tests" / "lanes" / "children" / "trainer.py"
SHARE, TIME = 0.85, 0.6
"""The goals."""


class Worker:
    """Activity on which a worker spends its time."""

    def __init__(self, session: Session) -> None:
        self.began_s = self.ended_s = time.monotonic()
        self.measuring_s = self.building_s = 0.0
        self._building: set[str] = set()
        self._since_s = 0.0
        session.listen(self._hear)

    def _hear(self, event: Event) -> None:
        now_s = time.monotonic()
        if self._building:
            self.building_s += now_s - self._since_s
            self._since_s = now_s
        match event:
            case PhaseEntered(phase=phase) if phase == BUILDING:
                self._building.add(event.lane)
                self._since_s = now_s
            case PhaseEntered(phase=phase) if phase == READY:
                self._building.discard(event.lane)
            case ClockStarted():
                self._since_s = now_s
            case SliceEnded():
                self.measuring_s += now_s - self._since_s
                self._since_s = self.ended_s = now_s

    @property
    def share(self) -> float:
        """The share of its time until its last slice."""
        return (self.measuring_s + self.building_s) / (self.ended_s - self.began_s)


def sweep(options, places: Sequence[str]) -> tuple[float, list[Worker]]:
    """Sweep a knob in some places; return the time that it took, and its workers."""
    values = ",".join(str(16 + number) for number in range(options.combinations))
    with tempfile.TemporaryDirectory() as folder:
        asked = SweepOptions(
            "small-dense",
            (f"batch_size={values}",),
            on=places,
            slice_s=options.slice,
            until_ci=0.01,
            limit_s=options.limit,
            everything=True,
            record=Path(folder) / "night.sweep",
        )
        program = SweepProgram(asked)
        try:
            workers = [Worker(station.session) for station in program._stations]
            began_s = time.monotonic()
            program.sweep.start()
            while not program.sweep.join(60):
                pass
            took_s = time.monotonic() - began_s
        finally:
            program.close()
    found = program.ranking
    assert found.settled == len(found.rows) and not found.state.lost, found.state
    visits = sum(row.attempt.visits for row in found.rows)
    print(f"{len(workers)} workers: {took_s:.1f} s for {visits} visits")
    for worker in workers:
        shares = [
            f"{100 * part / (worker.ended_s - worker.began_s):.0f} %"
            for part in (worker.measuring_s, worker.building_s)
        ]
        print(f"   measuring {shares[0]}, building {shares[1]}")
    return took_s, workers


def apart(init: Callable[..., None]) -> Callable[..., None]:
    """Let each place count as a separate machine."""

    def begin(self, info, word, race, number=1, counts=()):
        init(self, info, word, race, number, counts)
        self.machine = self.place

    return begin


@contextlib.contextmanager
def stand_ins() -> Iterator[None]:
    """Two hosts that are this machine, each with an agent."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.toml"
        hosts = [f'[hosts.{name}]\nrun = ["env"]\npython = "{sys.executable}"\n' for name in ("one", "two")]
        config.write_text("".join(hosts))
        with mock.patch.dict(os.environ, {"TFMON_CONFIG": str(config)}):
            yield


def main() -> None:
    options = options_of(__doc__, combinations=16, slice=0.25, limit=4.0)
    begin = apart(sweep_program.PlaceStation.__init__)
    with (
        mock.patch.object(sweep_program.PlaceStation, "__init__", begin),
        mock.patch.object(programs, "LaneGroup", functools.partial(LaneGroup, script=CHILD)),
        stand_ins(),
    ):
        one_s, workers = sweep(options, ["one/cpu"])
        two_s, more = sweep(options, ["one/cpu", "two/cpu"])
    share = min(worker.share for worker in workers + more)
    goal = f"at least {100 * SHARE:.0f} %: {met(share >= SHARE)}"
    print(f"measuring or building: {100 * share:.1f} % of a worker's time; {goal}")
    print(f"two workers: {two_s / one_s:.2f} of the time of one; at most {TIME}: {met(two_s / one_s <= TIME)}")


if __name__ == "__main__":
    main()
