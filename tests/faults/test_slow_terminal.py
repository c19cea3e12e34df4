"""The whole program over a slow link: nothing piles up, keys act, and it can be left."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.link import Link

pytestmark = pytest.mark.pty

TESTS = Path(__file__).parents[1]
LANES = ("--lane", "cpu", "--lane", "cpu,prefetch=auto")
ESCAPE = "\x1b[27u"


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


def test_a_key_acts_while_the_terminal_takes_little_and_it_can_be_left(link):
    link.bytes_per_s = 20_000
    for key, answer in (("\t", "keys act on cpu prefetch"), ("?", "keys act on the next lane")):
        link.process.send(key)
        link.wait_for(lambda text, answer=answer: answer in text)
    link.bytes_per_s = 5_000
    link.process.send(ESCAPE)
    assert link.quit("\x03") < float("inf")
