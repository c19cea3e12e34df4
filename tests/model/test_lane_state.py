"""The changes that each event makes in the state of a lane."""

from dataclasses import replace
from types import SimpleNamespace

from support.events import MS, SECOND, advance, ended, lane, phase, requested, started, tree_sample, window
from support.gpu_profile import gpu_profile

from tfmon.model.events import BadLine
from tfmon.model.lane_events import (
    PAUSED,
    RACING,
    STARTING,
    Finished,
    Hello,
    KnobApplied,
    KnobRefused,
    Profiled,
    SliceEnded,
)
from tfmon.model.lane_state import RECENT_NS, Heartbeat, LaneState, ProcessInfo
from tfmon.model.readings import Missing, SliceLoad
from tfmon.model.spec import LaneSpec
from tfmon.model.windows import WindowSums


def applied(request: int = 1, value="off", at_ns: int = 3 * SECOND) -> KnobApplied:
    return KnobApplied(at_ns=at_ns, request=request, knob="prefetch", value=value, step=11, gap_ns=40 * MS)


def test_a_phase_begins_at_its_event():
    state = lane("cpu", phase(RACING, 5), phase(PAUSED, 7), phase(PAUSED, 9))
    assert (state.phase, state.phase_since_ns) == (PAUSED, 7)


class TestRestart:
    def test_only_the_spec_the_log_and_the_history_of_the_charts_survive_a_restart(self):
        refused = KnobRefused(at_ns=4, request=2, knob="prefetch", value="off", reason="no memory")
        events = (
            *(Hello(at_ns=1, protocol=2, pid=42, python="3.12.1"), phase(RACING), tree_sample(), window()),
            *(window(marks=("warm-up",)), requested(1), applied(), refused),
            *(BadLine(lane="cpu", at_ns=1, problem="x"), ended(signal="SIGSEGV")),
        )
        state = lane("cpu", *events, started())
        fresh = LaneState(
            spec=LaneSpec("cpu", name="cpu"),
            phase_since_ns=50,
            process=ProcessInfo(1, 43, 50),
            settings={"prefetch": 2},
            heartbeat=Heartbeat(heard_ns=50),
        )
        assert state.measurements.until_ns == window().at_ns
        measured = replace(state.measurements, old=(), samples=(), period=0, until_ns=None)
        assert replace(state, log=(), measurements=measured) == fresh
        assert len(state.log) > 3
        assert [len(one) for one in (state.measurements.old, state.measurements.samples)] == [2, 1]
        assert advance(state, phase(RACING)).phase == RACING

    def test_a_fresh_process_goes_on_with_the_measurement_and_counts_from_where_the_other_was(self):
        state = lane("cpu", started(), window(round=1, step=10), applied(), window(round=2, step=20))
        renewed = replace(started(renewed=True), settings=state.settings)
        fresh = advance(state, renewed)
        assert (fresh.phase, fresh.process.pid, fresh.process.number) == (STARTING, 43, 2)
        assert (fresh.steady, fresh.points) == (state.steady, state.points)
        assert fresh.changes.marks == state.changes.marks
        after = advance(fresh, window(round=3, step=10))
        assert [(part.round, part.process) for part in after.slices] == [(2, 1), (3, 2)]
        assert (after.totals.steps, after.totals.measured_steps, after.steady.windows) == (30, 30, 2)
        again = advance(advance(after, renewed), window(round=4, step=10))
        assert (again.totals.steps, again.process.number) == (40, 3)
        other = advance(state, replace(renewed, settings={"prefetch": 7}))
        assert (other.slices, other.settings) == ((), {"prefetch": 7}), "something else is measured"

    def test_a_slice_keeps_who_used_the_cpu_in_it(self):
        load = SliceLoad(span_ns=SECOND, examples=9, cpu_ns=SECOND, delay_ns=60 * MS, others_ns=900 * MS, cores=2)
        state = lane("cpu", window(round=1), SliceEnded(at_ns=1, round=1, load=load))
        late = advance(state, SliceEnded(at_ns=2, round=2, load=replace(load, cpu_ns=1)))
        assert [part.load for part in late.slices] == [load]
        assert load.contended
        assert not replace(load, cpu_ns=1_900 * MS, others_ns=90 * MS, delay_ns=SECOND).contended, (
            "its own threads waited for each other"
        )
        assert not replace(load, others_ns=700 * MS).contended, "others used what was idle"
        assert not replace(load, cores=4).contended
        assert replace(load, others_ns=0, stolen_ns=900 * MS).contended
        assert not replace(load, delay_ns=40 * MS).contended
        assert replace(load, delay_ns=None).contended is None
        assert replace(load, others_ns=None).contended is None
        assert replace(load, cores=None).contended is None


def test_what_a_profile_said_of_a_call_holds_for_windows_that_do_not_say_it_until_a_knob_changes():
    call = SimpleNamespace(compute_ns=25.0, total_ns=100.0)
    read = Profiled(at_ns=2 * SECOND, folder="f", profile=replace(gpu_profile(), call=call))
    state = lane("cpu", window(), read, window())
    assert state.step.computing_share == 0.25
    assert advance(state, window(computing_share=0.5)).step.computing_share == 0.5
    untold = Profiled(at_ns=3 * SECOND, folder="f", profile=replace(gpu_profile(), call=Missing("no loop")))
    assert state.step.calling_share == 100 / (100 + read.profile.other_ns)
    again = advance(state, untold)
    assert (again.step.computing_share, again.step.calling_share) == (0.25, state.step.calling_share)
    changed = advance(state, applied()).step
    assert (changed.computing_share, changed.calling_share) == (None, None)


def test_only_steady_windows_wholly_in_the_last_seconds_count():
    edge = window(at_ns=10 * SECOND - RECENT_NS + 200 * MS)
    marked = window(at_ns=9 * SECOND, marks=("pause",))
    events = window(at_ns=edge.at_ns - 1), edge, marked, window(at_ns=10 * SECOND, examples=100)
    recent = lane("cpu", *events).recent()
    assert (recent.windows, recent.steps, recent.examples, recent.span_ns) == (2, 20, 420, 400 * MS)
    assert lane().recent() == WindowSums()


def test_a_finished_lane_keeps_its_last_samples():
    done = lane("cpu", tree_sample(), phase(RACING), Finished(at_ns=1, steps=1))
    assert advance(done, tree_sample(0.0)) == done
