"""Measures verdicts of races of short and long steps: whether, when, whether right; and the cost of a switch.

Steps are busy loops of known length, one lane beside another in all pairs of `--steps`. `simulated` drives the
scheduler, the lanes' control, the session and the verdict with a simulated clock; speeds scatter as on a
busy machine. `real` races scripts. `switch` trains a convolution in two lanes and measures how much longer
the first step of a slice takes. Each race is a line of the file `--out`; a run goes on where the last one
stopped. `table` prints what docs/method.md shows.

    slow_steps.py simulated --races 40
    slow_steps.py real --pairs 10:1000,5000:5000     only these; by default all pairs
    slow_steps.py switch --batch 64 --slice 4
    slow_steps.py table
"""

from __future__ import annotations

import contextlib
import itertools
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from common import keep_row, kept_rows, program_of, run_command

from tfmon import units
from tfmon.analysis.verdict import FASTER, SAME, Verdict, find_verdict
from tfmon.api.options import RaceOptions
from tfmon.catalog import command_scenario
from tfmon.lanes.scheduler import Scheduler
from tfmon.model.event_base import Event
from tfmon.model.lane_events import SLICE_START, PhaseEntered, SliceEnded
from tfmon.model.race import TURNS, Machine, Race
from tfmon.model.requests import Request, RunSlice
from tfmon.model.session import Session, Snapshot
from tfmon.model.spec import LaneSpec
from tfmon.trainer import lane_control, step_clock
from tfmon.trainer.lane_control import LaneControl
from tfmon.trainer.step_clock import Sampler

STEPS_MS = (0.1, 10.0, 1_000.0, 5_000.0, 20_000.0, 60_000.0)
NAMES = ("A", "B")
BEAT_S, SLICE_S = 0.5, 0.5
BATCH = 32
SCATTER = 0.03
"""Standard deviation of the speed in a second, as on a machine with some other work."""
BETWEEN = 0.008 / math.sqrt(2)
"""Of the speed of equal processes, each."""
SWITCH_NS = 2_000_000
"""Cost of a switch; see `switch`."""
MOST_ROUNDS = 150
LONGEST_S = 1_800.0
"""A real race that has no verdict by then is over."""

SCRIPT = """
import time
from tfmon import report
work_s = report.knob("work_ms", 10.0, low=0.01, high=1e6) / 1e3
spent_s = 0.0
while True:
    until = time.perf_counter() + work_s - (spent_s if spent_s < 0.001 else 0.0)
    while time.perf_counter() < until:
        pass
    began = time.perf_counter()
    report.step(examples=32)
    spent_s = time.perf_counter() - began
"""
"""A step has a given duration, including its call of `report.step`, excluding the turn of the other lane."""


class SimulatedLane(LaneControl):
    """A lane whose steps take a given time on the clock of the machine."""

    def __init__(self, machine: SimulatedMachine, name: str, step_s: float) -> None:
        self.machine, self.name, self.step_ns_true = machine, name, step_s * 1e9
        self.suspended = True
        self.left_ns: int | None = None
        """Remaining time of the running steps; `None` between steps."""
        super().__init__(self, {}, Sampler(), lambda: (None, None))
        self._cpu = SimpleNamespace(begin=lambda: None, end=lambda _: None)  # type: ignore[assignment]
        self._running = self._took_ns = 0
        self.switched = False
        self.suspended_ns = machine.now_ns
        self.bias = machine.random.normal(0, BETWEEN)

    def send(self, event: Any) -> None:
        self.machine.take(replace(event, lane=self.name))

    def offer(self, *events: Any, later: bool = False) -> bool:
        for event in events:
            self.send(event)
        return True

    def go_on(self, most_ns: int) -> None:
        """Train for a time, or until the steps of this stretch end."""
        if self.left_ns is None:
            now_ns = self.machine.now_ns
            room_ns = max(0, self.slices.due_ns(self.stretch_began_ns) - now_ns)
            count = min(self.clock.room, max(1, math.ceil(room_ns / self.step_ns_true)))
            plain_s = count * self.step_ns_true / 1e9
            noise = self.machine.random.normal(0, SCATTER / math.sqrt(max(0.2, plain_s)))
            self._running = count
            self._took_ns = round(plain_s * 1e9 * math.exp(noise + self.bias)) + SWITCH_NS * self.switched
            self.left_ns, self.switched = self._took_ns, False
        spent_ns = min(most_ns, self.left_ns)
        self.machine.now_ns += spent_ns
        self.left_ns -= spent_ns
        if self.left_ns == 0:
            self._end_steps()

    def _end_steps(self) -> None:
        self.left_ns, clock, count = None, self.clock, self._running
        each = self._took_ns // count
        for place in range(clock.kept, clock.kept + count):
            clock.times[place] = each
        clock.count(count)
        clock.done += count
        clock.examples += BATCH * count
        clock.call_ns += self.machine.now_ns - clock.last_end_ns
        clock.last_end_ns = self.machine.now_ns
        self.finish_stretch(self.machine.now_ns, None)


