"""Recorded simulated races, and their last snapshots."""

import atexit
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from support import ui
from support.ui import CPU_MACHINE, Demo, racing_demo
from tfmon.model.events import LaneEnded
from tfmon.model.readings import HostSample
from tfmon.model.session import Session, Snapshot
from tfmon.model.spec import LaneSpec
from tfmon.recordings.recorder import Recorder


def record(path: Path | None, happen: Callable[[], Demo] = racing_demo) -> tuple[Demo, Snapshot]:
    """Record a simulated race; return the demo and its last snapshot."""
    recorders: list[Recorder] = []

    def recorded(*arguments) -> Session:
        session = Session(*arguments)
        recorders.append(Recorder(session, Path(sys.executable), path))
        return session

    with mock.patch.object(ui, "Session", recorded):
        demo = happen()
    while recorders[0]._thread.is_alive():  # a busy machine takes longer than a user would wait
        recorders[0].close()
    return demo, demo.session.snapshot()


def small_race() -> Demo:
    """Race two lanes on a CPU for 12 s, one of them 5.5 times as fast."""
    demo = Demo([LaneSpec("cpu"), LaneSpec("cpu", {"batch_size": 64})], CPU_MACHINE, mode="turns").go()
    for _ in range(2):
        demo.race(6, (1_000, 5_500))
        host = HostSample(at_ns=demo.clock(), cpu_pct=104.0, memory_used_bytes=2e9, memory_total_bytes=8e9)
        demo.session.accept(host)
    for name in demo.names:
        end = LaneEnded(lane=name, at_ns=demo.clock(), exit_code=0, signal=None, requested=True)
        demo.session.accept(end)
    return demo


def long_race(seconds: int = 1_800) -> Demo:
    """Race a CPU and a GPU in turns, with a sample of everything each second."""
    demo = Demo(mode="turns").go()
    for _ in range(seconds):
        demo.race(1, (6_200, 1_900))
    return demo


_FOLDER = Path(tempfile.mkdtemp(prefix="tfmon-recorded-"))
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)

RECORDED = _FOLDER / "race.jsonl"
"""A recording of `small_race`."""
record(RECORDED, small_race)
