"""Trainings that are sick, each a real script on the screen: told while they train and at their end."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.waiting import HANGS_S

pytest.importorskip("pexpect")
from support.terminal import Terminal

pytestmark = pytest.mark.pty

BEGIN = """
import multiprocessing, os, signal, time
from tfmon import report

def computes(seconds):
    begun = time.process_time()
    while time.process_time() - begun < seconds:
        pass

def feeds(queue):
    for n in range(100):
        queue.put(n)
        time.sleep(0.02)
    time.sleep(1000)

def steps():
    n = 0
    while not os.path.exists("enough"):
        yield n
        n += 1
"""
SLOWER = """
for n in steps():
    time.sleep(0.02 if n < 1000 else 0.08)
    report.step(examples=8)
"""
INPUT = """
for n in steps():
    with report.input():
        time.sleep(0.01 if n < 1500 else 0.06)
    report.step(examples=8)
"""
NAN = """
for n in steps():
    time.sleep(0.01)
    report.step(examples=8, loss=1.0 if n < 200 else float("nan"))
"""
DIVERGES = """
for n in steps():
    time.sleep(0.01)
    report.step(examples=8, loss=2 / (1 + n / 100) if n < 1000 else 8e13)
"""
MEMORY = """
held = []
for n in steps():
    time.sleep(0.02)
    held.append(b"x" * 200_000 + str(n).encode())
    report.step(examples=8)
"""
WAITS = """
for n in steps():
    time.sleep(1 if n % 100 == 99 else 0.01)
    report.step(examples=8)
"""
RETRACES = """
import tensorflow as tf

weights = tf.Variable(tf.ones((20, 1)))
optimizer = tf.keras.optimizers.SGD(0.001)

@tf.function
def train(x, y, step):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weights - y) ** 2) + 0 * step
    optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])
    return loss

data = tf.data.Dataset.from_tensors((tf.ones((8, 20)), tf.ones((8, 1)))).repeat()
for n, (x, y) in zip(steps(), data):
    train(x, y, n)
"""
DEADLOCK = """
if __name__ == "__main__":
    queue = multiprocessing.Queue(4)
    child = multiprocessing.Process(target=feeds, args=(queue,), daemon=True)
    child.start()
    for n in steps():
        queue.get()
        report.step(examples=8)
        if n == 80:
            os.kill(child.pid, signal.SIGKILL)
"""
SICK = {
    "slower": (
        SLOWER,
        "times slower",
        r"[34][.\d]* times slower \(95 % CI .* since step [\d ]+ \(0:\d\d\); it waits",
    ),
    "input": (
        INPUT,
        "times slower",
        r"\d[.\d]* times slower .* since step 1 \d+ \(0:\d\d\); it waits for its input",
    ),
    "nan": (NAN, "the loss is nan, from step 2", r"the loss is nan, from step 2\d\d on at the latest; a lower"),
    "diverges": (DIVERGES, "the loss is 8e", r"the loss is 8e\+13, and was 0\.\d+ about step \d+, its best"),
    "memory": (
        MEMORY,
        "memory grows by",
        r"memory grows by [\d.]+ MiB/s \(.*\), now \d+ MiB; what grows was not observed",
    ),
    "waits": (
        WAITS,
        "times the median",
        r"took \d+ % of the time, more than 10 times the median each and up to 1\.\d+ s",
    ),
    "retraces": (
        RETRACES,
        "traces took",
        r"\d+ traces took \d+ % of the time: train: `argument 3`: \d+ → \d+",
    ),
    "deadlock": (
        DEADLOCK,
        "was killed by SIGKILL at .* it stands at sick",
        r"a child process, PID \d+, was killed by SIGKILL at 0:\d\d; no step has ended for \d.*; it stands at "
        r"sick\.py:\d+ in <module>, and waits for another process",
    ),
}
"""Each script, what is on the screen, and what is told at the end, with time, size and place."""


@pytest.fixture
def watched(tmp_path: Path, monkeypatch) -> Iterator[Callable[[str], Terminal]]:
    """Start tfmon on its screen with a script."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    terminals: list[Terminal] = []

    def start(text: str) -> Terminal:
        Path("sick.py").write_text(BEGIN + text)
        terminals.append(Terminal("watch", "--no-record", "--", sys.executable, "sick.py"))
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.close()


def flat(text: str) -> str:
    """Return a text in one line, without what steers the terminal."""
    return " ".join(re.sub(r"\x1b\[[0-9;?<>=]*[a-zA-Z]", "", text).split())


SLOW = ("slower", "input", "memory", "diverges")
MARKS: dict[str, object] = {name: pytest.mark.slow for name in SLOW}
MARKS["retraces"] = (pytest.mark.tensorflow, pytest.mark.slow)


@pytest.mark.parametrize("sickness", [pytest.param(name, marks=MARKS.get(name, ())) for name in SICK])
def test_a_sickness_is_told_live_and_at_the_end(watched, sickness):
    text, live, told = SICK[sickness]
    terminal = watched(text)
    terminal.wait_for(lambda shown: re.search(live, flat(shown)), HANGS_S)
    terminal.process.send("q")
    terminal.wait_for(lambda shown: "or end it (q)?" in shown)
    terminal.process.send("q")
    terminal.wait_for_exit()
    assert re.search(told, flat(terminal.raw)), flat(terminal.raw)[-1500:]
    assert "r starts it again" not in flat(terminal.raw)
