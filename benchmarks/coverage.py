"""Simulates the intervals: coverage, false winners, found differences, and width.

Races are simulated, one pair of slices a round, and the product's own functions are asked after every round:

- synthetic noise: slices with autocorrelated noise and outliers, in moderate and in heavy strength, with an effect
  of which lane comes first;
- recorded noise: the pairs of real races of two identical lanes, drawn in blocks (`noise.json`; add one by
  `--record NAME=FILE`, with the recording of a race such as `--lane cpu --lane cpu --seconds 180`);
- what two equal processes differ by is drawn for every process pair, with a true deviation that may be other than
  the one supposed.

An interval moves with the ratio, so one simulation of equal lanes also shows how often a difference is found.
"""

from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfmon.analysis.intervals import Looks
from tfmon.analysis.statistics import compare, pairs_of
from tfmon.model.race import BetweenProcesses
from tfmon.model.readings import ALWAYS_VALID, FIXED, SPENDING
from tfmon.model.series import Pair
from tfmon.probes.machine import read_machine
from tfmon.series.repeat import LEAST_LEFT_S, LEAST_S, MATTERS

RECORDED = Path(__file__).with_name("noise.json")
ROUND_S = 1.07
"""A round of two slices of half a second, including the time between them."""
SHORT, LONG = round(30 / ROUND_S), round(180 / ROUND_S)
"""Rounds in 30 s and in 3 min."""
MARGIN = math.log(1.03)
BLOCK = 8
"""Rounds of recorded noise that are drawn in a row."""
SD = 0.008
"""What two equal processes differ by, in most rows."""
Noise = Callable[[np.random.Generator, int], np.ndarray]


@dataclass(frozen=True)
class Row:
    """One kind of race, simulated many times."""

    noise: str
    between_sd: float = SD
    fresh: bool = False
    learnt: bool = False
    """Whether earlier races have measured the variance between processes."""


def synthetic(scatter: float) -> Noise:
    """Return pairs of slices whose speeds scatter so much: half of it slow, and one in 20 slices far off."""

    def draw(random: np.random.Generator, rounds: int) -> np.ndarray:
        slices = np.empty(2 * rounds)
        slow, keep = 0.0, 0.7
        shocks = random.normal(0, scatter, (2 * rounds, 2))
        for at, (shock, own) in enumerate(shocks):
            slow = keep * slow + math.sqrt(1 - keep**2) * shock
            slices[at] = 0.7 * slow + 0.7 * own
        slices -= (random.random(2 * rounds) < 0.05) * random.exponential(5 * scatter, 2 * rounds)
        differences = slices[::2] - slices[1::2]  # The lane that comes first over the other one.
        differences += 0.01
        differences[1::2] *= -1
        return differences

    return draw


