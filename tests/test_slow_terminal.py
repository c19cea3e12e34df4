"""The whole program over a slow link: nothing piles up, keys act, and it can be left."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pty")

from support.link import Link

TESTS = Path(__file__).parent
LANES = ("--lane", "cpu", "--lane", "cpu,prefetch=auto")
PAINTS = 60
SCREEN_BYTES = 120 * 36
"""Every full paint has more than these."""


@pytest.fixture
def link() -> Iterator[Link]:
    """Race two scripted lanes."""
    program = Link(
        [sys.executable, str(TESTS / "support" / "gpu_tfmon.py"), "race", "small-dense", *LANES],
        environment={
            "LANE": str(TESTS / "benchmarks" / "scripted_lane.py"),
            "PYTHONPATH": str(TESTS.parent),
        },
    )
    assert program.wait_for(lambda text: "steps/s" in text), program.text()
    yield program
    program.leave("\x03\x03")


def test_what_a_blocked_terminal_did_not_take_is_not_kept_for_it(link) -> None:
    link.bytes_per_s = 0
    for _ in range(PAINTS // 2):
        link.press("?")
        link.run(0.02)
        link.press("\x1b[27u")
        link.run(0.02)
    link.press("\t")
    link.run(0.1)
    before = link.taken
    link.bytes_per_s = None
    assert link.wait_for(lambda text: "keys act on cpu only" in text), link.text()
    assert link.taken - before < PAINTS * SCREEN_BYTES / 4


def test_a_key_acts_while_the_terminal_takes_little(link) -> None:
    link.bytes_per_s = 20_000
    link.press("\t")
    assert link.wait_for(lambda text: "keys act on cpu only" in text), link.text()
    link.press("?")
    assert link.wait_for(lambda text: "keys act on the next lane only" in text), link.text()


def test_it_can_be_left_while_the_terminal_takes_little(link) -> None:
    link.bytes_per_s = 5_000
    link.press("?")
    assert link.leave("\x03") < float("inf")
