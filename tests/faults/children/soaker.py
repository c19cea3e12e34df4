"""A fake trainer with a helper process that does something bad on SIGUSR2, each time another; for the soak."""

import itertools
import os
import random
import signal
import subprocess

import faulty

FAULTS = (
    faulty.floods_short_lines,
    faulty.sends_a_long_line,
    faulty.sends_rubbish,
    faulty.sends_escapes,
    faulty.floods_stdout,
    faulty.floods_stderr,
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