class SimulatedProcess:
    """The process of a simulated lane, as the scheduler uses it."""

    def __init__(self, lane: SimulatedLane) -> None:
        self.lane = lane

    def send(self, request: Request) -> None:
        assert isinstance(request, RunSlice)
        self.lane.handle(request)

    def suspend(self) -> None:
        self.lane.suspended, self.lane.suspended_ns = True, self.lane.machine.now_ns

    def continue_(self) -> None:
        lane, machine = self.lane, self.lane.machine
        machine.now_ns += 500_000  # delay of the event
        lane.suspended, lane.switched, away_ns = False, True, machine.now_ns - lane.suspended_ns
        # The time of a lane stands still while it is suspended.
        lane.clock.began_ns += away_ns
        lane.clock.last_end_ns += away_ns
        lane.stretch_began_ns += away_ns


class SimulatedMachine:
    """One machine with two lanes, which the scheduler controls."""

    def __init__(self, steps_s: Sequence[float], seed: int) -> None:
        self.now_ns = 1_000_000_000
        self.random = np.random.default_rng([seed, *(round(1e3 * one) for one in steps_s)])
        self._beat_ns = self.now_ns
        with self.clock():
            self.session = Session(Machine(cores=2, usable_cores=2), lambda: self.now_ns)
            specs = [LaneSpec("cpu", id=name, name=name) for name in NAMES]
            self.session.begin(Race(mode=TURNS, slice_s=SLICE_S), specs)
            self.lanes = {
                name: SimulatedLane(self, name, step_s) for name, step_s in zip(NAMES, steps_s, strict=True)
            }
            processes: Any = {name: SimulatedProcess(lane) for name, lane in self.lanes.items()}
            self.scheduler = Scheduler(self.session, processes, self.start_clock, lambda: self.now_ns)
            self.scheduler.begin(NAMES, TURNS, SLICE_S)

    @contextlib.contextmanager
    def clock(self) -> Iterator[None]:
        """Give the lanes' control the clock of this machine."""
        fake = SimpleNamespace(monotonic_ns=lambda: self.now_ns, now_ns=lambda: self.now_ns, stamp=lambda at: at)
        fake.suspended_ns = fake.stopped_ns = 0
        clocks = [(lane_control, "time"), (lane_control, "lane_clock"), (step_clock, "lane_clock")]
        with contextlib.ExitStack() as stack:
            for module, name in clocks:
                stack.enter_context(mock.patch.object(module, name, fake))
            yield

    def take(self, event: Event) -> None:
        """Take an event of a lane."""
        self.session.accept(event)
        if isinstance(event, PhaseEntered) and event.phase == "ready":
            self.scheduler.ready(event.lane)
        if isinstance(event, SliceEnded):
            self.scheduler.idle(event.lane)

    def run(self, look: Callable[[Snapshot], bool]) -> Snapshot:
        """Race until `look` says so, which is asked after every slice."""
        with self.clock():
            for lane in self.lanes.values():
                lane.become_ready()
            slices = 0
            while True:
                lane = next(one for one in self.lanes.values() if not one.suspended)
                lane.go_on(max(1, self._beat_ns + round(BEAT_S * 1e9) - self.now_ns))
                if self.now_ns >= self._beat_ns + BEAT_S * 1e9:
                    self._beat_ns = self.now_ns
                known = self.session.snapshot()
                ended = sum(len(one.slices) for one in known.lanes)
                if ended != slices:
                    slices = ended
                    if look(known):
                        return known

    def start_clock(self) -> None:
        self.session.start_clock(self.now_ns)


