"""Whether the gate is right: a scenario against itself, and against ones that are slower, again and again.

Each round races the scenario as a baseline, once more as it is, and made slower, in another order each time. The
gate is asked about one race on each side, and about so many rounds in a row. Right is "not slower" of the same and
"slower" of the slower ones; "cannot tell" is no mistake, and no answer. Each round is a line in a file: a run with
the same options goes on where the last one stopped, and sums up all of them. Rounds that make fewer than 20 groups
are drawn into 20 at random, which then have some in common.

    gate.py                                   quiet; 20 answers of five races on each side, none in two of them
    gate.py --rounds 24 --load                with one busy process for random halves of the time
    gate.py --rounds 60 --each 5,12 --taken --slower 1.25,2,5 --limit 0.1    with one core taken all the time
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from common import keep_row, kept_rows, options_of
from verdicts import LOOPS, WORK, load

import tfmon
from tfmon.analysis.compare import compare_all
from tfmon.analysis.gate import Gate, judge
from tfmon.recordings.results import read_json

BASELINE, SAME = "baseline", "same"
GROUPS = 20
TAKES_A_CORE = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"


def sides_of(options: argparse.Namespace) -> dict[str, float]:
    """Return by how much each side is slower than the scenario."""
    slower = [float(factor) for factor in options.slower.split(",")]
    return {BASELINE: 1.0, SAME: 1.0, **{f"{factor:g} times slower": factor for factor in slower}}


def run(number: int, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Race once more on each side, and return the row."""
    row: dict[str, Any] = key_of(options)
    sides = sides_of(options)
    with load(options.load), load(options.taken, TAKES_A_CORE):
        for place in range(len(sides)):
            side = list(sides)[(number + place) % len(sides)]
            loops = round(sides[side] * LOOPS)
            file = folder / side / "work.py"
            file.parent.mkdir(exist_ok=True)
            file.write_text(WORK.replace(f'"loops", {LOOPS}', f'"loops", {loops}'))
            row[side] = tfmon.race(file, lanes=["cpu"], seconds=options.seconds, record=False).to_json()
    return row


def ask(rows: list[dict[str, Any]], side: str, limit: float) -> Gate:
    """Return the answer of the gate for the races of one side against the baseline."""
    sides = [[read_json(row[name], name, name) for row in rows] for name in (BASELINE, side)]
    return judge(compare_all(*sides), limit)


def key_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return what rows must have in common to be counted together."""
    return {name: getattr(options, name) for name in ("seconds", "load", "taken", "slower")}


def summary(rows: list[dict[str, Any]], sides: list[str], each: int, limit: float) -> str:
    """Count the gate's answers for groups of rounds; a round is in one group only, unless groups are drawn."""
    groups = [rows[place : place + each] for place in range(0, len(rows) - each + 1, each)]
    drawn = len(groups) < GROUPS
    if drawn:
        at_random = random.Random(0)
        groups = [at_random.sample(rows, each) for _ in range(GROUPS)]
    said = {side: Counter(ask(group, side, limit).kind for group in groups) for side in sides}
    how = f"{each} races each, {len(groups)} groups{' drawn at random' * drawn}, limit {limit:g}"
    return f"{how}: " + "; ".join(f"{side}: {dict(counts)}" for side, counts in said.items())


def main() -> None:
    """Race, and print the answer of the gate after each round, and in total."""
    options = options_of(
        __doc__, rounds=100, seconds=6.0, limit="0.05", each="5", load=False, taken=False, slower="1.25",
        out="gate.jsonl",
    )  # fmt: skip
    limits = [float(limit) for limit in options.limit.split(",")]
    sizes = [int(each) for each in options.each.split(",")]
    rows = kept_rows(options.out, key_of(options))
    sides = [side for side in sides_of(options) if side != BASELINE]
    with tempfile.TemporaryDirectory() as folder:
        while len(rows) < options.rounds:
            rows.append(run(len(rows), Path(folder), options))
            keep_row(options.out, rows[-1])
            for side in sides:
                lane = ask(rows[-1:], side, limits[0]).lanes[0]
                print(len(rows), side, lane.kind, lane.reason, flush=True)
    rows = rows[: options.rounds]
    ratios = [ask([row], SAME, limits[0]).lanes[0].ratio for row in rows]
    logs = [math.log(ratio) for ratio in ratios if ratio]
    print(f"\n{len(rows)} rounds, {key_of(options)}")
    if len(logs) > 1:
        print(f"log ratio of equal races: standard deviation {statistics.stdev(logs):.4f}")
    for each in dict.fromkeys((1, *sizes)):
        for limit in limits:
            print(summary(rows, sides, each, limit))


if __name__ == "__main__":
    main()
