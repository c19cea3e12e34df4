"""What each event changes in what is known of a lane."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfmon.model import lane_statistics as histogram
from tfmon.model.events import BadLine, KnobRequested, LaneEnded, LaneStarted
from tfmon.model.lane_events import (
    Built,
    Finished,
    Hello,
    KnobApplied,
    KnobRefused,
    LaneFailed,
    LibrariesLoaded,
    PhaseEntered,
    Progressed,
    SliceEnded,
    Window,
)
from tfmon.model.lane_reducer import advance, trains_on
from tfmon.model.lane_state import (
    ABSENT,
    DONE,
    FAILED,
    HISTORY_WINDOWS,
    NO_GPU,
    NOT_SAMPLED,
    PAUSED,
    RACING,
    RECENT_NS,
    STARTING,
    Heartbeat,
    LaneState,
    seconds_left,
)
from tfmon.model.lane_statistics import MOST_SLICES, Mean, Measurements, Point, WindowSums
from tfmon.model.readings import GpuSample, HostSample, Missing, TreeSample
from tfmon.model.spec import LaneSpec

MS = 1_000_000
SECOND = 1_000 * MS
HIDDEN = Missing("hidden")


def lane(device: str = "cpu", *events) -> LaneState:
    state = LaneState(spec=LaneSpec(device, name=device))
    for event in events:
        state = advance(state, event)
    return state


def phase(name: str, at_ns: int = 1) -> PhaseEntered:
    return PhaseEntered(at_ns=at_ns, phase=name)


def window(at_ns: int = SECOND, span_ns: int = 200 * MS, **changes) -> Window:
    whole = Window(
        at_ns=at_ns,
        span_ns=span_ns,
        steps=10,
        examples=320,
        step=10,
        input_ns=20 * MS,
        call_ns=150 * MS,
        sync_ns=25 * MS,
        report_ns=5 * MS,
        longest_ns=30 * MS,
        histogram=histogram.count([20 * MS] * 10),
        loss=0.5,
        settings={"prefetch": "auto"},
    )
    return replace(whole, **changes)


def asked(request: int, value="off", knob: str = "prefetch") -> KnobRequested:
    return KnobRequested(lane="cpu", at_ns=3, request=request, knob=knob, value=value)


def applied(request: int = 1, value="off", at_ns: int = 3 * SECOND) -> KnobApplied:
    return KnobApplied(at_ns=at_ns, request=request, knob="prefetch", value=value, step=11, gap_ns=40 * MS)


def refused(request: int) -> KnobRefused:
    return KnobRefused(at_ns=4, request=request, knob="prefetch", value="off", reason="no memory")


def ended(**changes) -> LaneEnded:
    end = LaneEnded(lane="cpu", at_ns=9, exit_code=None, signal=None, requested=False, output_tail=("last words",))
    return replace(end, **changes)


def tree(cpu_pct=200.0, pids=(7, 8)) -> TreeSample:
    return TreeSample(lane="cpu", at_ns=1, cpu_pct=cpu_pct, private_bytes=1e6, processes=len(pids), pids=pids)


def gpu(key: str = "GPU-a", index: int = 0, busy_pct=60.0, held=None) -> GpuSample:
    return GpuSample(
        at_ns=1,
        key=key,
        index=index,
        name="Board",
        busy_pct=busy_pct,
        busy_source="samples",
        used_bytes=HIDDEN,
        total_bytes=HIDDEN,
        power_w=HIDDEN,
        power_limit_w=HIDDEN,
        temperature_c=HIDDEN,
        used_by_pid=held or {},
    )


def equipped(uuid: str | None) -> LibrariesLoaded:
    return LibrariesLoaded(at_ns=2, tensorflow="2.21", keras="3", numpy="2.4", device_name="Board", gpu_uuid=uuid)


class TestLife:
    def test_a_lane_begins_with_nothing_known(self):
        state = lane()
        assert (state.phase, state.pid, state.parameters, state.first_loss) == (STARTING, None, None, None)
        assert state.tree_cpu_pct is state.private_bytes is NOT_SAMPLED
        assert not state.over

    def test_hello_tells_process_and_python(self):
        state = lane("cpu", Hello(at_ns=1, protocol=1, pid=42, python="3.12.1"))
        assert (state.pid, state.python) == (42, "3.12.1")

    def test_equipped_tells_versions_and_device(self):
        state = lane("gpu:0", equipped("GPU-a"))
        assert (state.tensorflow, state.keras, state.numpy) == ("2.21", "3", "2.4")
        assert (state.device_name, state.gpu_uuid) == ("Board", "GPU-a")

    def test_built_tells_size_and_settings(self):
        state = lane("cpu", Built(at_ns=1, parameters=5, examples=None, settings={"batch_size": 8}))
        assert (state.parameters, state.data_examples, state.settings) == (5, None, {"batch_size": 8})

    def test_a_phase_is_entered_at_its_time(self):
        state = lane("cpu", phase(RACING, 5), phase(PAUSED, 7))
        assert (state.phase, state.phase_since_ns) == (PAUSED, 7)

    def test_a_lane_that_is_over_enters_no_other_phase(self):
        assert lane("cpu", Finished(at_ns=5, steps=3), phase(RACING, 6)).phase == DONE

    def test_a_lane_that_did_its_steps_is_done(self):
        state = lane("cpu", phase(RACING), Finished(at_ns=5, steps=3))
        assert (state.phase, state.phase_since_ns, state.over) == (DONE, 5, True)

    @pytest.mark.parametrize(
        ("kind", "entered"), [("device_absent", ABSENT), ("error", FAILED), ("scenario", FAILED)]
    )
    def test_a_lane_that_says_why_it_failed_keeps_the_words(self, kind, entered):
        state = lane("cpu", LaneFailed(at_ns=5, kind=kind, message="what", hint="do"))
        assert (state.phase, state.over) == (entered, True)
        assert (state.trouble.message, state.trouble.hint, state.trouble.kind) == ("what", "do", kind)

    def test_bad_lines_are_counted(self):
        state = lane("cpu", *(BadLine(lane="cpu", at_ns=1, problem=word) for word in ("first", "second")))
        assert (state.bad_lines, state.last_bad_line) == (2, "second")

    def test_what_concerns_no_lane_changes_nothing(self):
        before = lane("cpu", window())
        host = HostSample(at_ns=1, cpu_pct=1.0, memory_used_bytes=1.0, memory_total_bytes=2.0)
        assert advance(before, host) is before
        assert replace(advance(before, SliceEnded(at_ns=1, round=1)), heartbeat=before.heartbeat) == before


class TestEnd:
    def test_a_signal_is_named(self):
        state = lane("cpu", phase(RACING), ended(signal="SIGKILL"))
        assert (state.phase, state.trouble.message) == (FAILED, "the lane was ended by SIGKILL")

    @pytest.mark.parametrize("code", [0, 3])
    def test_an_exit_code_without_a_word_is_a_failure(self, code):
        state = lane("cpu", phase(RACING), ended(exit_code=code))
        assert state.phase == FAILED
        assert f"exit code {code}" in state.trouble.message

    def test_an_end_that_was_asked_for_is_no_failure(self):
        state = lane("cpu", phase(RACING), ended(signal="SIGKILL", asked=True))
        assert (state.phase, state.trouble) == (DONE, None)

    def test_an_end_after_a_reason_keeps_the_reason(self):
        failure = LaneFailed(at_ns=5, kind="scenario", message="what")
        state = lane("cpu", failure, ended(exit_code=1))
        assert (state.phase, state.trouble.message, state.phase_since_ns) == (FAILED, "what", 5)
        assert state.ended.output_tail == ("last words",)

    def test_wishes_end_with_the_lane(self):
        assert lane("cpu", asked(1), ended(exit_code=0, asked=True)).requested == {}


class TestRestart:
    def test_a_restart_forgets_everything_but_the_spec_and_the_log(self):
        events = (
            Hello(at_ns=1, protocol=1, pid=42, python="3.12.1"),
            phase(RACING),
            tree(),
            window(),
            window(marks=("warm-up",)),
            asked(1),
            applied(),
            refused(2),
            BadLine(lane="cpu", at_ns=1, problem="x"),
            ended(signal="SIGSEGV"),
        )
        start = LaneStarted(lane="cpu", at_ns=50, pid=43, settings={"prefetch": 2})
        state = lane("cpu", *events, start)
        fresh = LaneState(
            spec=LaneSpec("cpu", name="cpu"),
            started_ns=50,
            phase_since_ns=50,
            pid=43,
            settings={"prefetch": 2},
            heartbeat=Heartbeat(heard_ns=50),
        )
        assert replace(state, log=()) == fresh

    @pytest.mark.parametrize(("source", "kept"), [("same", 1), ("another", 0)])
    def test_slices_stay_at_hand_under_their_settings_while_the_scenario_is_the_same(self, source, kept):
        first, again = (
            LaneStarted(lane="cpu", at_ns=50, pid=43, settings={"prefetch": 2}, source=name)
            for name in ("same", source)
        )
        state = lane("cpu", first, window(round=1), again)
        assert (state.slices, state.steady.windows) == ((), 0)
        assert len(state.slices_under(window().settings)) == kept

    def test_a_restarted_lane_can_race_again(self):
        start = LaneStarted(lane="cpu", at_ns=50, pid=43, settings={})
        assert lane("cpu", ended(signal="SIGSEGV"), start, phase(RACING)).phase == RACING

    def test_a_gpu_lane_never_says_that_it_has_no_gpu(self):
        start = LaneStarted(lane="gpu:0", at_ns=50, pid=43, settings={})
        assert lane("gpu:0", start).gpu_memory_used_bytes == NOT_SAMPLED
        assert lane("cpu", start).gpu_memory_used_bytes == NO_GPU


class TestWindows:
    def test_steady_windows_add_up(self):
        state = lane("cpu", window(step=10), window(step=20, longest_ns=50 * MS))
        assert state.steady == WindowSums(
            windows=2,
            steps=20,
            examples=640,
            span_ns=400 * MS,
            input_ns=40 * MS,
            call_ns=300 * MS,
            sync_ns=50 * MS,
            report_ns=10 * MS,
            histogram=histogram.count([20 * MS] * 20),
        )
        assert (state.steps, state.examples) == (20, 640)

    def test_rates_are_over_wall_time(self):
        steady = lane("cpu", window(), window(span_ns=600 * MS)).steady
        assert (steady.examples_per_s, steady.steps_per_s) == (pytest.approx(800), pytest.approx(25))
        assert steady.step_ms(0.5) == pytest.approx(20, rel=0.0055)

    def test_nothing_measured_has_no_rate(self):
        assert (WindowSums().examples_per_s, WindowSums().steps_per_s, WindowSums().step_ms(0.5)) == (None, None, None)

    def test_a_marked_window_is_counted_as_left_out_and_is_not_steady(self):
        marked = window(marks=("garbage collection", "slice start"), longest_ns=SECOND, round=1)
        state = lane("cpu", window(), marked, window(marks=("slice start",)))
        assert state.discarded == {"garbage collection": 1, "slice start": 2}
        assert (state.steady.windows, state.slices) == (1, ())
        assert state.examples == 960
        assert [point.steady for point in state.points] == [True, False, False]

    def test_the_chart_gets_every_window_up_to_a_number(self):
        state = lane("cpu", *(window(at_ns=number) for number in range(HISTORY_WINDOWS + 5)))
        assert len(state.points) == HISTORY_WINDOWS
        assert state.points[-1] == Point(HISTORY_WINDOWS + 4, 200 * MS, 320, 10, True)

    def test_the_first_and_the_last_loss_are_kept(self):
        state = lane("cpu", window(loss=None), window(loss=2.0), window(loss=1.0), window(loss=None))
        assert (state.first_loss, state.last_loss) == (2.0, 1.0)

    def test_settings_and_gpu_memory_are_those_of_the_latest_window(self):
        state = lane(
            "gpu:0",
            window(gpu_memory_allocated_bytes=5, gpu_memory_peak_bytes=9),
            window(settings={"prefetch": 1}),
        )
        assert (state.settings, state.gpu_memory_allocated_bytes, state.gpu_memory_peak_bytes) == (
            {"prefetch": 1},
            None,
            None,
        )


class TestRecent:
    def test_nothing_is_recent_before_the_first_window(self):
        assert lane().recent() == WindowSums()

    def test_only_windows_wholly_in_the_last_seconds_count(self):
        edge = window(at_ns=10 * SECOND - RECENT_NS + 200 * MS)
        late = window(at_ns=10 * SECOND, examples=100)
        across = window(at_ns=edge.at_ns - 1)
        assert lane("cpu", across, edge, late).recent().examples == 420

    def test_marked_windows_do_not_count(self):
        recent = lane("cpu", window(), window(at_ns=2 * SECOND, marks=("pause",))).recent()
        assert (recent.windows, recent.steps, recent.examples, recent.span_ns) == (1, 10, 320, 200 * MS)

    def test_windows_from_before_a_knob_change_do_not_count(self):
        before = window(at_ns=3 * SECOND - 1)
        after = window(at_ns=3 * SECOND + 200 * MS, examples=7)
        assert lane("cpu", before, applied(at_ns=3 * SECOND), after).recent().examples == 7


class TestTurns:
    def test_the_windows_of_one_round_add_up(self):
        windows = [
            window(at_ns=1 * SECOND, round=1),
            window(at_ns=2 * SECOND, round=1, examples=100, span_ns=100 * MS),
            window(at_ns=3 * SECOND, round=2),
        ]
        first, second = lane("cpu", *windows).slices
        assert (first.turn, first.examples, first.span_ns, first.at_ns) == (1, 420, 300 * MS, 2 * SECOND)
        assert first.examples_per_s == pytest.approx(1400)
        assert (second.turn, second.examples) == (2, 320)

    def test_windows_outside_a_turn_make_no_turn(self):
        assert lane("cpu", window()).slices == ()

    def test_the_oldest_turns_are_dropped(self):
        turns = lane("cpu", *(window(round=number) for number in range(MOST_SLICES + 3))).slices
        assert (len(turns), turns[0].turn, turns[-1].round) == (MOST_SLICES, 3, MOST_SLICES + 2)


class TestKnobs:
    def test_a_wish_waits_for_its_answer(self):
        wish = lane("cpu", asked(1)).asked["prefetch"]
        assert (wish.request, wish.value, wish.at_ns) == (1, "off", 3)

    def test_a_knob_in_force_clears_the_wish_and_all_that_was_measured_before(self):
        state = lane("cpu", window(round=1), asked(1), applied(1, "off"))
        assert state.requested == {}
        assert state.settings == {"prefetch": "off"}
        assert (state.steady, state.slices) == (WindowSums(), ())
        assert (state.steps, state.examples, len(state.points)) == (10, 320, 1)
        assert [(mark.text, mark.at_ns, mark.gap_ns) for mark in state.knob_marks] == [
            ("prefetch off", 3 * SECOND, 40 * MS)
        ]

    @pytest.mark.parametrize("answer", [applied(1), refused(1)])
    def test_a_newer_wish_stays_when_an_older_one_is_answered(self, answer):
        state = lane("cpu", asked(1), asked(2, 2), answer)
        assert state.requested["prefetch"].request == 2

    @pytest.mark.parametrize("answer", [applied(3), refused(3)])
    def test_a_wish_for_another_knob_stays(self, answer):
        assert set(lane("cpu", asked(1, 64, "batch_size"), asked(3), answer).requested) == {"batch_size"}

    def test_a_refused_wish_changes_nothing_but_says_why(self):
        state = lane("cpu", window(), asked(1), refused(1))
        assert (state.requested, state.refused) == ({}, "no memory")
        assert (state.settings, state.steady.windows) == ({"prefetch": "auto"}, 1)

    @pytest.mark.parametrize("event", [asked(2), applied(2)])
    def test_a_refusal_is_forgotten_with_the_next_wish(self, event):
        assert lane("cpu", asked(1), refused(1), event).refused == ""

    def test_the_title_shows_what_is_in_force(self):
        spec = LaneSpec("cpu", {"prefetch": "off"}, name="cpu prefetch=off", apart=("prefetch",))
        assert advance(LaneState(spec=spec), applied(1, 2)).title == "cpu prefetch=2"


class TestSamples:
    def test_a_tree_sample_is_kept_and_only_racing_is_averaged(self):
        state = lane("cpu", tree(900.0), phase(RACING), tree(100.0), tree(300.0), phase(PAUSED), tree(0.0))
        assert state.racing_cpu_pct.value == 200.0
        assert (state.tree_cpu_pct, state.private_bytes, state.processes, state.pids) == (0.0, 1e6, 2, (7, 8))

    def test_a_missing_reading_is_shown_but_not_averaged(self):
        state = lane("cpu", phase(RACING), tree(100.0), tree(HIDDEN))
        assert (state.tree_cpu_pct, state.racing_cpu_pct.value) == (HIDDEN, 100.0)

    def test_a_lane_that_is_over_keeps_its_last_samples(self):
        done = lane("gpu:0", tree(), phase(RACING), gpu(), Finished(at_ns=1, steps=1))
        assert advance(advance(done, tree(0.0)), gpu(busy_pct=0.0)) == done

    def test_a_gpu_is_told_by_its_index_until_the_lane_knows_its_uuid(self):
        early, told = lane("gpu:1"), lane("gpu:1", equipped("GPU-b"))
        assert [trains_on(early, gpu("GPU-b", index)) for index in (0, 1)] == [False, True]
        assert [trains_on(told, gpu("GPU-b", index)) for index in (0, 1)] == [True, True]
        assert not trains_on(told, gpu("GPU-a", 1))

    def test_no_gpu_belongs_to_a_cpu_lane(self):
        before = lane("cpu", phase(RACING))
        assert advance(before, gpu()) is before

    def test_a_gpu_is_averaged_while_its_lane_races(self):
        state = lane(
            "gpu:0", gpu(busy_pct=5.0), phase(RACING), gpu(busy_pct=40.0), gpu(busy_pct=60.0), gpu("x", 1)
        )
        assert state.racing_gpu_busy_pct.value == 50.0

    def test_memory_is_that_of_the_lanes_own_processes(self):
        state = lane("gpu:0", tree(), gpu(held={7: 100, 8: 20, 9: 5_000}))
        assert state.gpu_memory_used_bytes == 120.0

    @pytest.mark.parametrize("held", [{}, {9: 5_000}, {7: None}])
    def test_memory_that_the_driver_does_not_tell_is_missing_and_not_zero(self, held):
        assert isinstance(lane("gpu:0", tree(), gpu(held=held)).gpu_memory_used_bytes, Missing)


class TestMean:
    def test_of_nothing_is_none(self):
        assert Mean().value is None
        assert Mean().plus(HIDDEN).value is None

    def test_of_samples(self):
        assert Mean().plus(1.0).plus(HIDDEN).plus(0.0).plus(5.0) == Mean(6.0, 3)
        assert Mean(6.0, 3).value == 2.0


class TestScript:
    """A lane that runs the user's own command."""

    @staticmethod
    def started() -> LaneState:
        state = LaneState(LaneSpec("cpu", name="cpu"))
        return advance(state, LaneStarted(lane="cpu", at_ns=0, pid=1, settings={}, command="python train.py"))

    @staticmethod
    def ended(state: LaneState, **how) -> LaneState:
        told = {"exit_code": 0, "signal": None, "asked": False, **how}
        return advance(state, LaneEnded(lane="cpu", at_ns=1, **told))

    def test_an_end_without_a_step_is_told_with_what_to_do(self):
        trouble = self.ended(self.started()).trouble
        assert trouble is not None and "no training step was seen" in trouble.message
        assert "report.step" in trouble.hint

    def test_the_time_left_counts_what_epochs_take_besides_their_steps(self):
        state = replace(self.started(), phase="racing", measurements=Measurements(steady=WindowSums(steps=100, span_ns=10**9)))
        assert seconds_left(state) is None
        told = {"doing": "fit", "epoch": 2, "epochs": 3, "batch": 50, "batches": 100, "epochs_done": 1}
        state = advance(state, Progressed(lane="cpu", at_ns=0, validation_ns=2 * 10**9, between_ns=10**9, **told))
        assert seconds_left(state) == pytest.approx(0.5 + 1 + 2 * 3)
