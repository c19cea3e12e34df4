"""A user's training on the screen: what would end it asks before, and it outlives its terminal."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from support.processes import gone as ended
from support.slow import slow_except

pytest.importorskip("pexpect")
from support.terminal import RESTORED, ROWS, Terminal, gone, racing

pytestmark = pytest.mark.pty

TRAINS = """
import os, time
from tfmon import report
open("began", "a").write("x")
try:
    while not os.path.exists("enough"):
        time.sleep(0.002)
        print("line")
        report.step(examples=4)
    open("done", "w").write("done")
except KeyboardInterrupt:
    open("saved", "w").write("saved")
"""
LEAVES = "leave train.py running (d), or end it (q)?"
ASKS = {"q": LEAVES, "\x03": LEAVES, "r": "train.py again from its beginning", "s": "end train.py and choose"}


@pytest.fixture
def watched(tmp_path: Path, monkeypatch) -> Iterator[Callable[..., Terminal]]:
    """Start tfmon on its screen with the script, and wait until it trains."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAINS)
    terminals: list[Terminal] = []

    def start(*words: str) -> Terminal:
        terminals.append(Terminal(*words, "--record", "run.jsonl.gz", "--", sys.executable, "train.py"))
        terminals[-1].wait_for(racing)
        return terminals[-1]

    yield start
    Path("enough").touch()
    for terminal in terminals:
        terminal.close()


@pytest.mark.parametrize(
    "key", slow_except("q", [*ASKS, None]), ids=["quit", "Ctrl+C", "restart", "scenario", "double click"]
)
def test_a_key_that_would_end_it_asks_before(watched, key):
    terminal = watched("watch")
    column = terminal.wait_for(lambda shown: "q quit" in shown).splitlines()[-1].index("q quit") + 1
    click = f"\x1b[<0;{column};{ROWS}M\x1b[<0;{column};{ROWS}m"
    terminal.process.send(key or 2 * click)
    terminal.wait_for(lambda shown: ASKS[key or "q"] in shown)
    terminal.process.send("l")
    terminal.wait_for(lambda shown: ASKS[key or "q"] not in shown)
    terminal.process.send("\x1b")
    Path("enough").touch()
    terminal.wait_for(lambda _: Path("done").exists())
    assert Path("began").read_text() == "x"


@pytest.mark.parametrize("key", slow_except("\x03", ["q", "\x03"]), ids=["quit", "Ctrl+C"])
def test_the_second_time_it_ends_as_at_a_ctrl_c(watched, key):
    terminal = watched("watch")
    terminal.process.send(key)
    terminal.wait_for(lambda shown: LEAVES in shown)
    terminal.process.send(key)
    assert terminal.wait_for_exit() == 0
    assert Path("saved").read_text() == "saved"


@pytest.mark.parametrize("lanes", slow_except((), [(), ("--lane", "cpu", "--lane", "cpu")]), ids=["watch", "race"])
def test_it_trains_on_and_is_recorded_when_the_user_leaves_it_running(watched, lanes):
    terminal = watched(*(("race", "--in-place", *lanes) if lanes else ("watch",)))
    (runner,) = psutil.Process(terminal.process.pid).children()
    terminal.process.send("q")
    terminal.wait_for(lambda shown: LEAVES in shown)
    terminal.process.send("d")
    assert terminal.wait_for_exit() == 0
    assert "tfmon attach" in terminal.raw.rsplit(RESTORED[0], 1)[1]
    assert not ended(runner)
    Path("enough").touch()
    assert gone([runner])
    assert Path("began").read_text() == "x" * max(1, len(lanes) // 2)
    assert ended_lanes(Path("run.jsonl.gz")) == max(1, len(lanes) // 2)


def ended_lanes(recording: Path) -> int:
    """Return how many lanes a recording has seen to end with code 0."""
    import gzip

    with gzip.open(recording, "rt") as lines:
        events = [json.loads(line) for line in lines]
    return sum("LaneEnded" in json.dumps(event) and '"exit_code": 0' in json.dumps(event) for event in events)
