"""Whether verdicts of real races are right, at any moment and at the end, quiet and under load.

Two lanes race that are the same, or of which one is slower by a known difference. They run TensorFlow's
kernels: two processes of the same loop in Python differ by 4 %, for as long as they live, by where their
memory lies. The verdict is asked after every round, for each way of looking: on a screen without an end, on
one with this length, and headless at the end. Each race is a line in a file, `--out`; a run with the same options
goes on where the last one stopped, and sums up all of them, `--races` in all.

    verdicts.py --races 20 --seconds 30                     identical lanes, quiet
    verdicts.py --races 20 --seconds 30 --load              with one busy process for random halves of the time
    verdicts.py --races 20 --seconds 180                    with fresh processes, as headless races of that length
    verdicts.py --races 20 --seconds 30 --difference 10     the first lane is 10 % faster
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import keep_row, kept_rows, options_of, program_of

from tfmon.analysis.verdict import SAME, Verdict, find_verdict
from tfmon.api.options import FRESH_FROM_S, RaceOptions
from tfmon.catalog import find_scenario
from tfmon.model.event_base import Event
from tfmon.model.lane_events import SliceEnded
from tfmon.model.lane_state import DONE
from tfmon.model.readings import ALWAYS_VALID, FIXED, SPENDING, IntervalKind
from tfmon.model.session import Snapshot

LOOPS = 200
"""Work of a step, some 5 ms; the other parts of a step take about 2 % of it."""

WORK = '''"""A step of so many products of matrices, one after the other."""

import tensorflow as tf

from tfmon.trainer import Knob, Scenario


class Work(Scenario):
    knobs = (Knob("loops", 200, "How much a step works.", low=1, high=100000),)
    without = ("batch_size", "prefetch", "graph", "xla", "mixed_precision", "sync_every_step")
    contrast = ("loops=200", "loops=220")

    def step(self, model):
        loops, matrix = self.knob("loops"), tf.linalg.qr(tf.random.normal((64, 64)))[0]

        def work():
            state = matrix
            for _ in tf.range(loops):
                state = tf.matmul(state, matrix)
            return tf.reduce_sum(state)

        return work
'''

LOAD = """
import os, random, time
parent = os.getppid()
while os.getppid() == parent:
    until = time.monotonic() + random.uniform(0.5, 4)
    while time.monotonic() < until:
        pass
    time.sleep(random.uniform(0.5, 4))
