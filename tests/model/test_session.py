"""The session: events in from any thread, immutable snapshots out."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from support.events import SECOND, gpu_sample, reread, window
from support.ui import Demo

from tfmon.analysis.crossover_curve import crossover_of
from tfmon.model.events import BadLine, HostConnecting, Interrupted, LinkMeasured
from tfmon.model.gpu_samples import ClockReason, GpuSample
from tfmon.model.host_states import GPU_THROTTLED, SWAPPING, THROTTLED, host_disturbances
from tfmon.model.lane_events import RACING, STARTING, KnobOffered, PhaseEntered
from tfmon.model.periods import why_mode_stays
from tfmon.model.race import CONCURRENT, TURNS, Machine, Race
from tfmon.model.readings import HostSample
from tfmon.model.session import Session
from tfmon.model.spec import LaneSpec, name_lanes


@pytest.fixture
def session():
    session = Session(Machine(cpu_name="A CPU"), itertools.count(100).__next__)
    session.begin(Race(scenario="dense", mode=TURNS), name_lanes([LaneSpec("cpu"), LaneSpec("gpu:1")]))
    return session


def gpu(index: int, at_ns: int = 1, busy_pct: float = 50.0) -> GpuSample:
    return gpu_sample(f"GPU-{index}", index, at_ns=at_ns, name=f"GPU {index}", busy_pct=busy_pct)


def bad_line(lane: str = "cpu") -> BadLine:
    return BadLine(lane=lane, at_ns=1, problem="not JSON")


def test_a_snapshot_stays_as_it_was_while_more_arrives(session):
    early = session.snapshot()
    session.accept(PhaseEntered(lane="cpu", at_ns=5, phase=RACING))
    session.accept(gpu(0))
    session.accept(HostSample(at_ns=1, cpu_pct=1.0, memory_used_bytes=2.0, memory_total_bytes=3.0))
    session.grant_slice("cpu")
    assert early.lane("cpu").phase == STARTING
    assert (early.gpus, early.host, early.race.training) == ((), None, ())


def test_nothing_is_lost_with_several_writers_and_a_reader(session):
    writers, each = 8, 300
    start = threading.Barrier(writers + 1)
    heard = []
    session.listen(heard.append)

    def write(lane: str) -> None:
        start.wait()
        for _ in range(each):
            session.accept(bad_line(lane))

    seen = []
    with ThreadPoolExecutor(writers) as pool:
        written = [pool.submit(write, lane) for lane in ("cpu", "gpu:1") * (writers // 2)]
        start.wait()
        while not all(future.done() for future in written):
            seen.append(session.snapshot().lane("cpu").process.bad_lines)
    assert seen == sorted(seen)
    assert [lane.process.bad_lines for lane in session.snapshot().lanes] == [writers // 2 * each] * 2
    assert len(heard) == writers * each


def test_everything_known_follows_from_the_events_in_their_order(session):
    journal = []
    again = Session(Machine(cpu_name="A CPU"), lambda: 7)
    session.keep_journal(lambda event, known: journal.append((event, known)))
    session.begin(Race(scenario="dense", mode=TURNS), name_lanes([LaneSpec("cpu"), LaneSpec("gpu:1")]), "abc")
    session.set_machine(Machine(cpu_name="Another"))
    session.start_clock(42)
    session.grant_slice("cpu")
    session.accept(window(round=1))
    session.accept(bad_line("gone"))
    session.accept(gpu(1))
    session.advance_series(crossover_of("batch_size", ("cpu", "gpu:1"), (8, 16)))
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
    assert bad_line("gone") in [event for event, _ in journal], "also what changes nothing"


def test_an_exclusive_lane_begins_steady_state_anew_only_where_lanes_train_concurrently(session):
    for mode, windows in ((TURNS, 1), (CONCURRENT, 0)):
        session.set_mode(mode)
        session.accept(window(round=1))
        session.set_exclusive("cpu")
        assert session.snapshot().lane("cpu").steady.windows == windows
        session.accept(window(round=1))
        session.set_exclusive("cpu")
        assert session.snapshot().lane("cpu").steady.windows == windows + 1, "nothing changed"
        session.set_exclusive("")
        session.accept(bad_line())


def test_a_knob_that_a_script_offers_is_one_of_the_race_once(session):
    for lane, knob in (("cpu", "depth"), ("gpu:1", "depth"), ("cpu", "width")):
        session.accept(KnobOffered(lane=lane, at_ns=5, knob=knob, value=2, default=1, help="", low=1))
    assert [(knob.name, knob.low) for knob in session.snapshot().race.knobs] == [("depth", 1), ("width", 1)]
    assert session.snapshot().lane("gpu:1").settings == {"depth": 2}


def test_a_sample_is_stale_once_others_should_have_followed(session):
    session.accept(gpu(0))
    known = replace(session.snapshot(), at_ns=11 * SECOND + 1)
    assert known.stale_s(known.gpus[0]) == 11
    assert known.stale_s(replace(known.gpus[0], every_s=5.0)) is None


def test_a_connection_that_is_made_again_is_measured_again(session):
    session.accept(LinkMeasured(at_ns=10, host="gpu2", round_trip_ns=800_000, offset_ns=-5, error_ns=400_000))
    session.accept(HostConnecting(at_ns=30, host="gpu2"))
    assert session.snapshot().hosts["gpu2"].link is None


def host(at_ns: int = 0, **readings) -> HostSample:
    return HostSample(at_ns=at_ns, cpu_pct=100.0, memory_used_bytes=1.0, memory_total_bytes=2.0, **readings)


@pytest.mark.parametrize(
    ("readings", "reasons"),
    [
        ({"swap_out_bytes_per_s": 5e6}, (SWAPPING,)),
        ({"swap_in_bytes_per_s": 5e6, "steal_pct": 9.0}, (SWAPPING,)),
        ({"throttled_pct": 10.0}, (THROTTLED,)),
        ({"steal_pct": 30.0}, ()),
    ],
)
def test_a_sample_of_the_machine_names_what_disturbs_every_lane(readings, reasons):
    assert host_disturbances(host(**readings)) == reasons


def test_windows_between_two_samples_of_a_disturbed_machine_are_discarded(session):
    hot = reread(gpu(1, at_ns=3 * SECOND), reasons=(ClockReason("too hot", "alarm"),))
    for event in (host(SECOND), gpu(1, at_ns=SECOND)):
        session.accept(event)
    for lane in ("cpu", "gpu:1"):
        for at_s in (1, 2):
            session.accept(window(at_s * SECOND, lane=lane))
    session.accept(hot)
    assert [lane.measurements.discarded for lane in session.snapshot().lanes] == [{}, {GPU_THROTTLED: 1}]


def test_a_lane_that_has_ended_keeps_its_measurement_in_any_mode_and_an_ended_race_its_mode_too():
    demo = Demo(mode=TURNS).go().race(6, (7_000, 2_000))
    demo.enter("cpu", "done")
    before = demo.session.snapshot()
    assert why_mode_stays(before.lanes) == "C ended, and what was measured stays: r starts again"
    demo.session.set_mode(CONCURRENT)
    demo.session.set_exclusive("gpu:0")
    after = demo.session.snapshot()
    assert after.lane("cpu").steady == before.lane("cpu").steady and before.lane("cpu").steady.windows
    assert not after.lane("gpu:0").steady.windows, "the other one is measured again in the new mode"
    demo.race(6).enter_all("done")
    measured = demo.session.snapshot().lanes
    demo.session.set_mode(TURNS)
    demo.session.set_exclusive("cpu")
    known = demo.session.snapshot()
    assert (known.over, known.has_result, known.race.mode, known.lanes) == (True, True, CONCURRENT, measured)
    assert why_mode_stays(known.lanes).startswith("the race is over")
