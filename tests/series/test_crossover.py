"""Crossovers of real children that train nothing, at paces that are known."""

from functools import partial

import pytest
from support.waiting import wait_for

from tfmon.analysis.crossover_curve import crossover_of, curve_of
from tfmon.errors import ExperimentError
from tfmon.model.lane_events import RACING
from tfmon.model.race import CONCURRENT, TURNS

from .conftest import ended

pytestmark = pytest.mark.process


def begin(group, mode: str = TURNS, environment: dict[str, dict[str, str]] | None = None) -> None:
    group.begin(group.plan("cpu", "gpu", mode=mode, environment=environment))
    group.wait_for(RACING, "cpu", "gpu:0")


def state(group):
    return group.session.snapshot().experiment


def test_a_known_crossing_is_found_in_turns_and_the_lanes_get_their_settings_and_mode_back(group, bench):
    begin(group, CONCURRENT, {"gpu:0": {"EQUAL_AT": "24"}})
    bench.run(crossover_of("batch_size", ("cpu", "gpu:0"), (4, 8, 13, 16, 32, 64, 128)))
    wait_for(lambda: group.session.snapshot().race.mode == TURNS, what="turns")
    assert ended(bench)
    snapshot = group.session.snapshot()
    (crossing,) = curve_of(snapshot, snapshot.experiment).crossings
    low, high = crossing.between
    assert 16 <= low <= crossing.about <= high <= 32
    assert (crossing.ahead_above, crossing.ahead_below) == ("gpu:0", "cpu")
    assert (snapshot.race.mode, state(group).over, state(group).ended) == (CONCURRENT, True, "")
    refused = [(one.settings, one.refused) for one in state(group).attempts if one.refused]
    assert refused == [({"batch_size": 13}, "13 brings bad luck")]
    assert {lane.settings["batch_size"] for lane in bench.measured.lanes} <= {4, 8, 16, 32, 64, 128}
    assert bench.measured.at_ns < snapshot.at_ns and not any(lane.to_change for lane in bench.measured.lanes)
    wait_for(lambda: all(lane.settings["batch_size"] == 32 for lane in group.session.snapshot().lanes))


def test_a_knob_that_restarts_the_lanes_is_raced_and_a_value_at_which_one_fails_says_why(group, bench):
    begin(group, environment={"gpu:0": {"FAILS_AT": "256"}})
    bench.run(crossover_of("width", ("cpu", "gpu:0"), (64, 256)))
    assert ended(bench)
    snapshot = group.session.snapshot()
    low, high = curve_of(snapshot, snapshot.experiment).points
    assert low.pairs >= 6 and any("'width': 64" in request for request in group.requests("cpu"))
    assert (low.refused, high.refused) == ("", "out of memory: it is too wide")
    wait_for(lambda: group.lane("gpu:0").phase == RACING, what="the lane that failed trains again")


def test_a_batch_is_never_larger_than_the_data_and_another_race_ends_it(group, bench):
    begin(group)
    bench.start_crossover("batch_size")
    assert state(group).values[-1] == 512
    for begins in (partial(bench.start_crossover, "batch_size"), bench.undo):
        with pytest.raises(ExperimentError, match="running already"):
            begins()
    wait_for(lambda: state(group).at == 2, what="the second value")
    group.race("other")
    assert ended(bench)
    assert group.session.snapshot().race.scenario == "other"
