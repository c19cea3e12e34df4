"""Record the race that comes with tfmon.

Two lanes of small-dense race on the CPU, and knobs change while they train: prefetch of both, then the batch size
of one. The file is replaced only when the race ended well and has a winner.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from common import options_of, program_of

from tfmon.analysis.verdict import find_verdict
from tfmon.api.options import RaceOptions
from tfmon.api.run_base import show_progress
from tfmon.catalog import find_scenario
from tfmon.recordings.library import EXAMPLE
from tfmon.recordings.player import play_all

LANES = ("cpu", "cpu,batch_size=64")
SECONDS = 26.0
CHANGES = (
    (7.0, "cpu", "prefetch", 1), (7.0, "cpu batch_size=64", "prefetch", 1),
    (13.0, "cpu", "batch_size", 16), (13.5, "cpu", "batch_size", 32),
)  # fmt: skip
"""Seconds since the start signal, lane, knob and value."""


def main() -> None:
    options_of(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / EXAMPLE.name
        _record(file)
        recording, end = play_all(file)
        if recording.closed is None or find_verdict(end).winner is None or any(lane.trouble for lane in end.lanes):
            raise SystemExit("the race has no winner or did not end well; nothing was written")
        EXAMPLE.write_bytes(file.read_bytes())
    print(f"{len(recording)} events, {EXAMPLE.stat().st_size / 1024:.0f} KiB: {recording.closed.verdict}")


def _record(file: Path) -> None:
    options = RaceOptions(lanes=LANES, seconds=SECONDS, record=file)
    with program_of(options, find_scenario("small-dense")) as program:
        changes = list(CHANGES)
        while not program.lanes.all_over:
            started_ns = program.session.snapshot().race.started_ns
            raced_s = 0.0 if started_ns is None else (time.monotonic_ns() - started_ns) / 1e9
            while changes and raced_s >= changes[0][0]:
                _, lane, knob, value = changes.pop(0)
                program.lanes.set_knob(lane, knob, value)
            show_progress(f"{raced_s:.0f} of {SECONDS:.0f} s")
            time.sleep(0.1)
    show_progress("")


if __name__ == "__main__":
    main()
