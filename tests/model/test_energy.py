"""Energy of a lane, told apart from what its GPU draws in the lane's rests."""

from __future__ import annotations

import pytest

from tfmon.model.gpu_accounting import TOGETHER, TOO_EVEN, TOO_SHORT, GpuEnergy
from tfmon.model.lane_statistics import Point
from tfmon.model.readings import GpuSample, Missing

SECOND = 1_000_000_000
HIDDEN = Missing("hidden")


def sample(at_s: float, energy_j=HIDDEN, power_w=HIDDEN) -> GpuSample:
    readings = dict.fromkeys(("busy_pct", "used_bytes", "total_bytes", "power_limit_w", "temperature_c"), HIDDEN)
    return GpuSample(
        at_ns=int(at_s * SECOND), key="GPU-a", index=0, name="Board", busy_source="",
        power_w=power_w, energy_j=energy_j, **readings,
    )  # fmt: skip


def point(begin_s: float, end_s: float) -> Point:
    return Point(int(end_s * SECOND), int((end_s - begin_s) * SECOND), examples=1, steps=1, steady=True)


class Board:
    """A GPU that draws 300 W while the lane trains and 80 W while it does not."""

    def __init__(self, slices) -> None:
        self.slices = slices

    def joules(self, at_s: float) -> float:
        trained = sum(max(0.0, min(end, at_s) - begin) for begin, end in self.slices)
        return 80 * (at_s - trained) + 300 * trained


def watch(board: Board, ticks, energy: GpuEnergy | None = None, *, shared=False) -> GpuEnergy:
    energy = energy or GpuEnergy()
    points = [point(*each) for each in board.slices]
    for at_s in ticks:
        known = [one for one in points if one.at_ns <= at_s * SECOND]
        energy = energy.plus(sample(at_s, board.joules(at_s)), known, shared=shared)
    return energy


IN_TURNS = Board([(2 * n + 0.5, 2 * n + 1.5) for n in range(60)])


class TestInTurns:
    def test_both_powers_are_found_though_no_second_holds_one_alone(self):
        energy = watch(IN_TURNS, [0.1 + 1.07 * n for n in range(60)])
        assert energy.training_w == pytest.approx(300, rel=1e-6)
        assert energy.resting_w == pytest.approx(80, rel=1e-6)

    def test_windows_that_are_told_late_count_where_they_belong(self):
        ticks = [0.1 + 1.07 * n for n in range(60)]
        energy = GpuEnergy()
        points = [point(*each) for each in IN_TURNS.slices]
        for at_s in ticks:
            known = [one for one in points if one.at_ns <= (at_s - 4) * SECOND]
            energy = energy.plus(sample(at_s, IN_TURNS.joules(at_s)), known, shared=False)
        assert energy.waiting
        assert energy.training_w == pytest.approx(300, rel=1e-6)

    def test_turns_that_keep_step_with_the_sampling_tell_nothing(self):
        halves = Board([(n + 0.0, n + 0.5) for n in range(60)])
        energy = watch(halves, [float(n) for n in range(60)])
        assert energy.training_w == energy.resting_w == TOO_EVEN

    def test_another_lane_on_the_same_gpu_in_turns_does_not_matter(self):
        energy = watch(IN_TURNS, [0.1 + 1.07 * n for n in range(60)], shared=True)
        assert energy.training_w == pytest.approx(300, rel=1e-6)


class TestAllTheTime:
    ALWAYS = Board([(n * 0.2, (n + 1) * 0.2) for n in range(300)])

    def test_all_that_the_gpu_draws(self):
        energy = watch(self.ALWAYS, [float(n) for n in range(20)])
        assert energy.training_w == pytest.approx(300, rel=1e-6)
        assert energy.resting_w == TOO_SHORT

    def test_with_another_lane_at_once_no_share_is_made_up(self):
        assert watch(self.ALWAYS, [float(n) for n in range(20)], shared=True).training_w == TOGETHER

    def test_too_short(self):
        assert watch(self.ALWAYS, [float(n) for n in range(4)]).training_w == TOO_SHORT

    def test_without_a_counter_the_power_of_each_sample_counts(self):
        energy = GpuEnergy()
        for at_s in range(20):
            points = [point(*each) for each in self.ALWAYS.slices if each[1] <= at_s]
            energy = energy.plus(sample(at_s, power_w=120.0), points, shared=False)
        assert energy.training_w == pytest.approx(120)

    def test_gaps_resets_and_samples_without_a_value_do_not_count(self):
        energy = watch(self.ALWAYS, [float(n) for n in range(10)])
        points = [point(*each) for each in self.ALWAYS.slices]
        for odd in (sample(30, 1e9), sample(31, 5.0), sample(32)):
            energy = energy.plus(odd, points, shared=False)
        assert energy.training_w == pytest.approx(300, rel=1e-6)

    def test_an_interruption_leaves_its_time_out(self):
        energy = watch(self.ALWAYS, [float(n) for n in range(10)]).interrupted()
        points = [point(*each) for each in self.ALWAYS.slices]
        energy = energy.plus(sample(11, 1e9), points, shared=False)
        assert energy.training_w == pytest.approx(300, rel=1e-6)
        assert energy.interrupted().interrupted().last is None
