"""Runs tfmon in a terminal for long, and every few seconds kills, stops or floods a lane, or presses a key.

It prints its actions, and tfmon's memory, file descriptors and threads over time. It ends with 1 if tfmon crashed,
a process was left (of a lane's own, too), the terminal was not restored, the recording cannot be read to its last
event, or a figure grew. Lanes train nothing, unless --real is given; real ones are killed and stopped, but do not
flood.
"""

from __future__ import annotations

import collections
import contextlib
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil
from common import options_of
from support.terminal import Terminal, lanes_of

from tfmon.recordings.header_lines import RecordingError
from tfmon.recordings.library import runs
from tfmon.recordings.player import play_all

TESTS = Path(__file__).resolve().parents[1] / "tests"
RACE = ("race", "small-dense", "--lane", "cpu", "--lane", "cpu,prefetch=auto", "--lane", "cpu,batch_size=64")
KEYS = {
    "knob": "bBpgxm",
    "race": " tr",
    "pages": ("\r\x1b", "?\x1b", "k\x1b", "E\x1b", "c\x1b", "\rS\x1b", "\rK\x1b", "s\x1b"),
    "focus": ("\t", "\x1b"),
    "experiment": "eu",
}
MOST_GROWTH = {"memory": 4_000_000, "descriptors": 4, "threads": 4}
"""Allowed increase of memory from the second to the last quarter; histories fill up in the first quarter."""
STALL_S = 2.0


