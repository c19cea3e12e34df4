"""Sweeps of simulated places whose speed follows a formula: results, order, and failures."""

from dataclasses import replace

import pytest
from support.sweeps import BASE, CHANGED, SimulatedStation, planned, speed_of
from support.waiting import wait_for

from tfmon.analysis.series_tables import answer
from tfmon.analysis.sweep_ranking import BASELINE, BEATEN, FAILED, LIMIT, MEASURED, OPEN, REFUSED, rank
from tfmon.model.codec import encode, parse, read
from tfmon.model.event_base import Event
from tfmon.model.events import SeriesAdvanced
from tfmon.model.race import Machine
from tfmon.model.series import PairMeasured, state_after
from tfmon.model.session import Session
from tfmon.reports.series_report import to_text
from tfmon.series.engine import Series
from tfmon.series.sweep import SweepPolicy

from .conftest import ended


def swept(state, *stations, write=lambda event: None):
    sweep = Series(state, SweepPolicy(), stations or [SimulatedStation()], write)
    sweep.start()
    assert ended(sweep)
    return rank(sweep.state)


def test_one_that_is_told_of_the_steps_alone_knows_the_same():
    state, lines = planned(until_ci=0.05), []
    viewer = Session(Machine(), lambda: 0)
    viewer.advance_series(state)
    found = swept(state, write=lambda step: lines.append(encode(SeriesAdvanced(at_ns=0, step=step))))
    for line in lines:
        viewer.accept(read(parse(line), Event))
    known = viewer.snapshot().sweep
    assert known == found.state and known.over and any(attempt.pairs for attempt in known.attempts)


def test_the_best_of_a_known_formula_is_found_and_so_is_the_ranking():
    found = swept(planned(everything=True, until_ci=0.02))
    best = found.best("cpu")
    assert best.attempt.settings == {"batch_size": 64, "mixed_precision": "bfloat16"}
    assert best.ratio.low < 1.6 * 1.15 < best.ratio.high and best.outcome == MEASURED
    wanted = sorted((row.attempt.settings for row in found.rows), key=speed_of, reverse=True)
    assert [row.attempt.settings for row in found.ranked] == wanted
    assert [row.outcome for row in found.rows].count(BASELINE) == 1
    assert "batch_size=64 mixed_precision=bfloat16" in answer(found)[0]
    assert "it trains differently (other batch size and mixed precision)" in answer(found)[0]
    assert (found.state.over, found.state.ended) == (True, "")


def test_what_cannot_win_is_stopped_early_and_the_rest_is_measured_in_several_visits():
    found = swept(planned(until_ci=0.012))
    by_batch = {row.attempt.settings["batch_size"]: row for row in found.rows if row.outcome != BASELINE}
    assert by_batch[16].outcome == BEATEN and by_batch[16].attempt.visits == 1
    best = found.best("cpu")
    assert best.outcome == MEASURED and best.attempt.visits > by_batch[16].attempt.visits
    assert all(row.ratio.high < best.ratio.low for row in found.rows if row.outcome == BEATEN)


def test_each_is_raced_for_so_long_at_most(monkeypatch):
    found = swept(planned(until_ci=0.01, each_s=0.02), SimulatedStation(noise=0.3, pause_s=0.002))
    assert {row.outcome for row in found.rows} <= {LIMIT, BASELINE, BEATEN}
    assert any(row.outcome == LIMIT for row in found.rows)


def test_what_the_scenario_refuses_has_the_reason_and_is_not_tried():
    refused = "scenario: no such layout"
    station = SimulatedStation(dies=lambda own, visit: refused if own["batch_size"] == 16 else "")
    found = swept(planned({"batch_size": (16, 64, 4_096)}), station)
    outcomes = [(row.outcome, row.reason) for row in found.rows]
    assert outcomes == [(REFUSED, "no such layout"), (MEASURED, ""), (REFUSED, "too large")]
    assert station.visited.count({"batch_size": 16}) == 1 and {"batch_size": 4_096} not in station.visited


def test_one_whose_process_dies_is_tried_again_twice_and_the_sweep_goes_on():
    always = SimulatedStation(dies=lambda own, visit: "died" if own["batch_size"] == 16 else "")
    found = swept(planned({"batch_size": (16, 64)}, everything=True), always)
    assert found.rows[0].outcome == FAILED and "SIGKILL" in found.rows[0].reason
    assert always.visited.count({"batch_size": 16}) == 3
    assert found.rows[1].outcome == MEASURED
    once = SimulatedStation(dies=lambda own, visit: "died" if visit == 1 else "")
    found = swept(planned({"batch_size": (16, 64)}), once)
    assert [row.outcome for row in found.rows] == [BEATEN, MEASURED]
    assert len(found.rows[0].attempt.deaths) == 1


def test_places_of_one_machine_take_turns_and_those_of_others_work_meanwhile():
    together = []

    def watched(own):
        together.append(sum(bool(station.training) for station in stations[:2]))
        return speed_of(own)

    stations = [
        SimulatedStation("cpu", machine="one", speed=watched),
        SimulatedStation("cpu #2", machine="one", speed=watched),
        SimulatedStation("far/cpu", machine="two"),
    ]
    found = swept(planned(until_ci=0.015), *stations)
    assert max(together) <= 1
    assert all(station.visited for station in stations)
    assert found.best("cpu").attempt.settings == {"batch_size": 64, "mixed_precision": "bfloat16"}


def test_each_kind_of_device_has_its_own_ranking():
    cpu = SimulatedStation("cpu", machine="one")
    gpu = SimulatedStation("gpu:0", "gpu", "one", speed=lambda own: 100.0 * int(own["batch_size"]))
    found = swept(planned(kinds=("cpu", "gpu")), cpu, gpu)
    assert found.best("cpu").attempt.settings["batch_size"] == 64
    assert found.best("gpu").attempt.settings["batch_size"] == 128
    assert len(found.rows) == 16 and len(answer(found)) == 2


