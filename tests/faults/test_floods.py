"""A child that sends too many or unreadable lines: bounded memory, a count, a message, and no harm to others."""

import tracemalloc

import pytest
from support.waiting import HANGS_S, wait_for

from tfmon.model.race import CONCURRENT

pytestmark = pytest.mark.process

MOST_BYTES = 5_000_000
"""Of memory that Python takes at most in the monitor: full histories of two lanes are 2 MB."""


@pytest.mark.slow
def test_100_mb_of_unreadable_lines_are_counted_and_said(faulty_group):
    told = []
    faulty_group.session.listen(lambda event: told.append(event) if hasattr(event, "problem") else None)
    tracemalloc.start()
    try:
        faulty_group.race_with("floods_metrics", mode=CONCURRENT)
        wait_for(lambda: faulty_group.faulty.totals.steps > 150, HANGS_S, "the faulty lane trains on")
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()
    process = faulty_group.faulty.process
    assert 90_000 < process.bad_lines < 110_000
    assert process.last_bad_line == "unknown type 'Rubbish'"
    assert len(told) < process.bad_lines / 10
