"""What each event changes in what is known of a lane."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace

import pytest
from support.events import (
    HIDDEN,
    MS,
    SECOND,
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
from tfmon.model.heartbeat import Heartbeat
from tfmon.model.hosts import trains_on
from tfmon.model.lane_events import (
    Built,
    Finished,
    Hello,
    KnobApplied,
    KnobRefused,
    LaneFailed,
    LibrariesLoaded,
    Profiled,
    SliceEnded,
)
from tfmon.model.lane_reducer import advance
from tfmon.model.lane_state import (
    ABSENT,
    DONE,
    FAILED,
    PAUSED,
    RACING,
    RECENT_NS,
    STARTING,
    LaneState,
    ProcessInfo,
)
from tfmon.model.lane_statistics import HISTORY_WINDOWS, Point
from tfmon.model.lane_texts import append_log
from tfmon.model.readings import HostSample, Missing, SliceLoad
from tfmon.model.spec import LaneSpec
from tfmon.model.window_sums import WindowSums


def applied(request: int = 1, value="off", at_ns: int = 3 * SECOND) -> KnobApplied:
    return KnobApplied(at_ns=at_ns, request=request, knob="prefetch", value=value, step=11, gap_ns=40 * MS)


def refused(request: int) -> KnobRefused:
    return KnobRefused(at_ns=4, request=request, knob="prefetch", value="off", reason="no memory")


def loaded(uuid: str | None) -> LibrariesLoaded:
    return LibrariesLoaded(at_ns=2, tensorflow="2.21", keras="3", numpy="2.4", device_name="A GPU", gpu_uuid=uuid)


class TestPhases:
    def test_what_the_child_says_of_itself_is_kept(self):
        unlike = ("nice value 15 in place of 0",)
        hello = Hello(at_ns=1, protocol=2, pid=42, python="3.12.1", reports_stack=True, unlike=unlike)
        built = Built(at_ns=1, parameters=5, examples=None, settings={"batch_size": 8})
        state = lane("gpu:0", hello, loaded("GPU-a"), built)
        assert (state.process.pid, state.process.reports_stack) == (42, True)
        assert state.process.unlike == unlike
        assert state.process.versions == {"tensorflow": "2.21", "keras": "3", "numpy": "2.4", "python": "3.12.1"}
        assert (state.process.device_name, state.process.gpu_uuids) == ("A GPU", ("GPU-a",))
        assert (state.process.data_examples, state.settings) == (None, {"batch_size": 8})

    def test_a_phase_begins_at_its_event(self):
        state = lane("cpu", phase(RACING, 5), phase(PAUSED, 7), phase(PAUSED, 9))
        assert (state.phase, state.phase_since_ns) == (PAUSED, 7)

    def test_a_finished_lane_enters_no_other_phase(self):
        state = lane("cpu", phase(RACING), Finished(at_ns=5, steps=3), phase(RACING, 6))
        assert (state.phase, state.phase_since_ns, state.over) == (DONE, 5, True)

    @pytest.mark.parametrize(("kind", "entered"), [("device_absent", ABSENT), ("scenario", FAILED)])
    def test_a_failed_lane_keeps_its_reason_when_it_ends(self, kind, entered):
        state = lane("cpu", LaneFailed(at_ns=5, kind=kind, message="what", hint="do"), ended(1))
        assert (state.phase, state.over, state.phase_since_ns) == (entered, True, 5)
        assert (state.trouble.message, state.trouble.hint, state.trouble.kind) == ("what", "do", kind)
        assert state.end.event.output_tail == ("last words",)

    def test_bad_lines_are_counted(self):
        events = (
            BadLine(lane="cpu", at_ns=1, problem="first", lines=2),
            BadLine(lane="cpu", at_ns=1, problem="last"),
        )
        state = lane("cpu", *events)
        assert (state.process.bad_lines, state.process.last_bad_line) == (3, "last")

    def test_an_event_about_something_else_changes_nothing(self):
        before = lane("cpu", window())
        host = HostSample(at_ns=1, cpu_pct=1.0, memory_used_bytes=1.0, memory_total_bytes=2.0)
        assert advance(before, host) is before
        assert append_log(before.log, tree_sample()) is before.log
        assert replace(advance(before, SliceEnded(at_ns=1, round=1)), heartbeat=before.heartbeat) == before

    @pytest.mark.parametrize(
        ("tensorflow", "keras", "line"),
        [("2.21.0", "3.15.1", "TensorFlow 2.21.0, Keras 3.15.1"), ("", "", "TensorFlow is not loaded")],
    )
    def test_the_log_says_what_is_loaded_or_that_a_script_has_no_tensorflow(self, tensorflow, keras, line):
        event = replace(loaded(None), tensorflow=tensorflow, keras=keras, device_name="")
        assert [one.text for one in append_log((), event)] == [line]


class TestRestart:
    def test_only_the_spec_the_log_and_the_history_of_the_charts_survive_a_restart(self):
        events = (
            Hello(at_ns=1, protocol=2, pid=42, python="3.12.1"),
            *(
                phase(RACING),
                tree_sample(),
                window(),
                window(marks=("warm-up",)),
                requested(1),
                applied(),
                refused(2),
            ),
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
        measured = replace(state.measurements, history=fresh.measurements.history, until_ns=None)
        assert replace(state, log=(), measurements=measured) == fresh
        assert len(state.log) > 3 and state.measurements.history.second.windows.steps == 20
        assert advance(state, phase(RACING)).phase == RACING

    def test_a_fresh_process_goes_on_with_the_measurement_and_counts_from_where_the_other_was(self):
        state = lane("cpu", started(), window(round=1, step=10), applied(), window(round=2, step=20))
        renewed = replace(started(renewed=True), settings=state.settings)
        fresh = advance(state, renewed)
        assert (fresh.phase, fresh.process.pid, fresh.process.number) == (STARTING, 43, 2)
        assert (fresh.steady, fresh.changes.marks, fresh.points) == (
            state.steady,
            state.changes.marks,
            state.points,
        )
        after = advance(fresh, window(round=3, step=10))
        assert [(one.round, one.process) for one in after.slices] == [(2, 1), (3, 2)]
        assert (after.totals.steps, after.totals.measured_steps, after.steady.windows) == (30, 30, 2)
        again = advance(advance(after, renewed), window(round=4, step=10))
        assert (again.totals.steps, again.process.number) == (40, 3)
        other = advance(state, replace(renewed, settings={"prefetch": 7}))
        assert (other.slices, other.settings) == ((), {"prefetch": 7}), "something else is measured"

    def test_a_slice_keeps_who_used_the_cpu_in_it(self):
        load = SliceLoad(span_ns=SECOND, examples=9, cpu_ns=SECOND, delay_ns=60 * MS, others_ns=900 * MS, cores=2)
        state = lane("cpu", window(round=1), SliceEnded(at_ns=1, round=1, load=load))
        late = advance(state, SliceEnded(at_ns=2, round=2, load=replace(load, cpu_ns=1)))
        assert [one.load for one in late.slices] == [load]
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

    @pytest.mark.parametrize(("source", "kept"), [("same", 1), ("another", 0)])
    def test_slices_are_kept_under_their_settings_while_the_scenario_is_the_same(self, source, kept):
        state = lane("cpu", started(source="same"), window(round=1), started(source=source))
        assert (state.slices, state.steady.windows) == ((), 0)
        assert len(state.slices_under(window().settings)) == kept


class TestWindows:
    def test_every_figure_of_steady_windows_adds_up(self):
        names = [one.name for one in fields(WindowSums) if one.name not in ("windows", "histogram")]
        first, second = ({name: start + place for place, name in enumerate(names)} for start in (100, 200))
        state = lane(
            "cpu", window(**{"step": 10, **first}), window(**{"step": 20, "sampled_examples": 64, **second})
        )
        sums = {name: first[name] + second[name] for name in names}
        assert state.steady == WindowSums(windows=2, histogram={1552: 20}, **sums)
        assert (state.totals.steps, state.totals.examples) == (20, sums["examples"] + 64)
        assert lane("cpu", window()).steady.sampled_copy_ns is None

    def test_rates_are_over_wall_time(self):
        steady = lane("cpu", window(), window(span_ns=600 * MS)).steady
        assert (steady.examples_per_s, steady.steps_per_s) == (pytest.approx(800), pytest.approx(25))
        assert steady.step_ms(0.5) == pytest.approx(20, rel=0.0055)
        assert lane("cpu", window(examples=0)).steady.examples_per_s is None, "unknown is not 0"

    def test_a_marked_window_is_discarded_and_counted(self):
        marked = window(marks=("garbage collection", "after a switch"), round=1)
        state = lane("cpu", window(), marked, window(marks=("after a switch",)))
        assert state.measurements.discarded == {"garbage collection": 1, "after a switch": 2}
        assert (state.steady.windows, state.slices, state.totals.examples) == (1, (), 960)
        assert [point.steady for point in state.points] == [True, False, False]

    def test_discarded_time_counts_once_and_the_switch_explains_it_last(self):
        state = lane(
            "cpu",
            window(span_ns=300 * MS),
            window(span_ns=60 * MS, marks=("after a switch",)),
            window(span_ns=40 * MS, marks=("after a switch", "compiling")),
        )
        assert state.discarded_shares == pytest.approx({"after a switch": 0.15, "compiling": 0.1})
        assert list(state.discarded_shares) == ["after a switch", "compiling"]

    def test_the_chart_keeps_a_limited_number_of_windows(self):
        state = lane("cpu", *(window(at_ns=number) for number in range(HISTORY_WINDOWS + 5)))
        assert len(state.points) == HISTORY_WINDOWS
        assert state.points[-1] == Point(HISTORY_WINDOWS + 4, 200 * MS, 320, 10)

    def test_the_first_and_the_last_loss_are_kept(self):
        state = lane("cpu", *(window(loss=loss) for loss in (None, 2.0, 1.0, None)))
        assert (state.totals.losses.first, state.totals.losses.last) == (2.0, 1.0)

    def test_settings_and_gpu_memory_are_those_of_the_latest_window(self):
        first = window(gpu_memory_allocated_bytes=5, gpu_memory_peak_bytes=9, traced="step")
        state = lane("gpu:0", first, window(settings={"prefetch": 1}))
        assert (state.settings, state.step.traced) == ({"prefetch": 1}, "step")
        assert (state.gpu_use.allocated_bytes, state.gpu_use.peak_bytes) == (None, None)

    def test_what_a_profile_said_of_a_call_holds_for_windows_that_do_not_say_it_until_a_knob_changes(self):
        call = SimpleNamespace(compute_ns=25.0, total_ns=100.0)
        read = Profiled(at_ns=2 * SECOND, folder="f", profile=replace(gpu_profile(), call=call))
        state = lane("cpu", window(), read, window())
        assert (
            state.step.computing_share,
            advance(state, window(computing_share=0.5)).step.computing_share,
        ) == (0.25, 0.5)
        untold = Profiled(at_ns=3 * SECOND, folder="f", profile=replace(gpu_profile(), call=Missing("no loop")))
        assert state.step.calling_share == 100 / (100 + read.profile.other_ns)
        again = advance(state, untold)
        assert (again.step.computing_share, again.step.calling_share) == (
            state.step.computing_share,
            state.step.calling_share,
        )
        changed = advance(state, applied())
        assert (changed.step.computing_share, changed.step.calling_share) == (None, None)


class TestRecent:
    def test_only_steady_windows_wholly_in_the_last_seconds_count(self):
        edge = window(at_ns=10 * SECOND - RECENT_NS + 200 * MS)
        marked = window(at_ns=9 * SECOND, marks=("pause",))
        events = window(at_ns=edge.at_ns - 1), edge, marked, window(at_ns=10 * SECOND, examples=100)
        recent = lane("cpu", *events).recent()
        assert recent == WindowSums(windows=2, steps=20, examples=420, span_ns=400 * MS)
        assert lane().recent() == WindowSums()

    def test_windows_from_before_a_knob_change_do_not_count(self):
        events = (
            window(at_ns=3 * SECOND - 1),
            applied(at_ns=3 * SECOND),
            window(at_ns=3 * SECOND + 200 * MS, examples=7),
        )
        assert lane("cpu", *events).recent().examples == 7


class TestKnobs:
    def test_a_knob_in_effect_answers_the_request_and_begins_steady_state_anew(self):
        state = lane("cpu", window(round=1), requested(1), applied(1, "off"))
        assert (state.changes.requested, state.settings) == ({}, {"prefetch": "off"})
        assert (state.steady, state.slices) == (WindowSums(), ())
        assert [one.round for one in state.slices_under({"prefetch": "auto"})] == [1]
        assert (state.totals.steps, state.totals.examples, len(state.points)) == (10, 320, 1)
        (mark,) = state.changes.marks
        assert (mark.text, mark.at_ns, mark.gap_ns) == ("prefetch off", 3 * SECOND, 40 * MS)

    @pytest.mark.parametrize("answer", [applied(1), refused(1)])
    def test_an_answer_leaves_newer_requests_and_those_for_other_knobs(self, answer):
        state = lane("cpu", requested(1), requested(2, 2), requested(0, 64, "batch_size"), answer)
        assert {knob: one.request for knob, one in state.changes.requested.items()} == {
            "prefetch": 2,
            "batch_size": 0,
        }

    def test_a_refused_request_changes_nothing_and_says_why(self):
        state = lane("cpu", window(), requested(1), refused(1))
        assert (state.changes.requested, state.changes.refused) == ({}, "no memory")
        assert (state.settings, state.steady.windows) == ({"prefetch": "auto"}, 1)

    @pytest.mark.parametrize("event", [requested(2), applied(2)])
    def test_the_next_request_ends_a_refusal(self, event):
        assert lane("cpu", requested(1), refused(1), event).changes.refused == ""

    def test_the_title_shows_what_is_in_effect(self):
        spec = LaneSpec("cpu", {"prefetch": "off"}, name="cpu prefetch=off", apart=("prefetch",))
        assert advance(LaneState(spec=spec), applied(1, 2)).title == "cpu prefetch=2"


class TestSamples:
    def test_only_samples_with_a_value_while_racing_are_averaged(self):
        racing = [tree_sample(pct) for pct in (100.0, HIDDEN, 300.0)]
        state = lane("cpu", tree_sample(900.0), phase(RACING), *racing, phase(PAUSED), tree_sample(0.0))
        assert state.tree.racing_cpu_pct.value == 200.0
        tree = state.tree
        assert (tree.cpu_pct, tree.private_bytes, tree.processes, tree.pids) == (0.0, 1e6, 2, (7, 8))
        assert lane("cpu", phase(RACING), tree_sample(HIDDEN)).tree.racing_cpu_pct.value is None

    def test_a_finished_lane_keeps_its_last_samples(self):
        done = lane("cpu", tree_sample(), phase(RACING), Finished(at_ns=1, steps=1))
        assert advance(done, tree_sample(0.0)) == done

    def test_a_gpu_is_recognised_by_its_index_until_the_uuid_is_known(self):
        early, known = lane("gpu:1"), lane("gpu:1", loaded("GPU-b"))
        assert [trains_on(early, gpu_sample("GPU-b", index)) for index in (0, 1)] == [False, True]
        assert [trains_on(known, gpu_sample("GPU-b", index)) for index in (0, 1)] == [True, True]
        assert not trains_on(known, gpu_sample("GPU-a", 1))
        assert not trains_on(lane("cpu"), gpu_sample("GPU-a", 0))


def test_missing_memory_is_not_zero():
    assert isinstance(lane("gpu:0", tree_sample(), gpu_sample()).gpu_use.used_bytes, Missing)
