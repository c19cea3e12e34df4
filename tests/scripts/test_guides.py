"""Scripts in the manner of public ones: tfmon's counts equal the counts of the script."""

from pathlib import Path

import pytest

from tfmon.analysis.causes import causes_of

from .test_keras import ALL_OF, counted, shapes, trained

PUBLIC = Path(__file__).parent / "public"
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]
TRUE = {"retrace_shape", "epoch_first", "epoch_callback", "epoch_validation", "iterator_freed"}
"""Causes that are true of the scripts of `public`: a last batch is smaller, a callback predicts, a busy machine
traces long. TensorFlow waits for its autotuner at random when it frees an iterator, in a plain run as well.
"""


def test_scripts_in_the_manner_of_public_ones_are_counted_and_no_cause_is_told_that_is_not_theirs(watch, script):
    race = watch(script(ALL_OF), *map(str, sorted(PUBLIC.glob("*.py"))))
    assert trained(race) == counted(race)
    assert {cause.id for cause in causes_of(race.lane)} <= TRUE


@pytest.mark.trainer
def test_legacy_keras_is_counted(watch):
    race = watch(*shapes("legacy_keras"))
    assert trained(race) == counted(race)
    assert 0 < race.lane.totals.losses.last < 5
    assert not any(race.lane.script.not_measured.values())
