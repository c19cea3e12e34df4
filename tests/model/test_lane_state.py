"""The changes that each event makes in the state of a lane."""

from dataclasses import fields, replace
from types import SimpleNamespace

from support.events import (
    MS,
    SECOND,
    advance,
    ended,
    gpu_sample,
    lane,
    phase,
    requested,
    started,
    tree_sample,
    window,
)
from support.gpu_profile import gpu_profile

from tfmon.model.events import BadLine
from tfmon.model.lane_events import (
    Finished,
    Hello,
    KnobApplied,
    KnobRefused,
    Profiled,
    SliceEnded,
)
from tfmon.model.lane_state import (
    PAUSED,
    RACING,
    RECENT_NS,
    STARTING,
    Heartbeat,
    LaneState,
    ProcessInfo,
)
from tfmon.model.readings import Missing, SliceLoad
from tfmon.model.spec import LaneSpec
from tfmon.model.windows import MOST_RECENT, WindowSums


def applied(request: int = 1, value="off", at_ns: int = 3 * SECOND) -> KnobApplied:
    return KnobApplied(at_ns=at_ns, request=request, knob="prefetch", value=value, step=11, gap_ns=40 * MS)


def refused(request: int) -> KnobRefused:
    return KnobRefused(at_ns=4, request=request, knob="prefetch", value="off", reason="no memory")


def test_a_phase_begins_at_its_event():
    state = lane("cpu", phase(RACING, 5), phase(PAUSED, 7), phase(PAUSED, 9))
    assert (state.phase, state.phase_since_ns) == (PAUSED, 7)


class TestRestart:
    def test_only_the_spec_the_log_and_the_history_of_the_charts_survive_a_restart(self):
        events = (
            *(Hello(at_ns=1, protocol=2, pid=42, python="3.12.1"), phase(RACING), tree_sample(), window()),
            *(window(marks=("warm-up",)), requested(1), applied(), refused(2)),
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


class TestWindows:
    def test_every_figure_of_steady_windows_adds_up(self):
        names = [field.name for field in fields(WindowSums) if field.name not in ("windows", "histogram")]
        first, second = ({name: start + place for place, name in enumerate(names)} for start in (100, 200))
        state = lane(
            "cpu", window(**{"step": 10, **first}), window(**{"step": 20, "sampled_examples": 64, **second})
        )
        sums = {name: first[name] + second[name] for name in names}
        assert state.steady == WindowSums(windows=2, histogram={1552: 20}, **sums)
        assert (state.totals.steps, state.totals.examples) == (20, sums["examples"] + 64)
        assert lane("cpu", window()).steady.sampled_copy_ns is None

    def test_a_marked_window_is_discarded_and_counted(self):
        marked = window(marks=("garbage collection", "after a switch"), round=1)
        state = lane("cpu", window(), marked, window(marks=("after a switch",)))
        assert state.measurements.discarded == {"garbage collection": 1, "after a switch": 2}
        assert (state.steady.windows, state.slices, state.totals.examples) == (1, (), 960)
        assert [point.steady for point in state.points] == [True, False, False]

    def test_the_chart_keeps_a_limited_number_of_windows(self):
        state = lane("cpu", *(window(at_ns=number) for number in range(MOST_RECENT + 5)))
        assert len(state.points) <= MOST_RECENT
        last = state.points[-1]
        assert (last.at_ns, last.span_ns, last.examples, last.steps) == (MOST_RECENT + 4, 200 * MS, 320, 10)

    def test_the_first_and_the_last_loss_are_kept(self):
        state = lane("cpu", *(window(loss=loss) for loss in (None, 2.0, 1.0, None)))
        assert (state.totals.losses.first, state.totals.losses.last) == (2.0, 1.0)

    def test_what_a_profile_said_of_a_call_holds_for_windows_that_do_not_say_it_until_a_knob_changes(self):
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
    assert recent == WindowSums(windows=2, steps=20, examples=420, span_ns=400 * MS)
    assert lane().recent() == WindowSums()


def test_a_finished_lane_keeps_its_last_samples():
    done = lane("cpu", tree_sample(), phase(RACING), Finished(at_ns=1, steps=1))
    assert advance(done, tree_sample(0.0)) == done


def test_missing_memory_is_not_zero():
    assert isinstance(lane("gpu:0", tree_sample(), gpu_sample()).gpu_use.used_bytes, Missing)
