"""A run on another machine, watched from here over a real sshd: whatever becomes of the connection, it goes on."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support.processes import run_python
from support.slow import slow_except
from support.sshd import Sshd, needs_sshd
from support.waiting import wait_for

pytest.importorskip("pexpect")
from support.terminal import Terminal, gone, racing

from tfmon.api import sockets

from .test_attach import CODE, TRAINS, let

pytestmark = [pytest.mark.pty, needs_sshd]


@pytest.fixture
def there(sshd: Sshd, tmp_path: Path, monkeypatch) -> Iterator[Path]:
    """Be on a machine that ssh calls gpu2, until nothing runs there. Return a folder for sockets here."""
    monkeypatch.setenv("PATH", sshd.put_client(), prepend=":")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("TFMON_RECORDINGS", str(sshd.folder / "state" / "tfmon" / "recordings"))
    monkeypatch.setenv("TFMON_RUNTIME", str(sshd.folder / "run"))
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAINS)
    let("go")
    yield sshd.folder / "here"
    let()
    wait_for(lambda: not list(sockets.under_way()), what="nothing is left")


def tfmon(here: Path, *words: object):
    return run_python("-m", "tfmon", *words, TFMON_RUNTIME=str(here))


@pytest.mark.slow
def test_it_is_listed_shown_and_goes_on_where_the_connection_is_lost(there, sshd):
    assert "no race was recorded on gpu2 yet, and none is under way" in tfmon(there, "runs", "gpu2").stdout
    assert run_python("-m", "tfmon", "watch", "--detach", "--", "python3", "train.py").returncode == 0
    (run,) = sockets.under_way()
    listed = tfmon(there, "runs", "gpu2").stdout
    assert listed.startswith(f"gpu2/{run.name}  ") and f"under way: tfmon attach gpu2/{run.name}\n" in listed
    (row,) = json.loads(tfmon(there, "runs", "gpu2", "--json").stdout)
    assert (row["id"], row["host"], row["pid"]) == (run.name, "gpu2", run.pid)
    terminal = Terminal("attach", "gpu2/last", TFMON_RUNTIME=str(there))
    terminal.wait_for(racing)
    terminal.process.send(" ")
    terminal.wait_for(lambda shown: "Space resume" in shown)
    sessions = sshd.sessions()
    for session in sessions:
        session.kill()
    terminal.wait_for(lambda shown: "the connection to gpu2 is lost" in shown)
    shown = []
    for _ in range(2):
        time.sleep(1.5)
        shown.append(terminal.read().splitlines()[:3])
    assert shown[0] == shown[1], "the clock of the run stands still"
    terminal.process.send("q")
    assert terminal.wait_for_exit() == 1
    assert f"tfmon attach gpu2/{run.name} shows it again" in terminal.raw
    terminal.close()
    again = Terminal("attach", f"gpu2/{run.name[:-6]}", TFMON_RUNTIME=str(there))
    again.wait_for(lambda shown: racing(shown) and "Space pause" in shown)
    again.close()
    wait_for(lambda: not sshd.sessions(), what="the connection is closed")


@pytest.mark.parametrize("how", slow_except("d", ["d", "SIGKILL", "the run's process is killed"]))
def test_what_ends_there_with_what(there, sshd, how):
    run_python("-m", "tfmon", "watch", "--detach", "--", "python3", "train.py")
    (run,) = sockets.under_way()
    runner = psutil.Process(run.pid)
    terminal = Terminal("attach", "gpu2/last", TFMON_RUNTIME=str(there))
    terminal.wait_for(racing)
    if how == "d":
        terminal.process.send("qd")
        assert terminal.wait_for_exit() == 0
        assert f"tfmon attach gpu2/{run.name} shows it" in terminal.raw
    elif how == "SIGKILL":
        psutil.Process(terminal.process.pid).kill()
    else:
        runner.kill()
        terminal.wait_for(lambda shown: "has ended unexpectedly" in shown)
        terminal.process.send("q")
        assert terminal.wait_for_exit() == 1
    wait_for(lambda: not sshd.sessions(), what="the connection is closed")
    assert bool(list(sockets.under_way())) is (how in ("d", "SIGKILL"))
    if how == "d":
        assert tfmon(there, "attach", "gpu2/last", "--end").returncode in (0, CODE)
        assert gone([runner])
    terminal.close()


def test_what_cannot_be_watched_there_is_said_in_a_line(there):
    nothing = tfmon(there, "attach", "gpu2/20261126", "--end")
    assert (nothing.returncode, nothing.stderr.splitlines()[0]) == (2, "tfmon: there is no recording 20261126")
    unknown = tfmon(there, "runs", "gpu9")
    assert unknown.returncode == 3 and unknown.stderr.startswith("tfmon: there is no host gpu9")