"""


@contextlib.contextmanager
def load(busy: bool, program: str = LOAD) -> Iterator[None]:
    """Keep one core busy at the priority of the lanes: for random halves of the time, or as a program does."""
    process = subprocess.Popen([sys.executable, "-c", program]) if busy else None
    try:
        yield
    finally:
        if process is not None:
            process.kill()
            process.wait()


def race(scenario: str, lanes: Sequence[str], seconds: float) -> list[Snapshot]:
    """Race without a screen, and return the analysis after each slice and at the end."""
    fresh = seconds >= FRESH_FROM_S
    known: list[Snapshot] = []

    def hear(event: Event) -> None:
        if isinstance(event, SliceEnded):
            known.append(program.session.snapshot())

    options = RaceOptions(
        lanes=tuple(lanes), python=Path(sys.executable), seconds=seconds, fresh=fresh, record=False
    )
    with program_of(options, find_scenario(scenario)) as program:
        program.session.listen(hear)
        while not program.lanes.all_over:
            time.sleep(0.1)
    return [*known, program.session.snapshot()]


def verdict_as(known: Snapshot, kind: IntervalKind) -> Verdict:
    """Return the verdict of a race that is looked at in this way."""
    lanes = known.lanes
    if kind == FIXED:
        lanes = tuple(replace(lane, phase=DONE) for lane in lanes)
    return find_verdict(replace(known, race=replace(known.race, interval=kind), lanes=lanes))


def judged(known: Sequence[Snapshot]) -> dict[str, Any]:
    """Return the verdicts of one race, and the time of the first."""
    end = known[-1]
    row: dict[str, Any] = {}
    for name, kind in (("screen", ALWAYS_VALID), ("known_length", SPENDING)):
        named = [(at, found.winner) for at in known if (found := verdict_as(at, kind)).winner]
        row[name] = {
            "ever": sorted({winner for _, winner in named}),
            "first_s": _seconds(named[0][0]) if named else None,
        }
    last = verdict_as(end, FIXED)
    row["headless"] = {"kind": last.kind, "winner": last.winner, "left_s": last.left_s, "text": last.answer}
    found = last.interval
    row["ratio"] = None
    if found is not None:
        row["ratio"] = found.value if last.ranking[0].id == end.lanes[0].spec.id else 1 / found.value
    row["discarded_share"] = max(sum(lane.discarded_shares.values()) for lane in end.lanes)
    return row


def _seconds(known: Snapshot) -> float:
    latest = max(lane.slices[-1].at_ns for lane in known.lanes if lane.slices)
    return (latest - (known.race.started_ns or latest)) / 1e9


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Race once more, and return the row."""
    if options.difference:
        path = folder / "work.py"
        path.write_text(WORK)
        scenario = str(path)
        lanes = [f"cpu,loops={LOOPS}", f"cpu,loops={round(LOOPS * (1 + options.difference / 100))}"]
    else:
        scenario, lanes = ("small-dense", "large-dense")[options.number % 2], ["cpu", "cpu"]
    with load(options.load):
        known = race(scenario, lanes, options.seconds)
    names = [lane.spec.name for lane in known[-1].lanes]
    right = names[0] if options.difference else None
    return {**key_of(options), "scenario": Path(scenario).stem, "right": right, **judged(known)}


def key_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return what rows must have in common to be counted together."""
    return {"seconds": options.seconds, "load": options.load, "difference": options.difference}


def summary(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Count the verdicts of all rows."""
    count = len(rows)

    def of(number: int) -> str:
        return f"{number} of {count}"

    lines = []
    for name in ("screen", "known_length"):
        wrong = sum(any(one != row["right"] for one in row[name]["ever"]) for row in rows)
        right = sum(row["right"] in row[name]["ever"] for row in rows)
        first = [row[name]["first_s"] for row in rows if row[name]["first_s"] is not None]
        middle = f", first after {statistics.median(first):.0f} s (median)" if first else ""
        lines.append(f"{name}: wrong winner at any moment {of(wrong)}, right winner {of(right)}{middle}")
    wrong = sum(row["headless"]["winner"] not in (None, row["right"]) for row in rows)
    right = sum(row["headless"]["winner"] == row["right"] is not None for row in rows)
    same = sum(row["headless"]["kind"] == SAME for row in rows)
    said = sum(row["headless"]["left_s"] is not None for row in rows)
    lines.append(
        f"headless, at the end: wrong winner {of(wrong)}, right winner {of(right)}, the same {of(same)}, "
        f"time that it still takes said {of(said)}"
    )
    ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
    if len(ratios) > 1:
        lines.append(f"ratio {statistics.mean(ratios):.3f}, standard deviation {statistics.stdev(ratios):.4f}")
    discarded = max((row["discarded_share"] for row in rows), default=0.0)
    lines.append(f"discarded: at most {100 * discarded:.0f} % of the measured time of a lane")
    return lines


def main() -> None:
    options = options_of(__doc__, races=20, seconds=30.0, difference=0.0, load=False, out="verdicts.jsonl")
    rows = kept_rows(options.out, key_of(options))
    with tempfile.TemporaryDirectory() as folder:
        while len(rows) < options.races:
            options.number = len(rows)
            rows.append(run(options, Path(folder)))
            keep_row(options.out, rows[-1])
            print(f"{len(rows)}: {rows[-1]['scenario']}: {rows[-1]['headless']['text']}", flush=True)
    print(
        f"\n{len(rows)} races of {options.seconds:g} s, difference {options.difference:g} %, load {options.load}"
    )
    print("\n".join(summary(rows[: options.races])))


if __name__ == "__main__":
    main()
