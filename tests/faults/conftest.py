"""Groups of faulty children with a watchdog, and the whole program in a terminal with such children."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from support.lanes import RacingGroup
from support.waiting import PATIENCE_S, wait_for

from tfmon.lanes import lane_process
from tfmon.lanes.watchdog import Watchdog

FAULTY = Path(__file__).parent / "children" / "faulty.py"
STALL_S = 0.6
"""The shortest silence that counts as a stall in these tests."""
FAULT_AT = 100
"""The step at which the fault comes."""


class FaultyGroup(RacingGroup):
    """A group whose second lane, the one with prefetch=auto, has a fault; and a watchdog."""

    def __init__(self, logs: Path) -> None:
        super().__init__(logs, FAULTY)
        note_gap = self.suspension.record
        self.watchdog = Watchdog(self.session.snapshot, self, note_gap, slice_s=0.1, least_s=STALL_S)
        self.watchdog.start(self.thread_failed)

    def race_with(self, fault: str, *, mode: str, **environment: str) -> None:
        given = {"FAULT": fault, **environment}
        plan = self.plan("cpu", "gpu:0", mode=mode, environment={"gpu:0": given, "cpu": {"FAULTY": "none"}})
        self.begin(plan)

    @property
    def sound(self):
        return self.lane("cpu")

    @property
    def faulty(self):
        return self.lane("gpu:0")

    def wait_for_stall(self, at_step: int = FAULT_AT) -> None:
        """Wait until the faulty lane hangs by its fault: a busy machine may silence any lane for a while."""
        wait_for(
            lambda: self.faulty.heartbeat.stalled_since_ns is not None and self.faulty.totals.steps >= at_step,
            what="a stall",
        )


@pytest.fixture
def faulty_group(tmp_path, monkeypatch) -> Iterator[FaultyGroup]:
    # A busy machine writes the stacks later, and with longer breaks.
    monkeypatch.setattr(lane_process, "STACK_PATIENCE_S", PATIENCE_S)
    monkeypatch.setattr(lane_process, "STACK_POLL_S", 0.5)
    group = FaultyGroup(tmp_path)
    yield group
    group.watchdog.close()
    group.stop()


@pytest.fixture
def start() -> Iterator[Callable[..., object]]:
    """Start tfmon with fake lanes in a terminal, with variables of its environment."""
    pytest.importorskip("pexpect")
    from support.terminal import FAKE_TFMON, Terminal

    def run(*arguments: str, program: Sequence[str] = (str(FAKE_TFMON),), **environment: str) -> Terminal:
        root = str(Path(__file__).parents[2])
        given = {"PYTHONPATH": root, "TFMON_TEST_CHILD": str(FAULTY), "FAULTY": "auto", **environment}
        return terminals.enter_context(contextlib.closing(Terminal(*arguments, program=program, **given)))

    with contextlib.ExitStack() as terminals:
        yield run
