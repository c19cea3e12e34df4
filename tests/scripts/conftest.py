"""Scripts that nobody wrote for tfmon, each in a real lane."""

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.slow import slow_except
from support.views import ORDINARY, REFUSED, Runner
from trainer.racing import Race

from tfmon.model.lane_state import LaneState

MOST_UNACCOUNTED = 0.02


def assert_accounted(lane: LaneState) -> None:
    """Check that all time from the first step to the last is measured, or left out for a reason."""
    measured = lane.measurements
    windows = measured.recent
    gaps = [
        (number, (after.since_ns - before.at_ns) / 1e9, before.marks, after.marks)
        for number, (before, after) in enumerate(itertools.pairwise(windows))
        if abs(after.since_ns - before.at_ns) > 1e8
    ]
    assert measured.unaccounted_ns <= MOST_UNACCOUNTED * measured.span_ns, (
        f"{measured.unaccounted_ns / 1e9:.3f} s of {measured.span_ns / 1e9:.3f} s are not accounted for; "
        f"gaps between {len(windows)} windows: {gaps}; bad line: {lane.process.last_bad_line!r}"
    )


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
    def write(text: str, name: str = "train.py") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that other users may enter; they may not enter pytest's, once another session of it begins."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def folder(open_path) -> Path:
    """A user's folder, with what last night's training left."""
    folder = open_path / "project"
    (folder / "out").mkdir(parents=True)
    (folder / "out" / "epoch0.txt").write_text("old")
    for name in ("best.keras", "log.csv", "notes.txt", "data.bin"):
        (folder / name).write_text("last night\n")
    (folder / "out" / "link").symlink_to("../log.csv")
    return folder


@pytest.fixture
def runner(folder, open_path) -> Runner:
    return Runner(folder, open_path / "recordings")


@pytest.fixture(params=slow_except("as it is", ["as it is", ORDINARY, REFUSED]))
def run(request, folder, open_path) -> Runner:
    """tfmon as this user, as an ordinary user, and where the system gives no namespaces."""
    store = open_path / "recordings"
    store.mkdir()
    if request.param == ORDINARY:
        python = shutil.which("python3", path="/usr/bin")
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        if os.getuid() or python is None or version not in str(Path(python).resolve()):
            pytest.skip("needs root, and a Python of the system like this one")
        subprocess.run(["chown", "-R", "nobody:nogroup", str(open_path)], check=True)
        return Runner(
            folder, store, python, "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"
        )
    if request.param == REFUSED:
        refuse = 'echo 0 > /proc/sys/user/max_mnt_namespaces && exec "$@"'
        return Runner(folder, store, sys.executable, "unshare", "-Ur", "sh", "-c", refuse, "sh")
    return Runner(folder, store)
