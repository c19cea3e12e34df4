"""A long race of one lane, a script's: its events come at full speed, and are recorded as in a race."""

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from support.events import phase, window
from support.ui import CPU_MACHINE
from tfmon.model.event_base import Event
from tfmon.model.events import ClockStarted, LaneEnded, LanePrinted, LaneStarted
from tfmon.model.lane_events import Hello, KnobApplied, Progressed
from tfmon.model.race import Race
from tfmon.model.readings import HostSample, TreeSample
from tfmon.model.session import Session, Snapshot
from tfmon.model.spec import LaneSpec, name_lanes
from tfmon.recordings import library
from tfmon.recordings.header_lines import header_of
from tfmon.recordings.recorder import closed_of
from tfmon.recordings.writer import Writer

WINDOWS = 5
"""Of a second, in the first minute; later there is one."""


def events_of(seconds: int) -> Iterator[Event]:
    """Yield the events of a lane and the samples."""
    yield LaneStarted(lane="cpu", at_ns=1, pid=7, settings={}, command="python train.py")
    yield Hello(lane="cpu", at_ns=2, protocol=2, pid=7, python="3.11")
    yield phase("ready", 3)
    yield ClockStarted(at_ns=4)
    yield phase("racing", 5)
    chance, step, rate = random.Random(1), 0, 0.1
    for second in range(seconds):
        now_ns, windows = second * 10**9, WINDOWS if second < 60 else 1
        for part in range(1, windows + 1):
            histogram = {1_300 + one: chance.randrange(1, 4) for one in chance.sample(range(150), 40)}
            steps = sum(histogram.values())
            step += steps
            yield window(
                at_ns=now_ns + part * 10**9 // windows, span_ns=10**9 // windows - chance.randrange(10**6),
                steps=steps, examples=16 * steps, step=step, call_ns=chance.randrange(10**8), histogram=histogram,
                loss=chance.random(), settings={"learning_rate": rate}, marks=("warm-up",) if second < 5 else (),
            )  # fmt: skip
        at_ns = now_ns + 10**9
        yield TreeSample(
            lane="cpu", at_ns=at_ns, cpu_pct=100 * chance.random(), private_bytes=3e8, processes=1, pids=(7,)
        )
        yield HostSample(at_ns=at_ns, cpu_pct=100 * chance.random(), memory_used_bytes=2e9, memory_total_bytes=8e9)
        yield Progressed(
            lane="cpu", at_ns=at_ns, doing="fit", epoch=1 + 3 * second, epochs=10**6,
            batch=second % 188, batches=188, metrics={"loss": chance.random()},
        )  # fmt: skip
        yield LanePrinted(
            lane="cpu", at_ns=at_ns, lines=(f"Epoch {3 * second}/1000000", "188/188 - 0s - 2ms/step")
        )
        if second and not second % 5_000:
            rate /= 2
            yield KnobApplied(
                lane="cpu", at_ns=at_ns, request=second, knob="learning_rate", value=rate, step=step, gap_ns=10**6
            )
    yield LaneEnded(lane="cpu", at_ns=seconds * 10**9 + 1, exit_code=0, signal=None, requested=False)


def write(path: Path, seconds: int, each_second: Callable[[Path, Snapshot], object] = lambda *_: None) -> Snapshot:
    """Record such a race, and return the last snapshot; raises OSError."""
    now_ns = 0
    session = Session(CPU_MACHINE, lambda: now_ns)
    specs = name_lanes([LaneSpec("cpu")])
    session.begin(Race("train.py"), specs)
    writer = Writer(path, library.create_file(path))
    known = session.snapshot()
    kept: list[tuple[Event, Snapshot]] = []
    session.keep_journal(lambda event, known: kept.append((event, known)))
    session.begin(known.race, specs)
    writer.begin(header_of(kept[0][0], known, Path(sys.executable)))
    writer._began_ns = writer._latest_ns = writer._snapshot_ns = 0
    writer.add(kept.pop()[0])
    try:
        for event in events_of(seconds):
            session.accept(event)
            taken, known = kept.pop()
            writer.add(taken)
            if isinstance(event, LanePrinted):
                now_ns = event.at_ns
                writer.flush()
                writer.keep(known)
                each_second(path, known)
        writer.close(closed_of(known, event.at_ns, writer.events), known)
    finally:
        writer.abandon()
    return session.snapshot()
