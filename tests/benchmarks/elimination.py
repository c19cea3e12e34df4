"""How early a sweep stops what cannot win, beside successive halving: simulated, in units of visits.

    python tests/benchmarks/elimination.py [--combinations 64] [--sweeps 20]

The ratios of the combinations scatter by 20 % or 3 %, a pair of slices by 3 %, and equal processes by 0.8 %. Both
ways race each combination for one visit first. `tfmon sweep` then goes on with those whose interval reaches to the
best one, until each is known to within ± 3 %; halving goes on with the better half, for one more visit each time.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import sys
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.sweeps import planned

from tfmon.analysis.statistics import BETWEEN_PROCESSES_SD
from tfmon.analysis.sweep import OPEN, PAIRS_OF_A_VISIT, judge, next_due, rank
from tfmon.model.sweep import Pair, PairMeasured, SweepState, VisitBegan, VisitEnded, after

SCATTERS, NOISE = (0.2, 0.03), 0.03
HOPELESS = 0.9
"""A combination with less of the best one's speed cannot win."""


class Lanes:
    """Combinations with known ratios, and pairs of slices that scatter about them."""

    def __init__(self, count: int, scatter: float, seed: int) -> None:
        self._random = random.Random(seed)
        self.ratios = [math.exp(self._random.gauss(0, scatter)) for _ in range(count)]
        self.pairs = [0] * count

    def visit(self, number: int) -> float:
        """Return what a fresh process of a combination is faster by, as a logarithm."""
        return math.log(self.ratios[number]) + self._random.gauss(0, BETWEEN_PROCESSES_SD)

    def pair(self, number: int, process: float) -> float:
        self.pairs[number] += 1
        return process + self._random.gauss(0, NOISE)

    def told(self, chosen: int) -> tuple[float, float, float]:
        """Return the visits of all, those of the hopeless ones, and the speed of the chosen one over the best."""
        best = max(self.ratios)
        hopeless = [pairs for pairs, ratio in zip(self.pairs, self.ratios, strict=True) if ratio < HOPELESS * best]
        visits = PAIRS_OF_A_VISIT
        return sum(self.pairs) / visits, sum(hopeless) / visits, self.ratios[chosen] / best


def by_intervals(lanes: Lanes, everything: bool = False) -> int:
    """Sweep as `tfmon sweep` does, in one place; return the best."""
    values = tuple(range(100, 100 + len(lanes.ratios)))
    state: SweepState = planned({"batch_size": values}, everything=everything)
    found = rank(state)
    while (number := next_due(found.rows, "cpu", ())) is not None:
        state = after(state, VisitBegan(number, "cpu"))
        process, visit = lanes.visit(number), state.combinations[number].visits
        for place in range(PAIRS_OF_A_VISIT):
            pair = Pair(lanes.pair(number, process), bool(place % 2), visit, 1.0)
            state = after(state, PairMeasured(number, pair))
            if judge(state.combinations[number], state.plan, len(values), found.floors["cpu"]).outcome != OPEN:
                break
        state = after(state, VisitEnded(number))
        found = rank(state, found)
    return found.ranked[0].number


def by_halving(lanes: Lanes) -> int:
    """Halve the combinations until one is left."""
    left, logs = list(range(len(lanes.ratios))), {number: [] for number in range(len(lanes.ratios))}
    while len(left) > 1:
        for number in left:
            process = lanes.visit(number)
            logs[number] += [lanes.pair(number, process) for _ in range(PAIRS_OF_A_VISIT)]
        left = sorted(left, key=lambda number: -fmean(logs[number]))[: len(left) // 2]
    return left[0]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--combinations", type=int, default=64)
    parser.add_argument("--sweeps", type=int, default=20)
    options = parser.parse_args()
    ways = {
        "intervals": by_intervals,
        "halving": by_halving,
        "--all": lambda lanes: by_intervals(lanes, everything=True),
    }
    print(f"{options.combinations} combinations, {options.sweeps} sweeps each; visits are means")
    for scatter, (name, way) in itertools.product(SCATTERS, ways.items()):
        told = []
        for seed in range(options.sweeps):
            lanes = Lanes(options.combinations, scatter, seed)
            told.append(lanes.told(way(lanes)))
        visits, lost, share = (list(column) for column in zip(*told, strict=True))
        right, worst = sum(one == 1 for one in share), 100 * (1 - min(share))
        print(f"scatter {scatter:.0%}, {name}: {fmean(visits):.0f} visits, {fmean(lost):.0f} of them hopeless")
        print(f"   the best was found in {right} of {len(share)}, else at worst one that is {worst:.1f} % slower")


if __name__ == "__main__":
    main()
