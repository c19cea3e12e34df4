"""Scripts with the structure of Keras' guides, unchanged: what is counted is what they count themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from .test_keras import ALL_OF, counted, trained

GUIDES = Path(__file__).parent / "guides"
OTHERS = ("custom_train_step", "gan_in_fit", "two_models")
pytestmark = [pytest.mark.tensorflow]


def paths(*names: str) -> list[str]:
    return [str(GUIDES / f"{name}.py") for name in names]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("from_scratch", "gan_from_scratch"), marks=[pytest.mark.pythons, pytest.mark.trainer]),
        pytest.param(("legacy_keras",), marks=pytest.mark.trainer),
        OTHERS,
    ],
    ids=lambda names: names[-1],
)
def test_each_guide_is_counted_as_it_counts_itself(watch, script, names):
    race = watch(script(ALL_OF), *paths(*names))
    assert trained(race) == counted(race)
    assert 0 < race.lane.totals.losses.last < 5
    assert not any(race.lane.script.not_measured.values())
