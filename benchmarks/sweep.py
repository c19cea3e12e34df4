"""Measures the cost of a sweep: 1,000 combinations, 100 workers and 500 windows a second, simulated.

    python benchmarks/sweep.py [--seconds 60] [--workers 100] [--combinations 1000] [--windows 500]

The lanes are simulated in this process and train in real time; what making their messages takes is subtracted.
All else is the monitor's own: decoding, sessions, figures, the file, and the table once a second.
"""

from __future__ import annotations

import gc
import tempfile
import threading
import time
from pathlib import Path

import psutil
from common import options_of
from support.sweeps import SimulatedStation, planned

from tfmon.analysis.series_tables import sweep_table
from tfmon.analysis.sweep_ranking import rank
from tfmon.api.run_base import YOUNG_OBJECTS
from tfmon.model.codec import encode, parse, read
from tfmon.model.event_base import Event
from tfmon.model.lane_events import Window
from tfmon.model.race import Machine
from tfmon.model.series import SeriesStep
from tfmon.model.session import Session
from tfmon.recordings import sweeps
from tfmon.series.engine import Series
from tfmon.series.sweep import SweepPolicy
from tfmon.ui.render.table import columns_of

MIB = 2**20


def main() -> None:
    options = options_of(__doc__, seconds=60.0, workers=100, combinations=1_000, windows=500.0)
    pause_s = options.workers / options.windows
    over = {"batch_size": tuple(range(1, options.combinations // 2 + 1)), "mixed_precision": ("off", "bfloat16")}
    state = planned(over, until_ci=0.01, each_s=1e9)
    stations = [
        SimulatedStation(
            f"node{number}/cpu",
            machine=f"node{number}",
            pause_s=pause_s,
            speed=lambda own: 1_000.0 + int(own["batch_size"]),
            noise=0.05,
        )
        for number in range(options.workers)
    ]
    process = psutil.Process()
    with tempfile.TemporaryDirectory() as folder:
        file = sweeps.create(Path(folder) / "night.sweep", state)
        session, viewer = (Session(Machine(), time.monotonic_ns) for _ in range(2))
        session.advance_series(state)
        viewer.advance_series(state)
        sent_s = read_s = 0.0

        def tell(event: Event) -> None:
            """Send a step as a viewer gets it, and read it as the viewer's process does."""
            nonlocal sent_s, read_s
            began_s = time.thread_time()
            line = encode(event)
            sent_s += (read_from_s := time.thread_time()) - began_s
            viewer.accept(read(parse(line), Event))
            read_s += time.thread_time() - read_from_s

        def keep(step: SeriesStep) -> None:
            file.write(step)
            session.advance_series(step)

        session.listen(tell)
        sweep = Series(state, SweepPolicy(), stations, keep)
        sweep.start()
        gc.freeze()  # as the process that runs a sweep does
        gc.set_threshold(YOUNG_OBJECTS)
        time.sleep(5)
        events, windows = [0], [0]

        def count(event: Event) -> None:
            events[0] += 1
            windows[0] += isinstance(event, Window)

        for station in stations:
            station.session.listen(count)
        began_s, cpu_s = time.monotonic(), time.process_time()
        made_s = sum(station.made_s for station in stations)
        memory = [process.memory_info().rss / MIB]
        table_s, ranking = 0.0, None
        sent_s = read_s = 0.0
        while (elapsed_s := time.monotonic() - began_s) < options.seconds:
            time.sleep(1.0)
            before_s = time.thread_time()
            ranking = rank(sweep.state, ranking)
            columns_of(sweep_table(ranking), 200)
            table_s += time.thread_time() - before_s
            memory.append(process.memory_info().rss / MIB)
        spent_s = time.process_time() - cpu_s - (sum(station.made_s for station in stations) - made_s)
        spent_s -= sent_s + read_s
        known = sweep.state
        pairs = sum(len(attempt.pairs) for attempt in known.attempts)
        visits = sum(attempt.visits for attempt in known.attempts)
        size = file.path.stat().st_size / MIB
        threads = threading.active_count()
        sweep.stop()
        sweep.join(10)
        file.close()
    third = len(memory) // 3
    print(f"{options.combinations} combinations, {options.workers} workers, {elapsed_s:.0f} s")
    rates = f"{windows[0] / elapsed_s:.0f} windows/s, {events[0] / elapsed_s:.0f} events/s"
    print(f"{rates}, {pairs} pairs, {visits} visits, {threads} threads")
    share, table_share = 100 * spent_s / elapsed_s, 100 * table_s / elapsed_s
    print(f"CPU of the monitor: {share:.1f} % of a core, of it the table {table_share:.1f} %")
    sent_share, read_share = 100 * sent_s / elapsed_s, 100 * read_s / elapsed_s
    print(f"a viewer: {sent_share:.1f} % more for what changed, and {read_share:.1f} % in its process to read it")
    middle, end = sum(memory[third : 2 * third]) / third, sum(memory[-third:]) / third
    print(f"memory: {memory[0]:.0f} MiB, then {middle:.0f} and at the end {end:.0f} MiB; the file {size:.2f} MiB")


if __name__ == "__main__":
    main()
