"""A child that sends too many or unreadable lines: bounded memory, a count, a message, and no harm to others."""

import tracemalloc

import pytest
from support.waiting import HANGS_S, wait_for

from tfmon.model.race import CONCURRENT

pytestmark = pytest.mark.process

MOST_BYTES = 5_000_000
"""Of memory that Python takes at most in the monitor: full histories of two lanes are 2 MB."""


def race_through(faulty_group, fault: str) -> int:
    """Race until the faulty lane trains on after its fault; return the most memory that was taken."""
    tracemalloc.start()
    try:
        faulty_group.race_with(fault, mode=CONCURRENT)
        wait_for(lambda: faulty_group.faulty.totals.steps > 150, HANGS_S, "the faulty lane trains on")
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_100_mb_of_unreadable_lines_are_counted_and_said(faulty_group):
    told = []
    faulty_group.session.listen(lambda event: told.append(event) if hasattr(event, "problem") else None)
    assert race_through(faulty_group, "floods_metrics") < MOST_BYTES
    assert 90_000 < faulty_group.faulty.process.bad_lines < 110_000
    assert faulty_group.faulty.process.last_bad_line == "unknown type 'Rubbish'"
    assert len(told) < faulty_group.faulty.process.bad_lines / 10


def test_a_child_that_never_says_a_word_is_told_as_stalled(faulty_group, tmp_path, monkeypatch):
    monkeypatch.setattr("tfmon.lanes.watchdog.STARTING_S", 1.0)
    script = tmp_path / "mute.py"
    script.write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setattr(faulty_group, "_script", script)
    faulty_group.begin(faulty_group.plan("cpu", mode=CONCURRENT))
    wait_for(lambda: faulty_group.lane("cpu").heartbeat.stalled_since_ns is not None, what="a stall")
    faulty_group.kill("cpu")
    wait_for(lambda: faulty_group.lane("cpu").end.event, what="its end")
    assert "not a word for" in faulty_group.lane("cpu").trouble.message
