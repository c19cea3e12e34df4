"""Repeated starts: when they come, and that the race goes on with new processes."""

from dataclasses import replace

import pytest
from support.events import SECOND
from support.processes import gone
from support.verdicts import ended, lane, noisy, with_slices
from support.waiting import wait_for

from tfmon.model.events import LaneStarted
from tfmon.model.lane_events import PAUSED, RACING
from tfmon.model.lane_state import DONE, Heartbeat
from tfmon.model.race import CONCURRENT, TURNS
from tfmon.model.session import Snapshot
from tfmon.series import repeat
from tfmon.series.repeat import LEAST_LEFT_S, LEAST_ROUNDS, Repeat, due


def raced(rounds: int, scatter: float = 0.002, *, since: int = 0, **race) -> Snapshot:
    """Return a race after rounds of two seconds; the present processes began after `since` rounds."""
    lanes = [lane(name, noisy(100, rounds, scatter, seed=at)) for at, name in enumerate(("cpu", "gpu:0"))]
    snapshot = ended(*lanes, **{"fresh": True, **race})
    racing = []
    for one in snapshot.lanes:
        renewed = with_slices(one, lambda part: replace(part, process=1 + (0 < since < part.round)))
        process = replace(one.process, number=2 if since else 1)
        racing.append(replace(renewed, phase=RACING, process=process))
    return replace(snapshot, at_ns=2 * rounds * SECOND, lanes=tuple(racing))


def test_a_start_is_due_after_its_time_and_the_next_one_after_its_own():
    assert [rounds for rounds in range(40) if due(raced(rounds))][:1] == [11]
    assert [rounds for rounds in range(12, 60) if due(raced(rounds, since=11))][:1] == [22]
    assert not due(raced(40, fresh=False)), "only where it is wanted"


def test_none_comes_so_late_that_it_would_hardly_race():
    seconds = 2 * 20 + LEAST_LEFT_S
    assert due(raced(20, seconds=seconds)) and not due(raced(20, seconds=seconds - 1))


def test_none_comes_while_the_rounds_leave_more_open_than_processes_differ_by():
    assert not due(raced(20, 0.1))
    assert due(raced(400, 0.1)), "more rounds of the same processes help no more"


@pytest.mark.parametrize(
    "change",
    [
        lambda known: replace(known, race=replace(known.race, mode=CONCURRENT)),
        lambda known: replace(known, race=replace(known.race, exclusive="cpu")),
        lambda known: replace(known, lanes=(known.lanes[0], replace(known.lanes[1], phase=PAUSED))),
        lambda known: replace(known, lanes=known.lanes[:1]),
        lambda known: replace(
            known, lanes=(known.lanes[0], replace(known.lanes[1], heartbeat=Heartbeat(stalled_since_ns=1)))
        ),
    ],
    ids=["all at once", "an experiment", "paused", "one lane", "a lane hangs"],
)
def test_none_comes_where_there_is_nothing_to_compare(change):
    assert not due(change(raced(20)))


@pytest.fixture
def begin(group, monkeypatch):
    """Race with starts that are due after a few rounds; return the group, with the pids of each lane."""
    monkeypatch.setattr(repeat, "LEAST_S", 0.5)
    monkeypatch.setattr(repeat, "MATTERS", 0.0)

    def start(**plan):
        Repeat(group.session, group.repeat)
        group.pids_of = {"cpu": [], "gpu:0": []}
        group.session.listen(lambda event: group.pids_of[event.lane].append(event.pid), LaneStarted)
        planned = group.plan("cpu", "gpu", mode=TURNS, **plan)
        group.begin(replace(planned, race=replace(planned.race, fresh=True)))
        group.wait_for(RACING, "cpu")
        return group

    return start


@pytest.mark.process
def test_new_processes_take_over_all_lanes_and_the_measurement_goes_on(begin):
    group = begin(steps=50_000)

    def renewed(name: str) -> bool:
        processes = dict.fromkeys(part.process for part in group.lane(name).slices)
        return [*processes][:2] == [1, 2]

    wait_for(lambda: all(map(renewed, group.pids_of)), what="the second start")
    wait_for(lambda: all(gone(pids[0]) for pids in group.pids_of.values()), what="the old ones are gone")
    pairs = zip(group.lane("cpu").slices, group.lane("gpu:0").slices, strict=False)
    assert all((first.round, first.process) == (second.round, second.process) for first, second in pairs)
    first = [part for part in group.lane("cpu").slices if part.process == 1]
    assert len(first) >= LEAST_ROUNDS
    assert not group.all_over
    assigned = [line for line in group.requests("cpu") if line.startswith("Assign")]
    steps_left = ["steps=50000" in line for line in assigned[:2]]
    assert steps_left == [True, False], "steps that are measured already are not requested again"


@pytest.mark.process
def test_the_end_of_the_race_comes_during_a_start(begin):
    group = begin()
    during = []

    def finish(event):
        if isinstance(event, LaneStarted) or during:
            return
        if group._replaced:
            during.append(group.all_over)
            group.finish()

    group.session.listen(finish)
    wait_for(lambda: during and group.all_over, what="the end")
    assert during == [False], "the race is not over though no process runs"
    assert [group.lane(name).phase for name in ("cpu", "gpu:0")] == [DONE, DONE]
    assert not group.pids()
