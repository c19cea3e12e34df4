"""The session: events in from any thread, immutable snapshots out."""

from __future__ import annotations

import itertools
import threading
from dataclasses import FrozenInstanceError, replace

import pytest

from tfmon.model.events import BadLine, Interrupted
from tfmon.model.lane_events import LibrariesLoaded, PhaseEntered, Window
from tfmon.model.lane_state import IMPORTING, RACING, STARTING
from tfmon.model.lane_statistics import WindowSums
from tfmon.model.race import CONCURRENT, TURNS, CrossoverState, Machine, Race
from tfmon.model.readings import GpuSample, HostSample, Missing
from tfmon.model.session import Session
from tfmon.model.spec import LaneSpec, name_lanes

NONE = Missing("not read")


def gpu_sample(index: int, at_ns: int = 1, busy_pct: float = 50.0) -> GpuSample:
    return GpuSample(
        at_ns=at_ns,
        key=f"GPU-{index}",
        index=index,
        name=f"Board {index}",
        busy_pct=busy_pct,
        busy_source="samples",
        used_bytes=NONE,
        total_bytes=NONE,
        power_w=NONE,
        power_limit_w=NONE,
        temperature_c=NONE,
    )


@pytest.fixture
def session():
    session = Session(Machine(cpu_name="A CPU"), itertools.count(100).__next__)
    session.begin(Race(scenario="dense", mode=TURNS), name_lanes([LaneSpec("cpu"), LaneSpec("gpu:1")]))
    return session


def bad_line(lane: str = "cpu") -> BadLine:
    return BadLine(lane=lane, at_ns=1, problem="not JSON")


def window() -> Window:
    return Window(
        lane="cpu",
        at_ns=5,
        span_ns=4,
        steps=10,
        examples=320,
        step=10,
        input_ns=1,
        call_ns=1,
        sync_ns=1,
        report_ns=1,
        longest_ns=1,
        histogram={1: 10},
        loss=None,
        settings={},
        round=1,
    )


def test_lanes_begin_in_the_order_of_their_specs(session):
    lanes = session.snapshot().lanes
    assert [lane.spec.name for lane in lanes] == ["cpu", "gpu:1"]
    assert {lane.phase for lane in lanes} == {STARTING}
    assert {lane.started_ns for lane in lanes} == {100}


def test_an_event_reaches_its_lane_only(session):
    session.accept(PhaseEntered(lane="cpu", at_ns=5, phase=IMPORTING))
    snapshot = session.snapshot()
    assert (snapshot.lane("cpu").phase, snapshot.lane("gpu:1").phase) == (IMPORTING, STARTING)


def test_an_event_for_an_unknown_lane_is_passed_over_and_told_to_nobody(session):
    heard = []
    session.listen(heard.append)
    before = session.snapshot().lanes
    session.accept(bad_line("gpu:0"))
    assert session.snapshot().lanes == before
    assert heard == []


def test_a_lane_that_is_not_there_is_a_key_error(session):
    with pytest.raises(KeyError):
        session.snapshot().lane("gpu:0")


def test_a_snapshot_stays_as_it_was_while_more_arrives(session):
    early = session.snapshot()
    session.accept(PhaseEntered(lane="cpu", at_ns=5, phase=RACING))
    session.accept(gpu_sample(0))
    session.accept(HostSample(at_ns=1, cpu_pct=1.0, memory_used_bytes=2.0, memory_total_bytes=3.0))
    session.grant_slice("cpu")
    assert early.lane("cpu").phase == STARTING
    assert (early.gpus, early.host, early.race.training) == ((), None, "")
    with pytest.raises(FrozenInstanceError):
        early.lanes = ()


def test_a_snapshot_has_the_time_of_its_own_making(session):
    assert [session.snapshot().at_ns, session.snapshot().at_ns] == [101, 102]


