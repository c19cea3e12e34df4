"""Changes of speed are found soon, with their step."""

import math
import random

import pytest
from support.events import MS, SECOND, window

from tfmon.model.lane_events import histogram_of
from tfmon.model.lane_state import copied
from tfmon.model.speed import SpeedWatch

STEP_MS = 20.0


def windows(
    seconds: float, factor: float = 1.0, noise: float = 0.05, since_ns: int = 0, step: int = 0, seed: int = 1
):
    """Yield windows of 0.2 s and more, whose steps scatter as a normal distribution does."""
    chance, at_ns = random.Random(seed), since_ns
    while at_ns < since_ns + seconds * SECOND:
        each_ms = STEP_MS * factor * math.exp(chance.gauss(0, noise))
        steps = max(1, round(200 / each_ms))
        step, at_ns = step + steps, at_ns + round(steps * each_ms * MS)
        span_ns = round(steps * each_ms * MS)
        yield window(at_ns, span_ns, steps=steps, step=step, histogram=histogram_of([each_ms * MS] * steps))


def fed(watch: SpeedWatch, made) -> tuple[SpeedWatch, float | None]:
    """Return the watch after windows, and the seconds until it had found a change."""
    watch = copied(watch, SpeedWatch)
    levels, found = len(watch.levels), None
    for one in made:
        watch.add(one, one.step)
        if found is None and len(watch.levels) > levels:
            found = one.at_ns / SECOND
    return watch, found


@pytest.mark.parametrize(
    ("factor", "within_s", "baseline_s"), [(3, 15, 14), (1.1, 300, 120), (1 / 1.5, 10, 60), (3, 25, 3)]
)
def test_a_change_is_found_soon_and_from_the_right_step_on(factor, within_s, baseline_s):
    before, none = fed(SpeedWatch(), windows(baseline_s))
    made = [*windows(baseline_s)][-1]
    after, found_s = fed(before, windows(within_s, factor, since_ns=made.at_ns, step=made.step, seed=2))
    assert none is None
    assert found_s is not None and found_s <= made.at_ns / SECOND + within_s
    assert abs(after.since_ns - made.at_ns) <= 5 * SECOND and abs(after.step - made.step) <= 250
