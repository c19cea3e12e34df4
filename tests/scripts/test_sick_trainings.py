"""Sick trainings, each a real script on the screen: reported during the training and at its end."""

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
NAN = """
for n in steps():
    time.sleep(0.01)
    report.step(examples=8, loss=1.0 if n < 200 else float("nan"))
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
    "nan": (NAN, "the loss is nan, from step 2", r"the loss is nan, from step 2\d\d on at the latest; a lower"),
    "deadlock": (
        DEADLOCK,
        "was killed by SIGKILL at .* it stands at sick",
        r"a child process, PID \d+, was killed by SIGKILL at 0:\d\d; no step has ended for \d.*; it stands at "
        r"sick\.py:\d+ in <module>, and waits for another process",
    ),
}
"""Each script, its text on the screen, and its text at the end with time, size and line."""


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


@pytest.mark.parametrize("sickness", SICK)
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
