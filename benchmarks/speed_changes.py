"""Measures how often a change of a healthy lane's speed is reported, and how soon a real change is.

    .venv/bin/python benchmarks/speed_changes.py --record FOLDER    # records lanes for some minutes each
    .venv/bin/python benchmarks/speed_changes.py FOLDER/*.tfmon     # simulates

Stretches of half a minute are drawn from a recording at random, one after another, with all that was read beside
them, until a day is full; each change that is found is false. Then every window after some minutes takes longer by
a factor, and the time is taken until that is found.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from tfmon.analysis.speed_changes import changes_of
from tfmon.model.event_base import Event
from tfmon.model.lane_events import BINS_PER_OCTAVE, Window
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import HostSample, TreeSample, known
from tfmon.model.session import Session
from tfmon.model.speed import SpeedWatch
from tfmon.recordings.reader import Recording

STRETCH_S, BASELINE_S = 30.0, 300.0
LOOPS = {
    "keras": (
        "import numpy as np, keras; x = np.random.rand(20000, 64).astype('float32'); y = x.sum(1) > 32\n"
        "m = keras.Sequential([keras.layers.Dense(256, 'relu'), keras.layers.Dense(1, 'sigmoid')])\n"
        "m.compile('adam', 'binary_crossentropy'); m.fit(x, y, 64, 10**6, 0, validation_split=0.1)"
    ),
    "numpy": (
        "import numpy as np; from tfmon import report\nw = np.random.rand(300, 300) / 300\n"
        "while True:\n    w = np.tanh(w @ w.T + 0.1); report.step(examples=64, loss=float(w.mean()))"
    ),
}


def stretches_of(path: Path) -> tuple[LaneState, list[list[Event]]]:
    """Return the lane of a recording at its end, and its events in stretches of half a minute."""
    with Recording(path) as recording:
        session = Session(recording.header.machine, lambda: recording.times_ns[-1])
        recording.play(session, 0, len(recording))
        found: dict[int, list[Event]] = {}
        for event in recording.events(len(recording)):
            if isinstance(event, TreeSample | HostSample) or (isinstance(event, Window) and not event.marks):
                found.setdefault(round(event.at_ns / 1e9 // STRETCH_S), []).append(event)
        return session.snapshot().lanes[0], [found[one] for one in sorted(found)[1:-1]]


def drawn(stretches: Sequence[list[Event]], chance: random.Random) -> Iterator[Event]:
    """Yield the events of stretches in random order, without end."""
    while True:
        yield from chance.choice(stretches)


def watched(
    lane: LaneState, events: Iterator[Event], until_s: float, factor: float = 1.0, from_s: float = 0.0
) -> Iterator[tuple[float, int, str]]:
    """Yield the step of each found change, the number of steps after `from_s`, and its kind."""
    watch, at_ns, step, slower_from = SpeedWatch(), 0, 0, 0
    for event in events:
        if at_ns > until_s * 1e9:
            return
        if isinstance(event, TreeSample):
            watch.read(cpu_pct=known(event.cpu_pct), waited_pct=known(event.waited_pct))
        elif isinstance(event, HostSample):
            watch.read(others_pct=known(event.others_cpu_pct), stolen_pct=known(event.steal_pct))
        elif isinstance(event, Window):
            slow = at_ns >= from_s * 1e9
            span_ns = round(event.span_ns * (factor if slow else 1.0))
            at_ns, step = at_ns + span_ns, step + event.steps
            slower_from += event.steps if slow else 0
            later = round(BINS_PER_OCTAVE * math.log2(factor)) if slow else 0
            times = {one + later: count for one, count in event.histogram.items()}
            slowed = replace(event, at_ns=at_ns, span_ns=span_ns, histogram=times)
            before = watch.levels
            watch.add(slowed, step)
            if watch.levels != before:
                change = changes_of(replace(lane, speed=watch))[-1]
                what = change.cause if change.ratio.value > 1 else "faster"
                yield at_ns / 1e9, slower_from, what


def main(paths: Sequence[Path], hours: float, times: int) -> None:
    """Print a row of figures for each recording."""
    for path in paths:
        lane, stretches = stretches_of(path)
        false = Counter(what for *_, what in watched(lane, drawn(stretches, random.Random(1)), hours * 3600))
        print(f"{path.name}: {len(stretches)} stretches, {hours:g} h healthy: {dict(false) or 'no change found'}")
        for factor, limit_s in ((3.0, 60.0), (1.3, 60.0), (1.1, 300.0)):
            delays = []
            for seed in range(times):
                events, until_s = drawn(stretches, random.Random(seed)), BASELINE_S + limit_s
                found = list(watched(lane, events, until_s, factor, BASELINE_S))
                late = [
                    (at_s - BASELINE_S, steps)
                    for at_s, steps, what in found
                    if at_s > BASELINE_S and what != "faster"
                ]
                delays.append(late[0] if late else (float("inf"), 0))
            seconds, steps = sorted(delay[0] for delay in delays), sorted(delay[1] for delay in delays)
            missed = sum(second == float("inf") for second in seconds)
            print(
                f"    {factor:g} times slower: found after {median(seconds):.1f} s, {median(steps):.0f} steps "
                f"(median), {seconds[-1]:.1f} s at most, {missed} of {times} missed in {limit_s:.0f} s"
            )


def record(folder: Path, seconds: float) -> None:
    """Record a lane of each loop."""
    folder.mkdir(exist_ok=True)
    for name, loop in LOOPS.items():
        words = ("--headless", "--seconds", str(seconds), "--record", f"{folder}/{name}.tfmon")
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, "-m", "tfmon", "watch", *words, "--", sys.executable, "-c", loop]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=False, env=environment)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--times", type=int, default=20)
    given = parser.parse_args()
    if given.record is not None:
        record(given.record, given.seconds)
    main(given.paths, given.hours, given.times)
