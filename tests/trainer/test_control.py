"""The content of a window, and the reasons for discarding it: the rules of every lane, on a test's clock."""

import gc
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from tfmon.model.lane_events import (
    PAUSED,
    RACING,
    SLICE_START,
    KnobApplied,
    PhaseEntered,
    SliceEnded,
    Window,
    histogram_of,
)
from tfmon.model.requests import Pause, Request, Run, RunSlice, SetKnob
from tfmon.system import lane_clock
from tfmon.trainer import step_clock
from tfmon.trainer.lane_control import PAUSE, PROFILE, WARM_UP, LaneControl
from tfmon.trainer.slices import STRETCH_NS, TICK_NS, WINDOW_NS, CpuMeter
from tfmon.trainer.step_clock import (
    CAPACITY,
    COMPILING,
    KNOB_CHANGE,
    LONG_COLLECTION_NS,
    MOST_OUTLIER_WINDOWS,
    CollectorWatch,
    Sampler,
    Samples,
    StepClock,
)

EventType = TypeVar("EventType")
SETTINGS = {"batch_size": 10}


class Lane(LaneControl):
    """A lane with given step times, and a clock that only its steps move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, device: str = "cpu") -> None:
        self.now_ns = 0
        time = SimpleNamespace(monotonic_ns=lambda: self.now_ns)
        monkeypatch.setattr(lane_clock, "time", time)
        self.events: list[Any] = []
        self.room = True
        super().__init__(self, dict(SETTINGS), Sampler(), lambda: (None, None), device)
        self.become_ready()

    def send(self, event: Any) -> None:
        self.events.append(event)

    def offer(self, *events: Any, later: bool = False) -> bool:
        if self.room:
            self.events += events
        return self.room

    def handle(self, request: Request) -> None:
        if isinstance(request, SetKnob):
            self.settings = {**self.settings, request.knob: request.value}
            self.knob_changed(request)
        super().handle(request)

    def of(self, kind: type[EventType]) -> list[EventType]:
        return [event for event in self.events if isinstance(event, kind)]

    def step(self, took_ns: int, *, traced: bool = False) -> None:
        self.now_ns += took_ns
        clock = self.clock
        clock.times[clock.kept] = took_ns
        clock.count(1)
        clock.done += 1
        clock.examples += 10
        clock.call_ns += took_ns
        clock.traced_steps += traced
        clock.last_end_ns = self.now_ns

    def stretch(self, step_ns: int, **more: Any) -> bool:
        """Train steps until the stretch is due; return whether that closed a window."""
        due_ns = self.slices.due_ns(self.stretch_began_ns)
        while True:
            self.step(step_ns, **more)
            if self.now_ns >= due_ns:
                return self.finish_stretch(self.now_ns, 1.0)

    def slice(self, number: int, seconds: float, step_ns: int) -> list[Window]:
        """Train a whole slice; return its windows."""
        self.handle(RunSlice(round=number, seconds=seconds))
        while not self.slices.paused:
            self.stretch(step_ns)
        return [window for window in self.of(Window) if window.round == number]


@pytest.fixture
def lane(monkeypatch: pytest.MonkeyPatch) -> Lane:
    return Lane(monkeypatch)


def test_the_first_window_counts_and_the_first_after_a_pause_is_discarded(lane):
    assert lane.slices.paused
    lane.handle(Run())
    lane.stretch(1_000_000)
    lane.handle(Pause())
    lane.handle(Pause())
    lane.now_ns += 10**10
    lane.handle(Run())
    lane.stretch(1_000_000)
    lane.stretch(1_000_000)
    assert [window.marks for window in lane.of(Window)] == [(), (PAUSE,), ()]
    assert [event.phase for event in lane.of(PhaseEntered)][1:] == [RACING, PAUSED, RACING]
    assert all(window.span_ns == WINDOW_NS for window in lane.of(Window)), "the pause is in no window"


class TestSlices:
    def test_a_slice_ends_with_the_step_that_is_running_and_then_the_lane_is_paused(self, lane):
        first, *rest = lane.slice(3, 0.4, 1_500_000)
        assert first.marks == (SLICE_START,) and 2 * STRETCH_NS <= first.span_ns < 2.5 * STRETCH_NS
        assert rest and all(window.marks == () for window in rest)
        assert 0 <= lane.now_ns - int(0.4e9) < 1_500_000
        (ended,) = lane.of(SliceEnded)
        assert (ended.at_ns, ended.round) == (lane.now_ns, 3)
        lane.handle(Pause())
        assert lane.of(PhaseEntered)[-1].phase == RACING, "a pause that comes too late"

    def test_only_the_start_of_a_slice_is_discarded_though_the_pipe_is_full(self, lane):
        lane.room = False
        (window,) = lane.slice(1, 0.5, 1_000_000)
        assert window.steps == 500, "the last window of a slice is sent in any case"

    @pytest.mark.parametrize(
        ("device", "step_ns", "steps"),
        [
            *(("cpu", 1_000_000, 20), ("cpu", 5_000_000, 4), ("cpu", 9_000_000, 4), ("cpu", 19_000_000, 2)),
            *(("cpu", 20_000_000, 1), ("cpu", 99_000_000, 1), ("gpu", 1_000_000, 50), ("gpu", 99_000_000, 2)),
        ],
    )
    def test_a_stretch_has_10_ms_or_one_step_and_on_a_gpu_more(self, monkeypatch, device, step_ns, steps):
        first, *_ = Lane(monkeypatch, device).slice(1, 2.0, step_ns)
        assert (first.marks, first.steps) == ((SLICE_START,), steps)

    def test_the_start_lasts_until_the_lane_is_no_longer_getting_faster(self, lane):
        lane.handle(RunSlice(round=1, seconds=2.0))
        speeds = [3_000_000, 2_000_000, 1_000_000, 500_000, 500_000]
        closed = [lane.stretch(step_ns) for step_ns in speeds]
        assert closed == [False, False, False, False, True]
        (window,) = lane.of(Window)
        assert window.marks == (SLICE_START,) and window.step == lane.clock.done

    def test_a_slice_says_who_used_the_cpu_in_it(self, lane, tmp_path, put):
        def counters(delay_ns: int, user: int, stolen: int) -> None:
            put("proc/self/task/7/schedstat", f"5 {delay_ns} 2\n")
            put("proc/stat", f"cpu  {user} 0 0 999 0 0 0 {stolen} 0 0\ncpu0 1 1 1\n")

        lane._cpu = CpuMeter(tmp_path)
        counters(1_000, 100, 5)
        lane.handle(RunSlice(round=1, seconds=0.4))
        counters(61_000, 10_100, 9)
        while not lane.slices.paused:
            lane.stretch(1_000_000)
        (ended,) = lane.of(SliceEnded)
        assert ended.load is not None
        assert (ended.load.delay_ns, ended.load.stolen_ns) == (60_000, 4 * TICK_NS)
        assert ended.load.others_ns == 10_000 * TICK_NS - ended.load.cpu_ns
        assert ended.load.examples == 4_000, "those of the discarded start count, too"

    def test_where_the_kernel_reports_nothing_only_its_own_time_is_known(self, tmp_path):
        meter = CpuMeter(tmp_path)
        assert meter.end(0) is None
        meter.begin()
        load = meter.end(5)
        assert load is not None and load.cpu_ns >= 0 and load.examples == 5
        assert (load.delay_ns, load.others_ns, load.stolen_ns, load.contended) == (None,) * 4


class TestWindows:
    def test_a_refused_window_grows_and_is_due_a_whole_window_later(self, lane):
        lane.handle(Run())
        lane.room = False
        lane.stretch(1_000_000)
        lane.room = True
        assert lane.slices.due_ns(lane.stretch_began_ns) == 2 * WINDOW_NS
        lane.stretch(1_000_000)
        (window,) = lane.of(Window)
        assert (window.steps, window.examples, window.span_ns) == (400, 4_000, 2 * WINDOW_NS)
        assert sum(window.histogram.values()) == 400

    def test_a_window_whose_report_a_signal_interrupts_is_not_reported_again(self, lane):
        lane.handle(Run())
        lane.stretch(20_000_000)

        def interrupted(*events: Any, later: bool = False) -> bool:
            del lane.offer
            lane.events += events
            raise KeyboardInterrupt

        lane.offer = interrupted
        with pytest.raises(KeyboardInterrupt):
            lane.stretch(20_000_000)
        lane.stretch(20_000_000)
        first, second, third = lane.of(Window)
        assert (second.since_ns, third.since_ns) == (first.at_ns, second.at_ns)

    def test_discarded_steps_are_counted_and_their_marks_stay(self, lane):
        lane.handle(Run())
        lane.step(1_000_000)
        lane.clock.marks.add(PROFILE)
        lane.discard_steps()
        lane.stretch(1_000_000)
        (window,) = lane.of(Window)
        assert (window.steps, window.step, window.sampled_examples, window.marks) == (200, 201, 10, (PROFILE,))
        lane.stretch(1_000_000)
        assert lane.of(Window)[1].sampled_examples == 0

    @pytest.mark.parametrize("mark", [KNOB_CHANGE, WARM_UP])
    def test_outliers_are_marked_until_they_are_usual_and_not_where_they_are_expected(self, lane, mark):
        lane.handle(Run())
        lane.clock.marks.add(mark)
        for _ in range(MOST_OUTLIER_WINDOWS + 2):
            lane.stretch(1_000_000, traced=True)
        marks = [window.marks for window in lane.of(Window)]
        assert marks == [(mark,), *[(COMPILING,)] * MOST_OUTLIER_WINDOWS, ()]


def test_a_change_is_confirmed_with_its_first_step_and_marks_its_window(lane):
    request = SetKnob(request=7, knob="batch_size", value=20)
    lane.handle(Run())
    lane.stretch(1_000_000)
    assert lane.steady
    lane.handle(request)
    assert not lane.steady
    lane.step(5_000_000)
    lane.confirm_knobs(lane.now_ns, 5_000_000)
    lane.stretch(1_000_000)
    (applied,) = lane.of(KnobApplied)
    assert (applied.request, applied.value, applied.step, applied.gap_ns) == (7, 20, 201, 5_000_000)
    window = lane.of(Window)[-1]
    assert window.marks == (KNOB_CHANGE,) and window.settings == {"batch_size": 20}
    lane.confirm_knobs(lane.now_ns, 0)
    assert len(lane.of(KnobApplied)) == 1


def test_a_step_is_sampled_once_a_second_and_for_one_percent_of_the_time():
    sampler, sample = Sampler(), Samples(steps=1, examples=10, input_ns=1, copy_ns=2, call_ns=3, tail_ns=4)
    assert sampler.due(0)
    sampler.add(sample, 5_000_000, 1_000_000)
    assert not sampler.due(1_004_999_999) and sampler.due(1_005_000_000)
    sampler.add(sample, 0, 30_000_000)
    assert not sampler.due(2_999_999_999) and sampler.due(3_000_000_000)
    assert sampler.sums == Samples(steps=2, examples=20, input_ns=2, copy_ns=4, call_ns=6, tail_ns=8)
    # The first sample after a change is dropped, and its examples are not.
    sampler = Sampler(drop_first=True)
    sampler.add(sample, 0, 0)
    sampler.add(sample, 0, 0)
    sampler.expect_change()
    assert sampler.due(0)
    sampler.add(sample, 0, 0)
    assert (sampler.sums.steps, sampler.sums.examples) == (1, 30)


@pytest.mark.parametrize("has_numpy", [True, False])
def test_times_are_counted_into_the_bins_of_the_model_also_if_the_ring_does_not_hold_them(monkeypatch, has_numpy):
    monkeypatch.setattr(step_clock, "HAS_NUMPY", has_numpy)
    clock = StepClock()
    times = [1, 2, 999, 1_000_000, 1_000_001, *range(1_000, 1_000 + 3 * CAPACITY), 70_000_000_000]
    left = list(times)
    while left:
        stretch = left[: min(1_500, clock.room)]
        del left[: len(stretch)]
        for slot, time_ns in enumerate([*stretch, 5][: clock.room]):
            clock.times[clock.kept + slot] = time_ns
        clock.count(len(stretch))
    assert (clock.steps, clock.longest_ns) == (len(times), times[-1])
    assert clock.histogram == histogram_of(times)
    clock.reset(77)
    assert (clock.began_ns, clock.steps, clock.longest_ns, clock.histogram) == (77, 0, 0, {})


def test_a_long_collection_is_noticed_once_and_not_before_the_race(monkeypatch):
    monkeypatch.setattr(gc, "callbacks", [])
    watch = CollectorWatch()

    def collect(took_ns: int) -> None:
        for phase, at_ns in (("start", 0), ("stop", took_ns)):
            monkeypatch.setattr(lane_clock, "time", SimpleNamespace(monotonic_ns=lambda at_ns=at_ns: at_ns))
            for callback in gc.callbacks:
                callback(phase, {})

    collect(LONG_COLLECTION_NS + 1)
    watch.settle()
    gc.unfreeze()
    collect(LONG_COLLECTION_NS)
    assert not watch.take()
    collect(LONG_COLLECTION_NS + 1)
    assert [watch.take(), watch.take()] == [True, False]