class Soak:
    """One run and its observations."""

    pause_s = (1.0, 4.0)
    """Between two acts, at least and at most."""
    may_leave = False
    """Whether an act may leave tfmon, as a click on the word does."""

    def __init__(self, *, real: bool, seed: int) -> None:
        self.random = random.Random(seed)
        self.real = real
        child = {} if real else {"TFMON_TEST_CHILD": str(Path(__file__).with_name("soaker.py"))}
        root = str(TESTS.parent)
        program = ("-m", "tfmon") if real else (str(TESTS / "support" / "fake_tfmon.py"),)
        settings = {"PYTHONPATH": root, "TFMON_TEST_STALL_S": str(STALL_S), **child}
        self.terminal = Terminal(*RACE, program=program, **settings)
        self.program = psutil.Process(self.terminal.process.pid)
        self.ever: dict[int, psutil.Process] = {}
        self.stopped: list[tuple[float, psutil.Process]] = []
        self.done: collections.Counter[str] = collections.Counter()
        self.samples: list[tuple[float, int, int, int, float]] = []
        self.recorded: list[str] = []

    def lanes(self) -> list[psutil.Process]:
        """Return the processes of the lanes; notes them and all that they started."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.ever.update({process.pid: process for process in self.program.children(recursive=True)})
            return lanes_of(self.program)
        return []

    def act(self) -> None:
        """Do one random thing."""
        what = self.random.choices(
            ["kill", "stop", "flood", *KEYS], weights=[2, 2, 0 if self.real else 3, 3, 3, 2, 2, 1]
        )[0]
        lanes = self.lanes()
        if what in KEYS:
            self.press(*self.random.choice(KEYS[what]))
        elif not lanes:
            self.press("\x1b", "r")
            what = "race"
        else:
            self._hit(self.random.choice(lanes), what)
        self.done[what] += 1

    def press(self, *keys: str) -> None:
        """Press keys with a pause after each: an Escape and a letter at once would be another key."""
        for key in keys:
            self.terminal.process.send(key)
            until = time.monotonic() + 0.3
            while time.monotonic() < until:
                self.terminal.read()

    def _hit(self, lane: psutil.Process, what: str) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            if what == "kill":
                lane.kill()
            elif what == "flood":
                lane.send_signal(signal.SIGUSR2)
            else:
                lane.suspend()
                self.stopped.append((time.monotonic() + self.random.uniform(0.5, 4 * STALL_S), lane))

    def wake(self, *, everybody: bool = False) -> None:
        """Let those go on that were stopped long enough."""
        for entry in list(self.stopped):
            if everybody or time.monotonic() > entry[0]:
                self.stopped.remove(entry)
                with contextlib.suppress(psutil.NoSuchProcess):
                    entry[1].resume()

    def sample(self, since_s: float) -> None:
        with self.program.oneshot():
            memory, threads = self.program.memory_info().rss, self.program.num_threads()
            times = self.program.cpu_times()
        fds = self.program.num_fds()
        self.samples.append((since_s, memory, fds, threads, times.user + times.system))

    def run(self, seconds: float) -> None:
        """Soak; ends early if tfmon does."""
        self.terminal.wait_for(lambda text: "steps/s" in text, timeout_s=120)
        began = next_act = next_sample = next_restart = time.monotonic()
        while (now := time.monotonic()) - began < seconds and self.terminal.process.isalive():
            self.terminal.read()
            self.terminal.raw = self.terminal.raw[-20_000:]
            self.wake()
            if now >= next_act:
                self.act()
                next_act = now + self.random.uniform(*self.pause_s)
            if now >= next_restart:
                self.press("\x1b", "\x1b", "r")
                next_restart = now + 20
            if now >= next_sample:
                self.lanes()
                self.sample(now - began)
                next_sample = now + 5

    def end(self) -> list[str]:
        """Quit, and return the problems."""
        wrong = []
        if self.may_leave and not self.terminal.process.isalive() and self.terminal.process.exitstatus in (0, 1):
            self.done["leave"] += 1
        elif not self.terminal.process.isalive():
            wrong.append(f"tfmon ended with {self.terminal.process.exitstatus}: {self.terminal.raw[-2_000:]}")
        else:
            self.lanes()
            self.wake(everybody=True)
            self.press("\x1b", "\x1b", "q")
            code = self.terminal.wait_for_exit()
            if code not in (0, 1):
                wrong.append(f"exit code {code}")
            if "\x1b[?1049l" not in self.terminal.raw:
                wrong.append("the terminal was not restored")
        left = _left(list(self.ever.values()))
        if left:
            wrong.append(f"processes left: {left}")
        if "Traceback" in self.terminal.raw:
            wrong.append("a traceback: " + self.terminal.raw[-2_000:])
        return wrong + self._recording() + self._growth()

    def _recording(self) -> list[str]:
        """Replay the recording to its last event."""
        paths, wrong = [run.file for run in runs()], []
        if not paths:
            return ["nothing was recorded"]
        for path in paths:
            try:
                opened, _ = play_all(path)
            except RecordingError as error:
                wrong.append(f"the recording cannot be read: {error.message}")
                continue
            closed = opened.closed
            size = f"{path.stat().st_size / 1e6:.1f} MB, {len(opened):,} events"
            self.recorded.append(size)
            if opened.torn or closed is None or closed.events != len(opened):
                wrong.append(f"the recording is not whole: {size}, closed with {closed and closed.events}")
        return wrong

    def _growth(self) -> list[str]:
        count = len(self.samples)
        if count < 16:
            return []
        wrong = []
        second, last = self.samples[count // 4 : count // 2], self.samples[3 * count // 4 :]
        for place, (name, most) in enumerate(MOST_GROWTH.items(), 1):
            before = statistics.median(sample[place] for sample in second)
            after = statistics.median(sample[place] for sample in last)
            if after > before + most:
                wrong.append(f"{name} grew from {before} to {after}")
        return wrong

    def report(self) -> None:
        print("done: " + ", ".join(f"{count} × {what}" for what, count in self.done.most_common()))
        print(f"processes that lanes were or started: {len(self.ever)}")
        for line in self.recorded:
            print(f"recorded and read again: {line}")
        print("  time   memory  descriptors  threads  CPU")
        every = max(1, len(self.samples) // 12)
        for since_s, memory, fds, threads, cpu_s in self.samples[::every]:
            share = 100 * cpu_s / max(1.0, since_s)
            print(f"{since_s:5.0f} s {memory / 1e6:6.1f} MB {fds:11d} {threads:8d} {share:4.0f} %")
        steady = self.samples[len(self.samples) // 4 :]  # histories fill up in the first quarter
        if len(steady) > 1:
            slope, _ = statistics.linear_regression([one[0] for one in steady], [one[1] for one in steady])
            print(f"memory after the first quarter: {slope * 3_600 / 1e6:+.1f} MB an hour")


def _left(processes: list[psutil.Process]) -> list[str]:
    """Return the processes that are still alive after the 3 s of a lane, with their command lines."""
    left = []
    for process in psutil.wait_procs(processes, timeout=3.0)[1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                left.append(f"{process.pid} {' '.join(process.cmdline())}")
    return left


def main() -> int:
    given = options_of(__doc__, minutes=30.0, real=False, seed=int.from_bytes(os.urandom(2), "big"))
    print(f"seed {given.seed}", flush=True)
    folder = os.environ["TFMON_RECORDINGS"] = tempfile.mkdtemp(prefix="tfmon-soak-")
    soak = Soak(real=given.real, seed=given.seed)
    try:
        soak.run(60 * given.minutes)
        wrong = soak.end()
    finally:
        if soak.terminal.process.isalive():
            soak.terminal.process.close(force=True)
        shutil.rmtree(folder, ignore_errors=True)
    soak.report()
    for line in wrong or ["nothing was wrong"]:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
