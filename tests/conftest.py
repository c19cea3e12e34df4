"""Rules of every test: no writes among the user's files, and markers for child processes and TensorFlow.

A test without a marker starts no process and does not load TensorFlow; an audit hook checks it.
"""

import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["support.lanes", "support.nvml", "support.sshd"]

# Properties have no deadline, because the machine may be busy. The examples are the same each time, so that a
# result does not depend on chance.
settings.register_profile(
    "tfmon", max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tfmon")

# A shell starts background jobs with SIGINT ignored, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

_FOLDER = tempfile.mkdtemp(prefix="tfmon-tests-")
os.environ["TFMON_RECORDINGS"] = os.environ["XDG_STATE_HOME"] = os.environ["TFMON_STATE"] = _FOLDER
os.environ["TFMON_RUNTIME"] = _SOCKETS = tempfile.mkdtemp(prefix="tfmon-")  # short: so are paths of sockets
for _terminals in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):  # of whoever runs the tests
    os.environ.pop(_terminals, None)

STARTS_A_PROCESS = {
    "subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system", "pty.spawn",
}  # fmt: skip
NEEDS_ONE = {"process", "tensorflow", "pty"}
LOADS_TENSORFLOW = "tensorflow"


class Guard:
    """Notes actions of the running test that need a missing marker."""

    def __init__(self) -> None:
        self.markers: set[str] | None = None
        """Markers of the running test; `None` between tests and during collection."""
        self.found: list[str] = []

    def hear(self, event: str, args: tuple[object, ...]) -> None:
        """Look at an audit event; it must be quick, for there are many."""
        if event == "import":
            if args[0] == "tensorflow" and LOADS_TENSORFLOW not in (self.markers or ()):
                self._refuse("loads TensorFlow, and is not marked `tensorflow`")
        elif event in STARTS_A_PROCESS and self.markers is not None and not self.markers & NEEDS_ONE:
            self._refuse(f"starts a process ({event} {str(args[0])[:60]}), and is not marked `process`")

    def _refuse(self, problem: str) -> None:
        self.found.append(problem)
        raise RuntimeError(f"the test {problem}")


GUARD = Guard()
sys.addaudithook(GUARD.hear)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test of a process that needs the fake driver has it compiled, whichever that is."""
    for item in items:
        if "build_fake_nvml" in getattr(item, "fixturenames", ()):
            item.add_marker("process")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    GUARD.markers, GUARD.found = {marker.name for marker in item.iter_markers()}, []
    clock = sys.modules.get("tfmon.system.lane_clock")
    if clock is not None:  # the clock of this process stands still while a lane in it is paused
        clock.lane_clock._paused_ns = 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    yield
    end_runs()
    GUARD.markers, found = None, GUARD.found
    if found:
        pytest.fail(f"it {found[0]}", pytrace=False)


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a file below `tmp_path`."""

    def write(path: str, text: str, mode: int = 0o644) -> Path:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(mode)
        return file

    return write


def end_runs() -> None:
    """End runs that a test left: a run outlives its screen. Its script gets a Ctrl+C then."""
    for path in Path(_SOCKETS).glob("*.sock"):
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(int(path.stem))
            if process.pid != os.getpid() and any("tfmon" in word for word in process.cmdline()):
                process.kill()
        path.unlink(missing_ok=True)


def pytest_unconfigure() -> None:
    for folder in (_FOLDER, _SOCKETS):
        shutil.rmtree(folder, ignore_errors=True)
