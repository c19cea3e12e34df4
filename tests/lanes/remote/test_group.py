"""Lanes of a race on this machine and on hosts: who trains when, and the loss of a host."""

import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.hosts import NEVER_S, FakeSsh, agents_code
from support.lanes import RacingGroup
from support.processes import gone
from support.waiting import PATIENCE_S, wait_for

from tfmon.analysis.analysis import analyse
from tfmon.errors import TfmonError
from tfmon.lanes.remote import connection, start_program
from tfmon.model.event_base import Event
from tfmon.model.events import HostConnected, KnobRequested, SliceGranted
from tfmon.model.lane_events import RACING, KnobApplied
from tfmon.model.lane_state import DONE, FAILED, HOST_LOST
from tfmon.model.race import TURNS

pytestmark = pytest.mark.process


class SpreadGroup(RacingGroup):
    def __init__(self, logs, ssh: FakeSsh, *hosts: str) -> None:
        super().__init__(logs)
        self.granted: list[SliceGranted] = []
        self.session.listen(lambda event: self.granted.append(event) if isinstance(event, SliceGranted) else None)
        self.links = {host: ssh.link(host) for host in hosts}
        for link in self.links.values():
            link.listener = self.session.accept
            link.ensure()
        self._places = self.links

    def begin_on_separate_machines(self, *names: str, **more) -> None:
        for host, link in self.links.items():
            machine = replace(link.machine, boot=host)
            self.session.accept(HostConnected(at_ns=1, host=host, machine=machine))
        self.begin(self.plan(*names, mode=TURNS, **more))
        for name in names:
            self.wait_for_steps(name, 20)


@pytest.fixture
def spread(tmp_path, ssh) -> Iterator[SpreadGroup]:
    ssh.behave(hosts={"gpu2": {"link": str(tmp_path / "link")}})
    group = SpreadGroup(tmp_path, ssh, "gpu2", "gpu3")
    yield group
    group.stop()


def test_lanes_here_and_there_race_in_turns_and_end(spread):
    spread.begin(spread.plan("cpu", "gpu2/cpu", "gpu3/cpu", mode=TURNS))
    for name in ("cpu", "gpu2/cpu", "gpu3/cpu"):
        spread.wait_for_steps(name, 30)
    two = {"gpu2/cpu", "gpu3/cpu"}
    granted = spread.granted
    assert granted and not any(two <= {event.lane, *event.beside} for event in granted), "two names of one machine"
    slices = [len(lane.slices) for lane in spread.session.snapshot().lanes]
    assert max(slices) - min(slices) <= 2, "each round has a slice of every lane"
    spread.set_knob("gpu2/cpu", "prefetch", "auto")
    wait_for(lambda: spread.lane("gpu2/cpu").settings["prefetch"] == "auto", what="the knob is in effect there")
    spread.set_knob("gpu3/cpu", "width", 64)
    wait_for(lambda: spread.lane("gpu3/cpu").settings["width"] == 64, what="restarted there")
    spread.wait_for(RACING, "gpu3/cpu")
    spread.finish()
    spread.wait_for(DONE, "cpu", "gpu2/cpu", "gpu3/cpu")
    wait_for(lambda: spread.all_over, what="all have ended")


