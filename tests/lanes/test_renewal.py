"""Fresh processes inside a race: when they come, and that the race goes on with them."""

from __future__ import annotations

import pytest
from support.lanes import RacingGroup
from support.processes import gone
from support.waiting import wait_for

from tfmon.lanes.spare import LEAST_LEFT_S, Renewal
from tfmon.model.events import LaneStarted
from tfmon.model.lane_state import DONE, RACING
from tfmon.model.race import TURNS


class Clock:
    """A clock that the test sets, in seconds."""

    now_s = 100.0

    def __call__(self) -> int:
        return int(self.now_s * 1e9)


def test_processes_are_due_after_their_time_and_the_next_ones_after_theirs():
    clock = Clock()
    renewal = Renewal(20.0, clock_ns=clock)
    due = []
    for second in range(100, 166):
        clock.now_s = second
        if renewal.due():
            due.append(second)
            renewal.begin()
    assert due == [120, 141, 162], "the clock begins when the new ones race"
    assert not Renewal(None, clock_ns=clock).due()


def test_none_come_so_late_that_they_would_hardly_race():
    clock = Clock()
    renewal = Renewal(20.0, 60.0, clock)
    assert not renewal.due() and not renewal.due(19.0) and renewal.due(20.0)
    clock.now_s += 60.0 - LEAST_LEFT_S
    assert renewal.due() and renewal.due(-20.0)
    assert not renewal.due(0.1), "no spare workers are needed"
    clock.now_s += 0.1
    assert not renewal.due()


@pytest.fixture
def begin(tmp_path):
    groups = []

    def start(**plan) -> RacingGroup:
        group = RacingGroup(tmp_path)
        groups.append(group)
        group.pids_of = {"cpu": [], "gpu:0": []}
        group.session.listen(
            lambda event: group.pids_of[event.lane].append(event.pid) if isinstance(event, LaneStarted) else None
        )
        group.begin(group.plan("cpu", "gpu", mode=TURNS, **plan))
        group.wait_for(RACING, "cpu")
        return group

    yield start
    for group in groups:
        group.stop()


def processes_of(group: RacingGroup, lane: str) -> list[int]:
    """Return which processes ran the slices of a lane, in their order."""
    return list(dict.fromkeys(one.process for one in group.lane(lane).slices))


@pytest.mark.process
def test_spare_workers_take_over_both_lanes_and_the_measurement_goes_on(begin):
    group = begin(fresh_every_s=1.5, fresh_spares=2)
    spares = set()

    def renewed() -> bool:
        spares.update(pid for name, pid in group.running.processes().items() if not name.strip())
        return all(processes_of(group, lane)[:2] == [1, 2] for lane in group.pids_of)

    wait_for(renewed, what="slices of fresh processes of both lanes")
    assert {pids[1] for pids in group.pids_of.values()} <= spares
    wait_for(lambda: all(gone(pids[0]) for pids in group.pids_of.values()), what="the old ones are gone")
    pairs = zip(group.lane("cpu").slices, group.lane("gpu:0").slices, strict=False)
    assert all((first.round, first.process) == (second.round, second.process) for first, second in pairs)
    assert not group.running.all_over


@pytest.mark.process
def test_the_end_of_the_race_comes_during_a_renewal(begin):
    group = begin(fresh_every_s=1.0)
    wait_for(lambda: group.running.renewing, what="a renewal")
    assert not group.running.all_over, "the race is not over though no process runs"
    group.finish()
    wait_for(lambda: group.running.all_over, what="the end")
    assert [group.lane(name).phase for name in ("cpu", "gpu:0")] == [DONE, DONE]
    assert not [name for name in group.running.processes() if name.strip()]


@pytest.mark.process
def test_steps_that_are_measured_already_are_not_asked_for_again(begin):
    group = begin(fresh_every_s=1.0, steps=50_000)

    def assigned() -> list[str]:
        return [line for line in group.requests("cpu") if line.startswith("Assign")]

    wait_for(lambda: len(assigned()) >= 2, what="a fresh process has its plan")
    first, second, *_ = assigned()
    assert "steps=50000" in first and "steps=50000" not in second


@pytest.mark.process
def test_a_spare_worker_that_loads_at_the_lowest_priority_is_replaced_when_it_is_due(tmp_path, monkeypatch):
    monkeypatch.setenv("LOADS", "1000")
    group = RacingGroup(tmp_path, keep_spare=True)
    try:
        group.begin(group.plan("cpu", "gpu", mode=TURNS, fresh_every_s=1.0, fresh_spares=2))
        slow = group.running.processes()[""]
        monkeypatch.setenv("LOADS", "0")
        wait_for(lambda: processes_of(group, "cpu")[:2] == [1, 2], what="slices of fresh processes")
        wait_for(lambda: gone(slow), what="the slow one is gone")
    finally:
        group.stop()
