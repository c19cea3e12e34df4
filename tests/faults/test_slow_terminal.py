"""The whole program over a slow link: nothing piles up, keys act, and it can be left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pty")

from support.link import Link
from support.waiting import LOOK_S, PATIENCE_S, wait_for

pytestmark = pytest.mark.pty

TESTS = Path(__file__).parents[1]
LANES = ("--lane", "cpu", "--lane", "cpu,prefetch=auto")
ESCAPE = "\x1b[27u"
PAINTS = 100
SCREEN_BYTES = 120 * 36
"""Every full paint has more than these. The system itself holds some tens of thousands for a terminal."""


def knob_requests(log: Path) -> int:
    return log.read_text("utf-8").count("SetKnob")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where the lanes log their requests."""
    return tmp_path / "requests"


@pytest.fixture
def link(log: Path) -> Iterator[Link]:
    """Race two scripted lanes."""
    child = str(TESTS.parent / "benchmarks" / "scripted_lane.py")
    program = Link(
        "race", "small-dense", *LANES, program=[str(TESTS / "support" / "fake_tfmon.py")],
        LOG=str(log), TFMON_TEST_CHILD=child, PYTHONPATH=str(TESTS.parent),
    )  # fmt: skip
    program.wait_for(lambda text: "steps/s" in text)
    yield program
    program.quit("\x03\x03")


@pytest.mark.slow
def test_what_a_blocked_terminal_did_not_take_is_not_kept_for_it(link, log) -> None:
    link.bytes_per_s = 0
    for _ in range(PAINTS // 2):
        for key in ("?", ESCAPE):
            link.process.send(key)
            link.run(0.02)
    before = knob_requests(log)

    def heeded() -> bool:
        link.process.send(ESCAPE + "p")
        link.run(1.0)
        return knob_requests(log) > before

    # Only the race heeds this key, so all keys before it were heeded.
    wait_for(heeded, PATIENCE_S * LOOK_S, "keys are heeded while nothing is taken")
    link.process.send("\t")
    taken = link.taken
    link.bytes_per_s = None
    link.wait_for(lambda text: "keys act on cpu prefetch" in text)
    assert link.taken - taken < PAINTS * SCREEN_BYTES / 2, "what is painted until then is a part of it"


def test_a_key_acts_while_the_terminal_takes_little_and_it_can_be_left(link) -> None:
    link.bytes_per_s = 20_000
    for key, answer in (("\t", "keys act on cpu prefetch"), ("?", "keys act on the next lane")):
        link.process.send(key)
        link.wait_for(lambda text, answer=answer: answer in text)
    link.bytes_per_s = 5_000
    link.process.send(ESCAPE)
    assert link.quit("\x03") < float("inf")