def test_nothing_is_lost_with_several_writers_and_a_reader(session):
    writers, each = 8, 300
    start = threading.Barrier(writers + 1)
    heard = []
    session.listen(heard.append)

    def write(number: int) -> None:
        start.wait()
        for _ in range(each):
            session.accept(bad_line("cpu" if number % 2 else "gpu:1"))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    start.wait()
    seen = []
    while any(thread.is_alive() for thread in threads):
        seen.append(session.snapshot().lane("cpu").bad_lines)
    for thread in threads:
        thread.join()
    assert seen == sorted(seen)
    assert [lane.bad_lines for lane in session.snapshot().lanes] == [writers // 2 * each] * 2
    assert len(heard) == writers * each


def test_listeners_hear_every_event_after_it_counts(session):
    heard = []
    session.listen(lambda event: heard.append((event, session.snapshot().lane("cpu").bad_lines)))
    session.listen(lambda event: heard.append("second"))
    session.accept(bad_line())
    assert heard == [(bad_line(), 1), "second"]


def test_the_start_signal_is_noted(session):
    assert session.snapshot().race.started_ns is None
    session.start_clock(42)
    assert session.snapshot().race.started_ns == 42


def test_a_turn_is_noted_and_a_change_of_mode_ends_it(session):
    session.grant_slice("gpu:1")
    assert session.snapshot().race.training == "gpu:1"
    session.set_mode(CONCURRENT)
    race = session.snapshot().race
    assert (race.mode, race.training, race.scenario) == (CONCURRENT, "", "dense")


def test_what_was_measured_in_one_mode_is_not_mixed_with_the_other(session):
    session.accept(window())
    session.set_mode(TURNS)
    assert [lane.steady.windows for lane in session.snapshot().lanes] == [1, 0]
    session.set_mode(CONCURRENT)
    cpu = session.snapshot().lane("cpu")
    assert (cpu.steady, cpu.slices) == (WindowSums(), ())
    assert (cpu.steps, cpu.examples, len(cpu.points)) == (10, 320, 1)


def test_a_new_race_drops_what_was_known_of_the_lanes_but_not_of_the_machine(session):
    session.accept(bad_line())
    session.accept(gpu_sample(0))
    session.start_clock(42)
    session.begin(Race(scenario="other"), name_lanes([LaneSpec("cpu")]))
    snapshot = session.snapshot()
    assert [(lane.spec.name, lane.bad_lines) for lane in snapshot.lanes] == [("cpu", 0)]
    assert snapshot.race == Race(scenario="other", number=2)
    assert [gpu.index for gpu in snapshot.gpus] == [0]


def test_the_latest_sample_of_each_gpu_is_kept_in_the_order_of_the_driver(session):
    for sample in (gpu_sample(1), gpu_sample(0), gpu_sample(1, at_ns=2, busy_pct=70.0)):
        session.accept(sample)
    assert [(gpu.index, gpu.busy_pct) for gpu in session.snapshot().gpus] == [(0, 50.0), (1, 70.0)]


def test_a_gpu_sample_counts_for_the_lane_that_trains_on_it(session):
    for lane in ("cpu", "gpu:1"):
        session.accept(PhaseEntered(lane=lane, at_ns=1, phase=RACING))
    session.accept(gpu_sample(0))
    session.accept(gpu_sample(1, busy_pct=70.0))
    snapshot = session.snapshot()
    assert [lane.racing_gpu_busy_pct.value for lane in snapshot.lanes] == [None, 70.0]
    assert snapshot.gpu_of(snapshot.lane("gpu:1")) == snapshot.gpus[1]
    assert snapshot.gpu_of(snapshot.lane("cpu")) is None


def test_a_device_is_called_as_the_machine_the_driver_or_tensorflow_says(session):
    def device_names():
        snapshot = session.snapshot()
        return [snapshot.device_name(lane) for lane in snapshot.lanes]

    assert device_names() == ["A CPU", ""]
    session.accept(gpu_sample(1))
    assert device_names() == ["A CPU", "Board 1"]
    told = LibrariesLoaded(lane="gpu:1", at_ns=1, tensorflow="2", keras="3", numpy="2", device_name="Told")
    session.accept(told)
    assert device_names() == ["A CPU", "Told"]
    session.set_machine(Machine(cpu_name="Another"))
    assert device_names() == ["Another", "Told"]


def test_all_that_is_known_follows_from_the_events_in_their_order(session):
    journal = []
    again = Session(Machine(cpu_name="A CPU"), lambda: 7)
    session.keep_journal(lambda event, known: journal.append((event, known)))
    session.begin(Race(scenario="dense", mode=TURNS), name_lanes([LaneSpec("cpu"), LaneSpec("gpu:1")]), "abc")
    session.set_machine(Machine(cpu_name="Another"))
    session.start_clock(42)
    session.grant_slice("cpu")
    session.accept(window())
    session.accept(bad_line("gone"))
    session.accept(gpu_sample(1))
    session.set_experiment(CrossoverState("batch_size", ("cpu", "gpu:1"), (8, 16)))
    session.set_mode(CONCURRENT)
    session.accept(Interrupted(at_ns=9, reason="interrupted by SIGINT"))
    for event, _ in journal:
        again.accept(event)
    known, found = session.snapshot(), again.snapshot()
    assert replace(found, at_ns=known.at_ns) == known
    assert (known.race.interrupted, known.race.started_ns, known.experiment.knob) == (
        "interrupted by SIGINT", 42, "batch_size",
    )  # fmt: skip
    assert replace(journal[-1][1], at_ns=known.at_ns) == known, "the journal gets what is known after each event"
    assert bad_line("gone") in [event for event, _ in journal], "and what is passed over, too"


def test_a_replay_can_go_back(session):
    early = session.snapshot()
    session.accept(bad_line())
    session.restore(early)
    assert session.snapshot().lanes == early.lanes