def test_a_place_that_cannot_be_used_is_left_and_the_others_do_its_work():
    bad = SimulatedStation("bad/cpu", machine="bad", unusable="bad is gone")
    found = swept(planned(), bad, SimulatedStation())
    assert found.state.lost == {"bad/cpu": "bad is gone"} and found.state.ended == ""
    assert "bad/cpu is not used any more: bad is gone" in to_text(found)
    assert not any(row.attempt.deaths for row in found.rows)
    found = swept(planned(), bad)
    assert "no place is left: bad/cpu: bad is gone" in found.state.ended
    assert all(row.outcome in (OPEN, BASELINE) for row in found.rows)


def test_a_baseline_that_fails_is_not_blamed_on_the_combinations():
    station = SimulatedStation(dies=lambda own, visit: "scenario: no memory left", dying=BASE)
    found = swept(planned(), station)
    assert "the baseline: no memory left" in found.state.ended
    assert len(station.visited) == 3
    assert not any(row.reason for row in found.rows)


def test_a_combination_that_leaves_the_baseline_no_memory_fails_and_the_place_stays():
    reason = "out_of_memory: no memory left"
    greedy = SimulatedStation(dies=lambda own, visit: reason if own["batch_size"] == 128 else "", dying=BASE)
    found = swept(planned({"batch_size": (16, 64, 128)}, everything=True), greedy)
    assert [row.outcome for row in found.rows] == [MEASURED, MEASURED, FAILED]
    assert found.rows[2].reason == "the baseline: no memory left, beside this combination"
    assert found.state.lost == {}


@pytest.mark.parametrize("lane", [BASE, CHANGED])
def test_a_device_that_is_gone_is_not_blamed_on_the_combinations(lane):
    station = SimulatedStation(dies=lambda own, visit: "device_absent: no GPU" if visit > 1 else "", dying=lane)
    found = swept(planned(), station)
    assert "no place is left" in found.state.ended and "no GPU" in found.state.ended
    assert len(station.visited) == 4 and not any(row.reason for row in found.rows)


@pytest.mark.parametrize("lane", [BASE, CHANGED])
def test_a_host_that_is_lost_puts_the_combination_back_into_the_queue(lane):
    station = SimulatedStation(dies=lambda own, visit: "host_lost: gpu2 is gone" if visit == 1 else "", dying=lane)
    found = swept(planned({"batch_size": (16, 64)}), station)
    assert found.rows[0].attempt.deaths == ("gpu2 is gone",)
    assert [row.outcome for row in found.rows] == [BEATEN, MEASURED]


def test_a_lane_that_hangs_while_the_other_trains_on_does_not_hang_the_sweep(monkeypatch):
    monkeypatch.setattr("tfmon.series.engine.HANGS_S", 0.1)
    station = SimulatedStation(hangs=lambda own: own["batch_size"] == 16, pause_s=0.001)
    found = swept(planned({"batch_size": (16, 64)}), station)
    assert (found.rows[0].outcome, found.rows[0].reason) == (FAILED, "it hangs")
    assert found.rows[1].outcome == MEASURED


def test_rounds_without_a_pair_come_to_an_end(monkeypatch):
    monkeypatch.setattr("tfmon.series.engine.PATIENCE_S", 0.7)
    station = SimulatedStation(speed=lambda own: 0.0 if own["batch_size"] == 16 else 1_000.0, pause_s=0.003)
    found = swept(planned({"batch_size": (16, 64)}), station)
    assert (found.rows[0].outcome, found.rows[0].reason) == (FAILED, "nothing was measured for 1 s")
    assert found.rows[1].outcome == MEASURED


def test_stopping_keeps_what_there_is_and_going_on_measures_nothing_twice():
    events = []
    state = planned(until_ci=0.012)
    sweep = Series(state, SweepPolicy(), [SimulatedStation(pause_s=0.001)], events.append)
    sweep.start()
    wait_for(lambda: sum(isinstance(event, PairMeasured) for event in events) > 40, what="40 pairs")
    sweep.stop("interrupted by SIGINT")
    assert ended(sweep)
    assert sweep.state.ended == "interrupted by SIGINT"
    latest = next(event.number for event in reversed(events) if isinstance(event, PairMeasured))
    assert sweep.state.attempts[latest].figures.examples_per_s > 0, "an interrupted visit has figures"
    for event in events:
        state = state_after(state, event)
    assert state.attempts == sweep.state.attempts
    before = [attempt.pairs for attempt in state.attempts]
    station = SimulatedStation()
    found = swept(state, station)
    assert all(one.pairs[: len(was)] == was for one, was in zip(found.state.attempts, before, strict=True))
    settled = [row for row in rank(sweep.state).rows if row.outcome in (MEASURED, BASELINE)]
    assert all(row.attempt.settings not in station.visited for row in settled)
    assert found.best("cpu").outcome == MEASURED


def test_a_knob_that_the_lane_does_not_have_is_refused():
    class Deaf(SimulatedStation):
        def begin(self, attempt):
            return super().begin(replace(attempt, settings={}))

    found = swept(planned({"batch_size": (16, 64)}), Deaf())
    assert [row.reason for row in found.rows] == ["batch_size=32 stays", "batch_size=32 stays"]


def test_equal_combinations_are_not_told_apart():
    found = swept(planned(everything=True), SimulatedStation(speed=lambda own: 1_000.0))
    assert len(found.rivals(found.best("cpu"))) == 7
