"""A reading is a number or the reason why there is none."""

from __future__ import annotations

import pytest

from tfmon.model.readings import Missing, known


def test_a_number_is_known_even_when_it_is_zero():
    assert known(2.5) == 2.5
    assert known(0.0) == 0.0


def test_a_missing_value_is_none_and_keeps_its_reason():
    missing = Missing("no GPU in this lane")
    assert known(missing) is None
    assert missing.reason == "no GPU in this lane"


def test_nobody_can_compute_with_a_missing_value():
    with pytest.raises(TypeError):
        Missing("hidden") + 1.0
