"""Whether the gate is right: a scenario against itself, and against one that is 25 % slower, again and again.

Each round races the scenario as a baseline, once more as it is, and made slower, and asks the gate about both.
Right is "not slower" of the same and "slower" of the slower one; "cannot tell" is no mistake, and no answer.

    gate.py --rounds 20                       quiet
    gate.py --rounds 20 --load                with one busy process for random halves of the time
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from verdicts import LOOPS, WORK, load

import tfmon

SLOWER = 1.25


def main() -> None:
    """Race, and print what the gate said after each round, and in all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--limit", type=float, default=0.05, help="what the gate is asked for")
    parser.add_argument("--load", action="store_true")
    options = parser.parse_args()
    said: dict[str, Counter[str]] = {"same": Counter(), "slower": Counter()}
    with tempfile.TemporaryDirectory() as folder, load(options.load):
        same, slower = Path(folder) / "work.py", Path(folder) / "slower" / "work.py"
        slower.parent.mkdir()
        same.write_text(WORK)
        slower.write_text(WORK.replace(f'"loops", {LOOPS}', f'"loops", {round(SLOWER * LOOPS)}'))
        for number in range(options.rounds):
            how = {"lanes": ["cpu"], "seconds": options.seconds, "record": False}
            races = [tfmon.race(file, **how) for file in (same, same, slower)]
            for name, run in zip(said, races[1:], strict=True):
                gate = tfmon.diff(races[0], run, slower_than=options.limit)
                said[name][gate.kind] += 1
                print(number + 1, name, gate.lanes[0].kind, gate.lanes[0].reason, flush=True)
    print(json.dumps({"load": options.load, "limit": options.limit, **said}))


if __name__ == "__main__":
    main()