def test_a_lost_host_fails_its_lanes_only_says_why_it_stays_away_and_is_connected_again(spread):
    spread.begin_on_separate_machines("cpu", "gpu2/cpu", "gpu3/cpu")
    assert any(event.lane and event.beside for event in spread.granted), "two machines train at the same time"
    link, tried, answer = spread.links["gpu2"], threading.Event(), threading.Event()
    link.agent.kill()
    spread.wait_for(FAILED, "gpu2/cpu")
    lost, before = spread.lane("gpu2/cpu").trouble, spread.lane("gpu2/cpu").totals.steps
    assert lost.kind == HOST_LOST and "gpu2 is lost" in lost.message

    def open_again() -> None:
        tried.set()
        answer.wait(PATIENCE_S)
        raise TfmonError("gpu2 cannot be reached: no route to host", "look at the cable")

    own, link._open = link._open, open_again
    spread.restart(["gpu2/cpu"])
    wait_for(tried.is_set, what="it is tried")
    spread.wait_for_steps("cpu", 20)
    spread.wait_for_steps("gpu3/cpu", 20)
    answer.set()
    wait_for(lambda: "no route" in spread.lane("gpu2/cpu").trouble.message, what="the reason is told")
    away = spread.lane("gpu2/cpu")
    assert (away.phase, away.trouble.kind, away.trouble.hint) == (FAILED, HOST_LOST, "look at the cable")
    assert away.totals.steps >= before > 0, "what was measured stays"
    assert spread.session.snapshot().hosts["gpu2"].lost == "gpu2 cannot be reached: no route to host"
    spread.wait_for_steps("cpu", 20)
    link._open = own
    spread.restart(["gpu2/cpu"])
    spread.wait_for(RACING, "gpu2/cpu")
    spread.wait_for_steps("gpu2/cpu", 5)
    assert not link.lost


def test_a_slow_link_delays_keys_by_less_than_half_a_second_and_changes_no_figure(spread, tmp_path):
    names, times = ("gpu2/cpu", "gpu3/cpu"), {"WINDOW_S": "0.1"}
    delays_s: list[float] = []

    def measure(event: Event) -> None:
        if isinstance(event, KnobRequested):
            delays_s.append(-event.at_ns / 1e9)
        elif isinstance(event, KnobApplied):
            delays_s[-1] += event.at_ns / 1e9

    spread.begin_on_separate_machines(*names, slice_s=0.3, environment=dict.fromkeys(names, times))
    (tmp_path / "link").write_text('{"delay_s": 0.1, "bytes_per_s": 50000}')
    spread.wait_for_steps("gpu2/cpu", 20)
    spread.session.listen(measure)
    for value in ("auto", 2, 4, 8, "off"):
        spread.set_knob("gpu2/cpu", "prefetch", value)
        wait_for(lambda value=value: spread.lane("gpu2/cpu").settings["prefetch"] == value, what="in effect")
        time.sleep(0.07)
    assert 0.1 <= statistics.median(delays_s) < 0.5
    wait_for(lambda: all(len(spread.lane(name).slices) > 5 for name in names), what="slices")
    both = spread.session.snapshot()
    slow, quick = ({item.round for item in lane.slices} for lane in both.lanes)
    assert len(slow & quick) > 3, "they train in the same rounds"
    assert analyse(both).verdict.ratio == pytest.approx(1.0, abs=0.01)
    assert not spread.links["gpu2"].lost


@pytest.mark.slow
def test_a_black_hole_is_reported_within_seconds_and_leaves_no_process(tmp_path, ssh, monkeypatch):
    monkeypatch.setattr(connection, "SILENCE_S", 5.0)
    shipped = agents_code(f"SILENCE_S = {NEVER_S}", "SILENCE_S = 5.0")
    monkeypatch.setattr(start_program, "packed", shipped)
    ssh.behave(hosts={"gpu2": {"link": str(tmp_path / "link")}})
    spread = SpreadGroup(tmp_path, ssh, "gpu2", "gpu3")
    spread.begin_on_separate_machines("gpu2/cpu", "gpu3/cpu")
    link, pid = spread.links["gpu2"], spread.lane("gpu2/cpu").process.pid
    agent, folder = link.agent.pid, Path(link.folder)
    (tmp_path / "link").write_text('{"hole": true}')
    since_ns = time.monotonic_ns()
    spread.wait_for(FAILED, "gpu2/cpu")
    assert spread.lane("gpu2/cpu").trouble.message == "gpu2 is lost: nothing was received for 5 s"
    assert time.monotonic_ns() - since_ns < 8e9, "6 s, and some time for a busy machine"
    spread.wait_for_steps("gpu3/cpu", 20)
    wait_for(lambda: gone(agent) and gone(pid) and not folder.exists(), what="nothing is left there")
    spread.stop()
