"""What other programs took from the lanes, and when that is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfmon.analysis.others import NO_DELAYS, NO_SLICES, NO_STOLEN, contention, cpu_ratio
from tfmon.model.lane_statistics import SliceSpeed
from tfmon.model.readings import SliceLoad

MS = 1_000_000
QUIET = SliceLoad(
    span_ns=500 * MS,
    examples=1_000,
    cpu_ns=900 * MS,
    delay_ns=9 * MS,
    others_ns=9 * MS,
    stolen_ns=0,
    cores=2,
)
BUSY = replace(QUIET, examples=600, cpu_ns=540 * MS, delay_ns=400 * MS, others_ns=400 * MS)


def slices(*loads: SliceLoad | None) -> list[SliceSpeed]:
    return [SliceSpeed(number, number, 900, 480 * MS, load=load) for number, load in enumerate(loads, 1)]


def test_the_share_of_contended_slices_is_told_from_five_percent_on():
    found = contention([slices(*[QUIET] * 4, BUSY), slices(*[QUIET] * 3, BUSY, BUSY)])
    assert found.slices_share == pytest.approx(0.3)
    assert found.text().startswith(
        "other programs took CPU time during 30 % of the slices; counting only CPU time"
    )
    assert found.text(undecided=True).startswith("the machine is too busy for a quick answer: other programs")
    quiet = contention([slices(*[QUIET] * 5)] * 2)
    assert quiet.text() == quiet.text(undecided=True) == ""


def test_the_ratio_of_cpu_time_is_that_of_the_computing_however_little_of_the_cpu_a_lane_got():
    dearer = [replace(load, cpu_ns=load.cpu_ns * 3 // 2) for load in (QUIET, BUSY, QUIET, QUIET, BUSY, BUSY)]
    first = slices(BUSY, QUIET, QUIET, BUSY, QUIET, BUSY)
    assert cpu_ratio(first, slices(*dearer)) == pytest.approx(1.5)
    assert cpu_ratio(first[:4], slices(*dearer)) is None, "too few rounds"
    starved = replace(QUIET, cpu_ns=300 * MS, delay_ns=400 * MS)
    assert cpu_ratio(first, slices(*[starved] * 6)) is not None, "one that waits for a core is"
    waiting = replace(QUIET, cpu_ns=300 * MS)
    assert cpu_ratio(first, slices(*[waiting] * 6)) is None, "a lane that waits is not bound by the CPU"


def test_stolen_time_is_told_and_what_is_not_reported_has_its_reason():
    stolen = replace(QUIET, stolen_ns=50 * MS)
    assert "this virtual machine loses 10 % of a core to others" in contention([slices(*[stolen] * 5)] * 2).text()
    unknown = replace(QUIET, delay_ns=None, stolen_ns=None)
    found = contention([slices(*[unknown] * 5)])
    assert (found.slices_share, found.stolen_share, found.text()) == (NO_DELAYS, NO_STOLEN, "")
    assert contention([slices(None)]).slices_share == NO_SLICES
