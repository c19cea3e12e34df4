"""A user's training on the screen: what would end it asks before, and it outlives its terminal."""

import gzip
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from support.processes import gone as ended
from support.ui import Demo
from ui.pilot import app_of, press, shown, until

from tfmon.model.events import LaneStarted

pytest.importorskip("pexpect")
from support.terminal import RESTORED, Terminal, gone, racing

TRAINS = """
import os, time
from tfmon import report
open("began", "a").write("x")
try:
    while not os.path.exists("enough"):
        time.sleep(0.002)
        print("line")
        report.step(examples=4)
except KeyboardInterrupt:
    open("saved", "w").write("saved")
"""
LEAVES = "leave train.py running (d), or end it (q)?"


@pytest.mark.parametrize(
    ("keys", "asks", "acts"),
    [
        ("q", LEAVES.replace("train.py", "small-dense"), [("stop",)]),
        ("r", "again from its beginning", [("restart", ("cpu", "gpu:0"))]),
        ("s", "end small-dense and choose a scenario", []),
    ],
    ids=["quit", "restart", "scenario"],
)
async def test_a_key_that_would_end_a_script_asks_before(keys, asks, acts):
    demo = Demo().go()
    for name in demo.names:
        started = LaneStarted(lane=name, at_ns=demo.clock(), pid=1, settings={}, command="python train.py")
        demo.session.accept(started)
    demo.enter_all("racing")
    app = app_of(demo, detachable=True)
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, keys)
        assert asks in shown(pilot) and not demo.controls.calls
        await press(pilot, "l")
        assert asks not in shown(pilot)
        await press(pilot, "escape", keys)
        assert asks in shown(pilot) and not demo.controls.calls, "the other page withdrew the question"
        await press(pilot, keys)
        await until(pilot, lambda: demo.controls.calls == acts and (acts or asks not in shown(pilot)))


@pytest.fixture
def watched(tmp_path: Path, monkeypatch) -> Iterator[Callable[[], Terminal]]:
    """Start tfmon on its screen with the script, and wait until it trains."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAINS)
    terminals: list[Terminal] = []

    def start() -> Terminal:
        terminals.append(Terminal("watch", "--record", "run.jsonl.gz", "--", sys.executable, "train.py"))
        terminals[-1].wait_for(racing)
        return terminals[-1]

    yield start
    Path("enough").touch()
    for terminal in terminals:
        terminal.close()


@pytest.mark.pty
def test_the_second_time_it_ends_as_at_a_ctrl_c(watched):
    terminal = watched()
    terminal.process.send("\x03")
    terminal.wait_for(lambda shown: LEAVES in shown)
    terminal.process.send("\x03")
    assert terminal.wait_for_exit() == 0
    assert Path("saved").read_text() == "saved"


@pytest.mark.pty
def test_it_trains_on_and_is_recorded_when_the_user_leaves_it_running(watched):
    terminal = watched()
    (runner,) = psutil.Process(terminal.process.pid).children()
    terminal.process.send("q")
    terminal.wait_for(lambda shown: LEAVES in shown)
    terminal.process.send("d")
    assert terminal.wait_for_exit() == 0
    assert "tfmon attach" in terminal.raw.rsplit(RESTORED[0], 1)[1]
    assert not ended(runner)
    Path("enough").touch()
    assert gone([runner])
    assert Path("began").read_text() == "x"
    with gzip.open("run.jsonl.gz", "rt") as lines:
        assert any("LaneEnded" in line and '"exit_code":0' in line.replace(" ", "") for line in lines)
