"""A fake trainer with a helper process that does something bad on SIGUSR2, each time another; for the soak."""

import itertools
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "faults" / "children"))

import faulty
from faulty import MEGABYTE, METRICS, write

from tfmon.model.lane_events import PhaseEntered


def floods_stderr(trainer) -> None:
    for _ in range(100):
        write(2, b"\x1b[31mnoise" + b"." * (MEGABYTE - 20) + b"\n")
    trainer.say(PhaseEntered, phase="racing")


def floods_stdout(trainer) -> None:
    for _ in range(100):
        write(1, b"." * MEGABYTE)


def floods_short_lines(trainer) -> None:
    """Many lines of nothing: they cost the most for their size."""
    write(METRICS, b"x\n" * 200_000)


def sends_a_long_line(trainer) -> None:
    for _ in range(50):
        write(METRICS, b"z" * MEGABYTE)
    write(METRICS, b"\n")


def sends_rubbish(trainer) -> None:
    """Send lines that are wrong in every other way: bytes, types, versions, order, parts of lines."""
    for line in (
        b'\xff\xfe\x00{"v":2}',
        b'{"v":2,"type":"Window"}',
        b'{"v":99,"type":"Hello","at_ns":1,"protocol":99,"pid":1,"python":""}',
        b'{"v":2,"type":"SliceEnded","at_ns":"soon","round":1}',
        b'{"v":2,"type":"Finished","at_ns":1e999,"steps":NaN}',
        b'{"v":2,"type":["Hello"],"at_ns":{}}',
        b'{"v":2,"type":"SliceEnded","at_ns":1,"rou',
    ):
        write(METRICS, line + b"\n")
    for line in (
        b'{"v":2,"type":"SliceEnded","at_ns":1,"round":-4}',
        b'{"v":2,"type":"KnobApplied","at_ns":-5,"request":99,"knob":"none","value":"x","step":-1,"gap_ns":-1}',
        b'{"v":2,"type":"Hello","at_ns":0,"protocol":2,"pid":1,"python":"3"}',
        b'{"v":2,"type":"PhaseEntered","at_ns":0,"phase":"importing"}',
    ):
        write(METRICS, line + b"\n")
    trainer.say(PhaseEntered, phase="racing")


FAULTS = (
    floods_short_lines,
    sends_a_long_line,
    sends_rubbish,
    faulty.sends_escapes,
    floods_stdout,
    floods_stderr,
    faulty.exits,
    faulty.fails_with_escapes,
)


class Soaker(faulty.FaultyTrainer):
    wanted = 0

    def live(self) -> None:
        faults = random.Random(os.getpid()).sample(FAULTS, len(FAULTS))
        self.faults = itertools.cycle(faults)
        signal.signal(signal.SIGUSR2, self.note)
        subprocess.Popen(["sleep", "3600"])  # as a data pipeline's worker: it must not outlive the lane
        super().live()

    def note(self, *_) -> None:
        self.wanted += 1

    def train(self) -> None:
        if self.wanted:
            self.wanted = 0
            next(self.faults)(self)
        super().train()


if __name__ == "__main__":
    Soaker().live()
