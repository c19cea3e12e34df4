"""An estimate: its relative width, and what its interval excludes."""

from __future__ import annotations

import pytest

from tfmon.model.readings import Estimate


def test_an_estimate_has_a_relative_half_width_and_excludes_what_lies_outside():
    estimate = Estimate(2.0, 1.5, 2.6, 5)
    assert estimate.half_width == pytest.approx(0.275)
    assert [estimate.clear_of(value) for value in (1.4, 1.5, 2.0, 2.6, 2.7)] == [True, False, False, False, True]
