"""A lane that reports as a training of 1,400 steps/s does, without TensorFlow and at next to no cost.

Its windows and histograms have the size of small-dense's, so that the monitor has as much to
read and to draw.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.lanes.children.trainer import FakeTrainer
from tfmon.model.lane_events import SliceEnded, Window, histogram_of

WINDOW_S = 0.2
STEP_NS = 700_000


class ScriptedLane(FakeTrainer):
    """Trains nothing, five windows a second."""

    def __init__(self) -> None:
        super().__init__()
        self.dice = random.Random(int(sys.argv[1]))

    def train(self) -> None:
        """Report one window."""
        began_ns = time.monotonic_ns()
        until_ns = began_ns + int(WINDOW_S * 1e9)
        if self.turn is not None:
            until_ns = min(until_ns, self.turn_ends_ns)
        self.pause.wait(max(0.001, (until_ns - began_ns) / 1e9))
        span_ns = time.monotonic_ns() - began_ns
        steps = max(1, int(span_ns / STEP_NS * self.dice.uniform(0.93, 1.07)))
        self.step += steps
        times = [STEP_NS * self.dice.lognormvariate(0, 0.12) for _ in range(steps)]
        self.say(
            Window,
            span_ns=span_ns,
            steps=steps,
            examples=steps * self.settings["batch_size"],
            step=self.step,
            input_ns=span_ns // 5,
            call_ns=span_ns * 7 // 10,
            sync_ns=span_ns // 200,
            report_ns=span_ns // 1_000,
            longest_ns=int(max(times)),
            histogram=histogram_of(times),
            loss=0.9 + self.dice.uniform(-0.05, 0.05),
            settings=self.settings,
            round=self.turn.round if self.turn else None,
            computing_share=0.6,
            sampled=1,
            sampled_examples=self.settings["batch_size"],
            sampled_input_ns=STEP_NS // 5,
            sampled_call_ns=STEP_NS * 7 // 10,
            sampled_tail_ns=STEP_NS // 50,
        )
        if self.turn is not None and time.monotonic_ns() >= self.turn_ends_ns:
            number, self.turn, self.racing = self.turn.round, None, False
            self.say(SliceEnded, round=number)


if __name__ == "__main__":
    ScriptedLane().live()