class Judge:
    """Looks at a race after every slice until there is an answer."""

    def __init__(self) -> None:
        self.verdict: Verdict | None = None

    def look(self, known: Snapshot) -> bool:
        """Return whether there is an answer."""
        found = self.verdict = find_verdict(known)
        rounds = min(len(lane.slices) for lane in known.lanes)
        return found.kind in (FASTER, SAME) or rounds >= MOST_ROUNDS

    def row(self, known: Snapshot, steps_ms: Sequence[float]) -> dict[str, Any]:
        """Return the outcome of the race of these steps."""
        found, true = self.verdict, max(steps_ms) / min(steps_ms)
        assert found is not None
        interval = found.interval
        if interval is not None and found.winner_id and steps_ms[NAMES.index(found.winner_id)] == max(steps_ms):
            true = 1 / true  # The wrong one won.
        return {
            "steps_ms": list(steps_ms),
            "seconds": (known.at_ns - (known.race.started_ns or 0)) / 1e9,
            "slow_steps": min(lane.totals.steps for lane in known.lanes),
            "kind": found.kind,
            "ratio": interval.value if interval else None,
            "covered": interval.low <= true <= interval.high if interval else None,
            "discarded": max(lane.discarded_shares.get(SLICE_START, 0.0) for lane in known.lanes),
        }


def simulate(steps_ms: Sequence[float], number: int) -> dict[str, Any]:
    """Race once more with a simulated clock."""
    machine = SimulatedMachine([one / 1e3 for one in steps_ms], number)
    judge = Judge()
    return judge.row(machine.run(judge.look), steps_ms)


def race(steps_ms: Sequence[float], number: int) -> dict[str, Any]:
    """Race two scripts until there is an answer."""
    judge = Judge()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "busy.py"
        script.write_text(SCRIPT)
        lanes = tuple(f"cpu,work_ms={one:g}" for one in steps_ms)
        race_options = RaceOptions(lanes=lanes, python=Path(sys.executable))
        began = time.monotonic()
        with program_of(race_options, command_scenario((sys.executable, str(script)))) as program:
            known = program.session.snapshot()
            while time.monotonic() < began + LONGEST_S and not program.lanes.all_over:
                time.sleep(0.1)
                known = program.session.snapshot()
                if judge.look(known):
                    break
    names = [lane.spec.name for lane in known.lanes]
    with mock.patch.object(sys.modules[__name__], "NAMES", tuple(names)):
        return judge.row(known, steps_ms)


def pairs_of(text: str | None) -> list[tuple[float, float]]:
    """Return the pairs of steps, in milliseconds, of `1000:5000,…`; all for None."""
    if text is None:
        return list(itertools.combinations_with_replacement(STEPS_MS, 2))
    return [tuple(map(float, one.split(":"))) for one in text.split(",")]  # type: ignore[misc]


def measure(options: Any, what: str, run: Callable[[Sequence[float], int], dict[str, Any]]) -> None:
    """Race the missing pairs, and print a line for each."""
    for steps_ms in pairs_of(options.pairs):
        rows = kept_rows(options.out, {"what": what, "steps_ms": list(steps_ms)})
        for number in range(len(rows), options.races):
            rows.append({"what": what, **run(steps_ms, number)})
            keep_row(options.out, rows[-1])
        print(line_of(rows), flush=True)


def line_of(rows: Sequence[dict[str, Any]]) -> str:
    """Return the line of the table of one pair."""

    def middle(name: str) -> float:
        return float(statistics.median(row[name] for row in rows if row[name] is not None))

    steps, count = rows[0]["steps_ms"], len(rows)
    true = max(steps) / min(steps)
    lengths = " and ".join(units.milliseconds(step) if step < 1_000 else f"{step / 1e3:g} s" for step in steps)
    judged = [row for row in rows if row["ratio"] is not None]
    off = statistics.median(abs(row["ratio"] / true - 1) for row in judged) if judged else math.nan
    right = sum(row["kind"] == SAME if true == 1 else row["kind"] == FASTER for row in rows)
    cells = (
        lengths,
        f"{right} of {count}",
        f"{units.about(middle('seconds'))}",
        f"{middle('slow_steps'):.0f}",
        f"{100 * off:.1f} %",
        f"{sum(bool(row['covered']) for row in judged)} of {len(judged)}",
        f"{100 * max(row['discarded'] for row in rows):.1f} %",
    )
    return f"| {' | '.join(cells)} |"


