"""A sick training, a real script on the screen: reported during the training and at its end."""

import re
import sys
from pathlib import Path

import pytest
from support.waiting import HANGS_S

pytest.importorskip("pexpect")
from support.terminal import Terminal

DEADLOCK = """
import multiprocessing, os, signal, time
from tfmon import report

def feeds(queue):
    for n in range(100):
        queue.put(n)
        time.sleep(0.02)
    time.sleep(1000)

if __name__ == "__main__":
    queue = multiprocessing.Queue(4)
    child = multiprocessing.Process(target=feeds, args=(queue,), daemon=True)
    child.start()
    for n in range(10**9):
        queue.get()
        report.step(examples=8)
        if n == 80:
            os.kill(child.pid, signal.SIGKILL)
"""
LIVE = "was killed by SIGKILL at .* it stands at sick"
AT_THE_END = (
    r"a child process, PID \d+, was killed by SIGKILL at 0:\d\d; no step has ended for \d.*; it stands at "
    r"sick\.py:\d+ in <module>, and waits for another process"
)


def flat(text: str) -> str:
    """Return a text in one line, without what steers the terminal."""
    return " ".join(re.sub(r"\x1b\[[0-9;?<>=]*[a-zA-Z]", "", text).split())


@pytest.mark.pty
def test_a_deadlock_is_told_live_and_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    Path("sick.py").write_text(DEADLOCK)
    terminal = Terminal("watch", "--no-record", "--", sys.executable, "sick.py")
    try:
        terminal.wait_for(lambda shown: re.search(LIVE, flat(shown)), HANGS_S)
        terminal.process.send("q")
        terminal.wait_for(lambda shown: "or end it (q)?" in shown)
        terminal.process.send("q")
        terminal.wait_for_exit()
    finally:
        terminal.close()
    assert re.search(AT_THE_END, flat(terminal.raw)), flat(terminal.raw)[-1500:]
    assert "r starts it again" not in flat(terminal.raw)
