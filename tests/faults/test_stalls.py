"""A real process that hangs or floods: it is reported with its stacks, the others go on, it can be ended."""

import tracemalloc

import pytest
from support.processes import gone
from support.slow import slow_except
from support.waiting import HANGS_S, PATIENCE_S, wait_for

from tfmon.lanes import lane_process
from tfmon.model.lane_events import RACING, STALL, SUSPENDED
from tfmon.model.lane_state import FAILED
from tfmon.model.race import CONCURRENT, TURNS

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("fault", "mode", "how"),
    [
        ("hangs_for_ever", CONCURRENT, "ended on request"),
        pytest.param("hangs_in_c", TURNS, "SIGKILL", marks=pytest.mark.slow),
    ],
    ids=["heeds", "defies"],
)
def test_one_that_hangs_tells_where_and_can_be_ended_and_the_others_go_on(
    faulty_group, fault, mode, how, monkeypatch
):
    if how != "SIGKILL":  # it ends without a signal, however busy the machine is
        monkeypatch.setattr(lane_process, "ASK_S", PATIENCE_S)
    faulty_group.race_with(fault, mode=mode)
    faulty_group.wait_for_stall()
    faulty = faulty_group.faulty
    assert faulty.phase == RACING
    assert faulty.points[-1].at_ns <= faulty.heartbeat.stalled_since_ns
    faulty_group.ask_stack("gpu:0")

    def stack() -> tuple[str, ...]:
        known = faulty_group.faulty.process.stack
        return () if known is None else known.lines

    # A busy machine may have silenced the lane before: then there is a stack of that moment, too.
    wait_for(lambda: any(f"in {fault}" in line and "faulty.py" in line for line in stack()), what="its stack")
    assert any(line.startswith(("Thread 0x", "Current thread 0x")) for line in stack())
    for lane in ("cpu", "gpu:0", "cpu", "gpu:0") if mode == TURNS else ():
        wait_for(
            lambda lane=lane: faulty_group.session.snapshot().race.training == (lane,), what=f"a slice of {lane}"
        )
    faulty_group.wait_for_steps("cpu", 200)
    wait_for(lambda: faulty_group.sound.heartbeat.stalled_since_ns is None, what="the other lane is well")
    pid = faulty_group.pid("gpu:0")
    faulty_group.kill("gpu:0")
    wait_for(lambda: faulty_group.faulty.end.event, what="its end")
    assert gone(pid)
    faulty = faulty_group.faulty
    assert faulty.phase == FAILED
    assert "no step for" in faulty.trouble.message and how in faulty.trouble.message
    assert faulty.points
    faulty_group.wait_for_steps("cpu", 100)
    faulty_group.restart(["gpu:0"])
    faulty_group.wait_for(RACING, "gpu:0")


@pytest.mark.parametrize("mode", slow_except(CONCURRENT, [CONCURRENT, TURNS]))
def test_one_that_wakes_up_races_on_and_its_long_window_is_discarded(faulty_group, mode, tmp_path):
    faulty_group.race_with("hangs_for_a_while", mode=mode, HANGS_UNTIL=str(tmp_path / "awake"))
    faulty_group.wait_for_stall()
    (tmp_path / "awake").touch()
    wait_for(lambda: faulty_group.faulty.heartbeat.stalled_since_ns is None, what="it wakes up")
    faulty_group.wait_for_steps("gpu:0", 200)
    faulty_group.wait_for_steps("cpu", 200)
    faulty = faulty_group.faulty
    # On a busy machine the watchdog may come so late that it takes the same time for a suspension, too.
    assert {STALL, SUSPENDED} & set(faulty.measurements.discarded)
    assert faulty.steady.span_ns < 10 * len(faulty.points) * faulty.points[0].span_ns
    assert faulty.totals.steps == sum(point.steps for point in faulty.points)


def test_a_lane_that_never_said_it_could_is_not_sent_a_signal_that_would_end_it(group):
    group.begin(group.plan("cpu"))
    group.wait_for_steps("cpu")
    group.ask_stack("cpu")
    group.wait_for_steps("cpu", 50)
    assert group.lane("cpu").process.stack is None


def test_one_that_hangs_before_it_is_ready_does_not_keep_the_others(faulty_group, tmp_path, monkeypatch):
    monkeypatch.setattr("tfmon.lanes.watchdog.STARTING_S", 1.0)
    gate = tmp_path / "gate"
    gated = {"GATE": str(gate), "FAULTY": "none"}
    plan = faulty_group.plan("cpu", "gpu:0", mode=TURNS, environment={"gpu:0": gated, "cpu": {"FAULTY": "none"}})
    faulty_group.begin(plan)
    faulty_group.wait_for_stall(at_step=0)
    faulty_group.wait_for_steps("cpu", 50)
    gate.touch()
    wait_for(lambda: faulty_group.faulty.points, what="it joins the race")
    faulty_group.wait_for_steps("cpu", 50)


MOST_BYTES = 5_000_000
"""Of memory that Python takes at most in the monitor: full histories of two lanes are 2 MB."""


@pytest.mark.slow
def test_100_mb_of_unreadable_lines_are_counted_and_said(faulty_group):
    told = []
    faulty_group.session.listen(lambda event: told.append(event) if hasattr(event, "problem") else None)
    tracemalloc.start()
    try:
        faulty_group.race_with("floods_metrics", mode=CONCURRENT)
        wait_for(lambda: faulty_group.faulty.totals.steps > 150, HANGS_S, "the faulty lane trains on")
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()
    process = faulty_group.faulty.process
    assert 90_000 < process.bad_lines < 110_000
    assert process.last_bad_line == "unknown type 'Rubbish'"
    assert len(told) < process.bad_lines / 10