def table(options: Any) -> None:
    """Print the tables of all rows."""
    for what in ("simulated", "real"):
        rows = kept_rows(options.out, {"what": what})
        print(f"\n{what}\n")
        print("| steps | verdict | after | steps of the slower | off by | covered | discarded |")
        print("|---" * 7 + "|")
        for steps_ms in pairs_of(None):
            if of := [row for row in rows if row["steps_ms"] == list(steps_ms)]:
                print(line_of(of))


CONVOLUTION = """
import os, sys, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np, tensorflow as tf
from tfmon import report
batch, out = int(sys.argv[1]), sys.argv[2]
layers = tf.keras.layers
model = tf.keras.Sequential(
    [tf.keras.Input((64, 64, 16)), *(layers.Conv2D(32, 3, activation="relu") for _ in range(4)), layers.Flatten(),
     layers.Dense(10)])
optimizer = tf.keras.optimizers.SGD(0.001)
x, y = tf.random.normal((batch, 64, 64, 16)), tf.zeros((batch,), tf.int64)
loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
@tf.function
def train():
    with tf.GradientTape() as tape:
        loss = loss_of(y, model(x, training=True))
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss
with open(f"{out}-{os.getpid()}", "w", buffering=1) as file:
    while True:
        began, cpu = time.perf_counter(), time.process_time()
        loss = float(train())
        ended = time.perf_counter()
        file.write(f"{began} {ended - began} {time.process_time() - cpu}\\n")
        report.step(examples=batch, loss=loss)
"""


def switch(options: Any) -> None:
    """Train a convolution in two lanes; print the additional time of the first step of a slice."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(CONVOLUTION)
        command = (sys.executable, str(script), str(options.batch), str(Path(folder) / "times"))
        race_options = RaceOptions(
            lanes=("cpu", "cpu"), python=Path(sys.executable), seconds=options.seconds, slice_s=options.slice
        )
        with program_of(race_options, command_scenario(command)) as program:
            while not program.lanes.all_over:
                time.sleep(0.1)
        extra, cpu, lengths = [], [], []
        for file in Path(folder).glob("times-*"):
            steps = np.loadtxt(file)
            gaps = steps[1:, 0] - steps[:-1, 0] - steps[:-1, 1]
            firsts = np.flatnonzero(gaps > options.slice / 2) + 1
            for first, after in itertools.pairwise(firsts):
                rest = steps[first + 1 : after]
                if len(rest) >= 2:
                    extra.append(steps[first, 1] - np.median(rest[:, 1]))
                    cpu.append(steps[first, 2] - np.median(rest[:, 2]))
                    lengths.append(np.median(rest[:, 1]))
    if len(extra) < 2:
        raise SystemExit("too few slices had three steps: a longer --slice or --seconds, or a smaller --batch")
    error = statistics.stdev(extra) / math.sqrt(len(extra))
    print(
        f"steps of {1e3 * statistics.median(lengths):.0f} ms, {len(extra)} slices: the first one takes "
        f"{1e3 * statistics.median(extra):.2f} ms more (mean {1e3 * statistics.mean(extra):.2f} ± "
        f"{2e3 * error:.2f}), and {1e3 * statistics.median(cpu):.2f} ms more of CPU time"
    )


MEASURED: dict[str, tuple[Callable[[Any], None], dict[str, Any]]] = {
    "simulated": (
        lambda options: measure(options, "simulated", simulate),
        {"races": 40, "pairs": None, "out": "slow_steps.jsonl"},
    ),
    "real": (
        lambda options: measure(options, "real", race),
        {"races": 1, "pairs": None, "out": "slow_steps.jsonl"},
    ),
    "switch": (switch, {"batch": 32, "slice": 2.0, "seconds": 60.0}),
    "table": (table, {"out": "slow_steps.jsonl"}),
}


if __name__ == "__main__":
    run_command(__doc__, MEASURED)
