"""A fake trainer in which something goes wrong at step 100: FAULT names the function below.

FAULTY: only lanes with this prefetch setting have the fault; all, if it is not set.
"""

import ctypes
import faulthandler
import os
import signal
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "lanes" / "children"))

from trainer import FakeTrainer

from tfmon.model.lane_events import Hello, LaneFailed, LibrariesLoaded
from tfmon.trainer.channel import die_with_parent, exit_now

METRICS = int(sys.argv[1])
MEGABYTE = 1_000_000
ESCAPES = (
    "\x1b[31mred\x1b[0m \x1b]0;owned\x07 \x1b[2J\x1b[1;1H [bold red]markup[/] ../../etc/passwd \u202eevil\r\x9b5n"
)


class FaultyTrainer(FakeTrainer):
    faulted = False

    def say(self, event, **values) -> None:
        if event is Hello:
            die_with_parent()
            faulthandler.register(signal.SIGUSR1, all_threads=True)
            values["reports_stack"] = True
        super().say(event, **values)

    def train(self) -> None:
        wanted = os.environ.get("FAULTY")
        hit = os.environ.get("FAULT", "none") != "none" and (
            wanted is None or str(self.settings["prefetch"]) == wanted
        )
        if hit and not self.faulted and self.step >= 100:
            self.faulted = True
            globals()[os.environ["FAULT"]](self)
        super().train()


def write(fd: int, data: bytes) -> None:
    os.set_blocking(fd, True)
    while data:
        data = data[os.write(fd, data) :]


def runs_out_of_memory(trainer) -> None:
    """Only with a batch as large as this."""
    if trainer.settings["batch_size"] >= int(os.environ["TOO_LARGE"]):
        trainer.say(LaneFailed, kind="out_of_memory", message="out of memory: a tensor", hint="b lowers it")
        exit_now(1)


def eats_memory(trainer) -> None:
    """Take memory until the kernel ends this process, and keep saying so: nobody shall think that it hangs."""
    taken = []
    while True:
        taken.append(b"m" * (8 * MEGABYTE))
        FakeTrainer.train(trainer)


def hangs_for_ever(trainer) -> None:
    threading.Event().wait()


def hangs_for_a_while(trainer) -> None:
    while not Path(os.environ["HANGS_UNTIL"]).exists():
        time.sleep(0.01)


def hangs_in_c(trainer) -> None:
    """Hold Python's lock, with SIGTERM ignored: no thread of the child runs any more."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    mutex = ctypes.create_string_buffer(64)
    libc = ctypes.PyDLL(None)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


def floods_metrics(trainer) -> None:
    """100 MB of lines that are none."""
    line = b'{"v":2,"type":"Rubbish","x":"' + b"y" * 970 + b'"}\n'
    for _ in range(100):
        write(METRICS, line * (MEGABYTE // len(line)))


def sends_escapes(trainer) -> None:
    """Text that wants to steer the terminal, in every string that is shown."""
    trainer.say(LibrariesLoaded, tensorflow=ESCAPES, keras=ESCAPES, numpy=ESCAPES, device_name=ESCAPES)
    trainer.settings[ESCAPES] = ESCAPES
    write(2, (ESCAPES * 20 + "\n").encode(errors="replace") * 50)
    write(METRICS, b'{"v":2,"type":"' + ESCAPES.encode() + b'"}\n')


def fails_with_escapes(trainer) -> None:
    sends_escapes(trainer)
    trainer.say(LaneFailed, kind=ESCAPES, message=ESCAPES, hint=ESCAPES)
    trainer.reporter.drain(1.0)
    exit_now(1)


if __name__ == "__main__":
    FaultyTrainer().live()
