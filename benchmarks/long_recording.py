"""Records a day of one lane, from generated events at full speed; reports file size, reading time and memory.

`--hours` is the length of the race. Sizes are measured while the file is written; times depend on the machine.
"""

from __future__ import annotations

import io
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from common import options_of
from support import long_race

from tfmon.analysis.analysis import analyse
from tfmon.model.session import Snapshot
from tfmon.recordings.player import Player, play_all
from tfmon.recordings.reader import Recording, peek
from tfmon.reports.gather import gather, write_json


def main() -> None:
    given = options_of(__doc__, hours=24.0, keep="")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(given.keep or Path(folder) / "race.jsonl.gz")
        if not path.exists():
            _write(path, round(given.hours * 3_600))
        print(f"{path.stat().st_size / 1e6:.1f} MB")
        _timed("runs: the first line and the last", lambda: peek(path))
        _timed("the result of the race", lambda: analyse(play_all(path)[1]))
        _timed("a replay opens", lambda: Player(Recording(path)))
        _timed("a replay goes to its end", lambda: _to_the_end(path))
        _timed("export --html", lambda: gather(path))
        _timed("export --json", lambda: _numbers(path))


def _write(path: Path, seconds: int) -> None:
    process, largest, began = psutil.Process(os.getpid()), 0, time.monotonic()

    def look(path: Path, known: Snapshot) -> None:
        nonlocal largest
        at_s = round(known.lanes[0].points[-1].at_ns / 1e9)
        if not at_s % 600:
            largest = max(largest, path.stat().st_size)
        if not at_s % 7_200:
            memory = process.memory_info().rss / 2**20
            print(f"{at_s / 3_600:4.0f} h {path.stat().st_size / 1e6:6.1f} MB {memory:6.1f} MiB", flush=True)

    long_race.write(path, seconds, look)
    print(f"at most {largest / 1e6:.1f} MB; written in {time.monotonic() - began:.0f} s")


def _to_the_end(path: Path) -> None:
    player = Player(Recording(path))
    player.go_to(player.state().to_ns)


def _numbers(path: Path) -> None:
    with Recording(path) as opened:
        write_json(opened, {}, io.StringIO())


def _timed(what: str, work: Callable[[], object]) -> None:
    began, cpu_s = time.monotonic(), time.process_time()
    work()
    print(f"{what}: {time.monotonic() - began:.2f} s, {time.process_time() - cpu_s:.2f} s of CPU")


if __name__ == "__main__":
    main()
