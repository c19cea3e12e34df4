"""Measures the cost of an event and of a snapshot in a session with two lanes that train in turns.

`--minutes` is the length of the race. All events are made before they are timed. Times are CPU times of the
process. Times and memory depend on the machine.
"""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Iterator

from common import options_of

from tfmon.model.events import Event, LaneStarted, SliceGranted
from tfmon.model.lane_events import PhaseEntered, SliceEnded, Window
from tfmon.model.race import Machine, Race
from tfmon.model.readings import TreeSample
from tfmon.model.session import Session
from tfmon.model.spec import LaneSpec, name_lanes

SECOND_NS = 1_000_000_000
WINDOWS = 3
"""Windows of a slice of half a second."""
SNAPSHOTS = 200


def main() -> None:
    minutes: float = options_of(__doc__, minutes=20.0).minutes
    session = Session(Machine(cores=2), lambda: 0)
    specs = name_lanes([LaneSpec("cpu"), LaneSpec("cpu", {"batch_size": 64})])
    session.begin(Race("benchmark"), specs)
    names = [spec.name for spec in specs]
    for name in names:
        session.accept(LaneStarted(lane=name, at_ns=0, pid=1, settings={}))
        session.accept(PhaseEntered(lane=name, at_ns=0, phase="racing"))
    rounds, chance = round(minutes * 60), random.Random(1)
    events = [event for number in range(rounds) for event in round_of(names, number, chance)]
    began_s = time.process_time()
    for event in events:
        session.accept(event)
    took_s = time.process_time() - began_s
    print(f"{1e6 * took_s / len(events):.1f} µs an event, {100 * took_s / rounds:.3f} % of a core")
    times_ns = []
    for number in range(rounds, rounds + SNAPSHOTS):
        for event in round_of(names, number, chance):
            session.accept(event)
        began_ns = time.process_time_ns()
        session.snapshot()
        times_ns.append(time.process_time_ns() - began_ns)
    times_ns.sort()
    median_us, p95_us = (times_ns[round(share * SNAPSHOTS)] / 1e3 for share in (0.5, 0.95))
    print(f"a snapshot after events of both lanes: {median_us:.0f} µs, p95 {p95_us:.0f} µs")
    tracemalloc.start()
    for number in range(rounds + SNAPSHOTS, 2 * rounds + SNAPSHOTS):
        for event in round_of(names, number, chance):
            session.accept(event)
    print(f"{tracemalloc.get_traced_memory()[0] / 2**20:.1f} MiB allocated in {minutes:g} more minutes")


def round_of(names: list[str], number: int, chance: random.Random) -> Iterator[Event]:
    """Yield the events of a round of one second."""
    for place, name in enumerate(names):
        at_ns = number * SECOND_NS + place * SECOND_NS // 2
        yield SliceGranted(lane=name, at_ns=at_ns)
        for part in range(1, WINDOWS + 1):
            bins = [1_500 + chance.randrange(40) for _ in range(10)]
            yield Window(
                lane=name,
                at_ns=at_ns + part * SECOND_NS // 2 // WINDOWS,
                span_ns=SECOND_NS // 2 // WINDOWS,
                steps=len(bins),
                examples=32 * len(bins),
                step=(WINDOWS * number + part) * len(bins),
                input_ns=1,
                call_ns=1,
                sync_ns=1,
                report_ns=1,
                longest_ns=1,
                histogram={index: bins.count(index) for index in bins},
                loss=0.5,
                settings={"batch_size": 32},
                round=number,
            )
        end_ns = at_ns + SECOND_NS // 2
        yield SliceEnded(lane=name, at_ns=end_ns, round=number)
        yield TreeSample(lane=name, at_ns=end_ns, cpu_pct=90.0, private_bytes=1e9, processes=1, pids=(1,))


if __name__ == "__main__":
    main()