def recorded(name: str) -> Noise:
    """Return pairs as in a recorded race of identical lanes, in blocks drawn at random."""
    pairs = np.array(json.loads(RECORDED.read_text())[name]["pairs"])

    def draw(random: np.random.Generator, rounds: int) -> np.ndarray:
        starts = 2 * random.integers(0, len(pairs) // 2, -(-rounds // BLOCK))
        places = (starts[:, None] + np.arange(BLOCK)).ravel()[:rounds]  # In a circle, so that all weigh the same.
        return pairs[places % len(pairs)]

    return draw


def noises() -> dict[str, Noise]:
    """Return every noise by its name: first synthetic noise, then recorded noise."""
    names = json.loads(RECORDED.read_text())
    return {
        "synthetic": synthetic(0.055),
        "synthetic, heavy": synthetic(0.4),
        **{name: recorded(name) for name in names},
    }


def rows() -> tuple[Row, ...]:
    """Return the simulated rows: every noise, and other true deviations between processes."""
    others = ((False, False), (True, False), (False, True))
    return (
        Row("synthetic"),
        Row("synthetic", fresh=True),
        *(Row("synthetic", 0.02, fresh, learnt) for fresh, learnt in others),
        *(Row(noise) for noise in noises() if noise != "synthetic"),
    )


@dataclass
class Outcome:
    """The outcomes of the races of one row, for one kind of interval and one length."""

    covered: int = 0
    ever: int = 0
    """Races in which a winner was named at some look, though the lanes are equal."""
    end: int = 0
    """The same at the end."""
    ten: int = 0
    """Races that find a difference of 10 % at the end; at some look, for an always valid interval."""
    three: int = 0
    same: int = 0
    """Races that end as the same within the margin."""
    width: float = 0.0
    """Sum of half the intervals at the end."""
    races: int = 0

    def share(self, count: float) -> str:
        return f"{100 * count / self.races:.0f}"


def simulate(row: Row, races: int, rounds: int = LONG, seed: int = 1) -> dict[tuple[str, int], Outcome]:
    """Return the outcomes by the kind of the interval and the number of rounds."""
    random, noise = np.random.default_rng(seed), noises()[row.noise]
    lengths = [length for length in (SHORT, LONG) if length <= rounds]
    found = {(kind, length): Outcome() for kind in (ALWAYS_VALID, SPENDING, FIXED) for length in lengths}
    for _ in range(races):
        prior = None
        if row.learnt:
            prior = BetweenProcesses(row.between_sd**2 * random.chisquare(10), 10, 10)
        ever: set[tuple[str, int]] = set()
        tens: set[tuple[str, int]] = set()
        threes: set[tuple[str, int]] = set()
        for count, comparison in looks_of(row, noise, random, rounds, prior):
            for (kind, length), outcome in found.items():
                if count > length:
                    continue
                value, reach = comparison.center.value, comparison.reach(Looks(kind, min(1.0, count / length)))
                key, last = (kind, length), count == length
                if abs(value) > reach:
                    ever.add(key)
                    outcome.end += last
                for difference, finds in ((0.10, tens), (0.03, threes)):
                    if value + math.log1p(difference) > reach and (last or kind != FIXED):
                        finds.add(key)
                if last:
                    outcome.races += 1
                    outcome.covered += abs(value) <= reach
                    outcome.width += reach
                    outcome.same += abs(value) + reach <= MARGIN
        for key, outcome in found.items():
            outcome.ever += key in ever
            outcome.ten += key in tens
            outcome.three += key in threes
    return found


def looks_of(
    row: Row, noise: Noise, random: np.random.Generator, rounds: int, prior: BetweenProcesses | None
) -> Iterator[tuple[int, object]]:
    """Race once, and yield the number of rounds and the product's analysis of them."""
    pairs = noise(random, rounds)
    between = random.normal(0, row.between_sd, rounds)
    process, since = 0, 0
    known: list[Pair] = []
    for count in range(1, rounds + 1):  # One look per round, as a screen that refreshes once a round.
        known.append(Pair(float(pairs[count - 1]) + float(between[process]), bool(count % 2), process))
        comparison = compare(known, prior)
        if comparison is not None:
            yield count, comparison
            raced_s, left_s = (count - since) * ROUND_S, (rounds - count) * ROUND_S
            lasts = raced_s >= LEAST_S and left_s >= LEAST_LEFT_S
            if row.fresh and lasts and comparison.between.reach() >= MATTERS * comparison.center.reach():
                process, since = process + 1, count


HEAD = (
    "noise", "processes", "true sd", "interval", "length", "covers", "false ever", "false at end", "±",
    "10 % found", "3 % found", "same",
)  # fmt: skip


def table(races: int) -> Iterator[str]:
    """Yield the table's lines, as Markdown."""
    yield f"| {' | '.join(HEAD)} |"
    yield "|" + "---|" * len(HEAD)
    for row in rows():
        processes = "several" if row.fresh else "one, sd learnt" if row.learnt else "one"
        for (kind, length), outcome in simulate(row, races).items():
            if row.fresh and length < LONG:
                continue
            share = outcome.share
            cells = (
                row.noise, processes, f"{row.between_sd:g}", kind, "30 s" if length == SHORT else "3 min",
                share(outcome.covered), share(outcome.ever), share(outcome.end),
                f"{100 * outcome.width / outcome.races:.1f} %", share(outcome.ten), share(outcome.three),
                share(outcome.same),
            )  # fmt: skip
            yield f"| {' | '.join(cells)} |"


def record(text: str) -> None:
    """Add the noise of a recorded race of two identical lanes, NAME=FILE, to the file."""
    from tfmon.recordings.header_lines import recorded_on
    from tfmon.recordings.player import play_all

    known = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    name, _, path = text.partition("=")
    recording, end = play_all(Path(path))
    first, second = ({part.round: part for part in lane.slices if part.examples} for lane in end.lanes)
    middle = compare(pairs_of(first.values(), second.values()))
    both = {*first} & {*second}
    orders = [number for number in sorted(both) if number % 2 and number + 1 in both]
    logs = [first[one].log - second[one].log for number in orders for one in (number, number + 1)]
    if middle is None:
        raise SystemExit(f"{path} has too few rounds")
    pairs = [round(one - middle.center.value, 5) for one in logs]
    known[name] = {"from": recorded_on(recording.header), "pairs": pairs}
    RECORDED.write_text(json.dumps(known, indent=None) + "\n")


def main() -> None:
    from common import options_of  # tests import this file, and not from this folder

    arguments = options_of(__doc__, races=200, record=None)
    if arguments.record:
        record(arguments.record)
        return
    machine, began = read_machine(), time.monotonic()
    print(f"{machine.cpu_name}, {machine.cores} cores, {platform.system()}, {time.strftime('%Y-%m-%d')}")
    print(f"{arguments.races} races of each row; shares in %\n")
    for line in table(arguments.races):
        print(line, flush=True)
    print(f"\n{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
