"""Scripts that nobody wrote for tfmon, each in a real lane."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.accounting import assert_accounted
from trainer.racing import Race

SHAPES = Path(__file__).parent / "shapes"


@pytest.fixture
def watch() -> Iterator[Callable[..., Race]]:
    """Start a script in a lane; it is ended after the test."""
    races: list[Race] = []

    def start(*words: str, **more) -> Race:
        command = (sys.executable, *words) if words[0].endswith((".py", "-m", "-c")) else words
        races.append(Race(Path("script.py"), command=command, **more))
        return races[-1]

    yield start
    for each in races:
        each.lanes.stop()
        assert_accounted(each.lane)


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    """Write a script."""

    def write(text: str, name: str = "train.py") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write
