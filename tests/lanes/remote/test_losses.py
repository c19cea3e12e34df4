"""What dies, and what dies with it: over a fake ssh whose link is cut or stalls, with children of every kind."""

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest
from support.hosts import agents_code, all_gone, read_pids, start_all_kinds, start_monitor
from support.processes import gone, suspended
from support.slow import slow_except
from support.sshd import needs_sshd
from support.waiting import wait_for

from tfmon.errors import TfmonError
from tfmon.lanes.remote import agent as agents
from tfmon.lanes.remote import connection as links
from tfmon.lanes.remote import questions, start_program
from tfmon.model.events import HostConnected
from tfmon.model.lane_state import HOST_LOST
from tfmon.model.readings import HostSample
from tfmon.model.requests import Stop

pytestmark = pytest.mark.process


def raise_error(*_: object) -> None:
    raise RuntimeError("injected")


class BadEvent(threading.Event):
    set = raise_error


@pytest.mark.parametrize("dies", ["host", "tell", "send"])
def test_a_thread_of_the_connection_that_dies_ends_it_with_the_reason(ssh, monkeypatch, dies):
    link = ssh.connect()
    child = link.start("a_beat")
    if dies == "host":
        monkeypatch.setattr(link, "_ping", raise_error)
    elif dies == "tell":
        link._works.put(raise_error)
    else:
        link.sender._items.put(BadEvent())
    lost = link.wait_for_loss()
    name = "tfmon-send" if dies == "send" else f"tfmon-{dies}-gpu2"
    assert lost.reason.startswith(f"tfmon's thread {name} failed: RuntimeError: injected")
    wait_for(lambda: child.process.ended and gone(child.pid), what="the child is gone")


def end_what_carries(link, dies: str, ssh) -> None:
    if dies == "link":
        (ssh.folder / "cut").touch()
    elif dies == "client":
        os.kill(link._wire.popen.pid, signal.SIGKILL)
    elif dies == "agent":
        link.agent.kill()
    for session in ssh.sessions() if dies == "session" else ():
        with contextlib.suppress(psutil.NoSuchProcess):  # one session process may end with the other
            session.kill()


CARRIERS = [
    pytest.param("ssh", "client"),
    pytest.param("ssh", "link", marks=pytest.mark.slow),
    pytest.param("ssh", "agent", marks=pytest.mark.slow),
    *(pytest.param("real_ssh", dies, marks=[pytest.mark.slow, needs_sshd]) for dies in ("client", "session")),
]


@pytest.mark.parametrize(("carrier", "dies"), CARRIERS)
def test_lanes_of_every_kind_end_with_what_carries_them(request, carrier, dies):
    ssh = request.getfixturevalue(carrier)
    if carrier == "ssh":
        ssh.behave(cut=str(ssh.folder / "cut"), notice="Authorised use only")
    link = ssh.connect()
    children, agent, folder = start_all_kinds(link), link.agent, Path(link.folder)
    end_what_carries(link, dies, ssh)
    wait_for(lambda: all_gone(children, agent.pid), what="all are gone, though no silence is taken for a loss")
    told = link.wait_for_loss()
    assert told.host == "gpu2" and told.reason and "Authorised" not in told.reason
    for child in children:
        assert child.end.exit_code is None and child.end.signal is None and not child.end.requested
        assert child.failure.kind == HOST_LOST and child.failure.message.startswith("gpu2 is lost: ")
        assert not child.process.send(Stop())
    wait_for(lambda: not folder.exists(), what="the agent's folder is gone")
    with pytest.raises(TfmonError, match="gpu2 is lost"):
        link.ask(questions.machine)
    with pytest.raises(TfmonError, match="gpu2 is lost"):
        link.start("a_listener")


def test_a_silent_link_is_told_within_6_s_and_ends_the_lanes_within_12():
    assert links.SILENCE_S + links.BEAT_S <= 6
    assert agents.SILENCE_S + 1 + agents.TERM_S + agents.KILL_S < 12


def test_an_agent_that_fails_says_why_and_its_lanes_end(ssh, monkeypatch):
    monkeypatch.setattr(start_program, "packed", agents_code("lane = HostedLane(", "raise KeyError('oh')  # ("))
    link = ssh.connect()
    with pytest.raises(TfmonError, match=r"gpu2 is lost: tfmon's thread tfmon-agent failed: KeyError"):
        link.start("a_listener")
    assert "KeyError" in link.wait_for_loss().reason


def test_noise_from_there_is_a_loss_and_no_crash(ssh):
    link = ssh.connect()
    child = link.start("a_listener")
    child.said_pid()
    link._lines.take(b"\xff")  # before the next line
    assert "a line that is not JSON" in link.wait_for_loss().reason
    assert child.failure.kind == HOST_LOST
    wait_for(lambda: all_gone([child]), what="the child is gone")


def test_a_lost_host_can_be_connected_again_and_its_readings_go_on(ssh):
    link = ssh.connect()
    link.begin_readings(())
    link.agent.kill()
    link.wait_for_loss()
    ssh.behave(exit=255, says="ssh: connect to host gpu2 port 22: Connection refused")
    with pytest.raises(TfmonError, match="Connection refused"):
        link.ensure()
    assert link.lost
    ssh.behave()
    link.ensure()
    assert not link.lost and len(link.heard(HostConnected)) == 2
    before = len(link.heard(HostSample))
    wait_for(lambda: len(link.heard(HostSample)) > before, what="readings come again")
    assert link.start("an_exit_code").end.exit_code == 3
    link.ensure()
    assert len(link.heard(HostConnected)) == 2, "it is connected"


@pytest.mark.parametrize("how", slow_except(signal.SIGKILL, [signal.SIGKILL, signal.SIGTERM]))
def test_lanes_there_do_not_outlive_a_monitor_that_is_killed(ssh, how):
    with start_monitor("kinds") as monitor:
        agent, *pids = read_pids(monitor)
        monitor.send_signal(how)
    wait_for(lambda: all(map(gone, [agent, *pids])), what="all are gone")


@pytest.mark.slow
def test_a_monitor_that_is_stopped_by_ctrl_z_loses_no_lane(ssh):
    """It stops for longer than the silence that an agent takes for a loss."""
    impatient = ssh.folder / "impatient"
    with start_monitor("held", IMPATIENT=str(impatient)) as monitor:
        try:
            agent, *pids = read_pids(monitor)
            monitor.send_signal(signal.SIGTSTP)
            wait_for(lambda: all(map(suspended, [monitor.pid, *pids])), what="monitor and lanes are stopped")
            impatient.touch()
            time.sleep(4.5)
            assert not any(map(gone, [agent, *pids])) and all(map(suspended, pids))
            monitor.send_signal(signal.SIGCONT)
            wait_for(lambda: not any(map(suspended, pids)), what="they go on")
            impatient.unlink()  # a lane that was taken for lost on the way ends within a second
            time.sleep(2)
            assert monitor.poll() is None and not any(map(gone, [agent, *pids]))
        finally:
            monitor.kill()
    wait_for(lambda: all(map(gone, [agent, *pids])), what="all are gone")
