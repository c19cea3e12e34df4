"""The processes of the lanes, one each, and a spare one: started, signalled and ended."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfmon.lanes.command import ASK_S, TERM_S, Command
from tfmon.lanes.plan import LanePlan, RacePlan
from tfmon.lanes.process import LaneProcess, ProcessLauncher, Sink
from tfmon.lanes.reader import PipeReader
from tfmon.lanes.spare import Spare, settled
from tfmon.model.events import Event
from tfmon.model.lane_events import Hello, StackReported
from tfmon.model.wire import Assign, Request, Stop

KILL_S = 0.7
"""How long a child gets after SIGKILL, with what it gets after Stop and SIGTERM 2.6 s: so quitting is quick."""


@dataclass(frozen=True, slots=True)
class Started:
    """A child that is a lane now, and does not know yet which."""

    process: LaneProcess
    fresh: bool
    """It was made for this lane, so nobody listens to it yet."""
    hello: Hello | None
    """What a spare said before it was a lane."""
    assign: Assign
    """What to tell it."""


class Children:
    """The children of one race after another.

    Thread: any; all but `end` and `close` want the lock to be held.
    """

    def __init__(self, script: Path, lock: threading.RLock, *, keep_spare: bool) -> None:
        self._script = script
        self._lock = lock
        self._pump = PipeReader()
        self._pump.start()
        self._starter = ProcessLauncher()
        self.spare = Spare(self._starter, self._pump, script, lock) if keep_spare else None
        """The child that the next lane may be; None to start each one anew."""
        self._children: dict[str, LaneProcess] = {}
        self._ending: list[LaneProcess] = []

    def __contains__(self, lane: str) -> bool:
        return lane in self._children

    def find(self, lane: str) -> LaneProcess | None:
        """Return a lane's child, unless it has none or the child has ended."""
        child = self._children.get(lane)
        return child if child is not None and not child.ended else None

    def is_lane(self, lane: str, process: LaneProcess) -> bool:
        """Return whether a process is that lane, and was not replaced."""
        return self._children.get(lane) is process

    def all(self) -> list[LaneProcess]:
        """Return the lanes' children, those that ended among them."""
        return list(self._children.values())

    # ------------------------------------------------------------ beginning and end

    def start(self, lane: LanePlan, plan: RacePlan, hear: Sink) -> Started:
        """Start a lane's child, or take the spare. What it says is read from `listen` on.

        Errors: OSError.
        """
        command = Command(plan.command, lane.spec.kind, lane.settings) if plan.command else None
        taken = None
        if self.spare is not None and command is None:
            taken = self.spare.take(lane, plan.python, hear)
        child = taken or self._starter(
            LaneProcess, lane.spec.name, plan.python, lane.environment, hear, self._script, command
        )
        self._children[lane.spec.name] = child
        assign = Assign(
            scenario=str(plan.scenario),
            device=lane.spec.kind,
            settings=lane.settings,
            steps=plan.steps,
            environment=settled(lane.environment) if taken is not None else {},
        )
        hello = self.spare.hello if taken is not None and self.spare is not None else None
        return Started(child, taken is None, hello, assign)

    def listen(self, started: Started) -> None:
        """Tell a child what lane it is, and read what it says from now on."""
        started.process.send(started.assign)
        if started.fresh:
            self._pump.watch(started.process)

    def take(self, lanes: Sequence[str] | None = None) -> list[LaneProcess]:
        """Take children away from lanes, or from all: what they say from now on is passed over."""
        names = list(self._children) if lanes is None else [name for name in lanes if name in self._children]
        taken = [self._children.pop(name) for name in names]
        for child in taken:
            child.mute()
        self._ending = [child for child in self._ending if not child.ended] + taken
        return taken

    def end(self, children: Sequence[LaneProcess]) -> None:
        """Ask, then insist: Stop, SIGTERM, SIGKILL. Returns when they are gone, without the lock."""
        for child in children:
            child.expect_end()
            child.thaw()
            child.send(Stop())
        if self._pump.wait_ended(children, ASK_S):
            return
        for number, patience_s in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, KILL_S)):
            for child in children:
                if not child.ended:
                    child.kill(number)
            if self._pump.wait_ended(children, patience_s):
                return

    def close(self) -> None:
        """End every child there is, also those that are ending and the spare."""
        with self._lock:
            children = [*self._children.values(), *self._ending]
            spare = self.spare.dismiss() if self.spare is not None else None
        self.end([*children, spare] if spare is not None else children)
        self._pump.close()
        self._starter.close()

    # ------------------------------------------------------------ while they run

    def send(self, lane: str, request: Request) -> None:
        """Send a request to a lane, if it has a child."""
        if lane in self._children:
            self._children[lane].send(request)

    def freeze(self, lane: str) -> None:
        """Stop a lane's process and all its threads."""
        if lane in self._children:
            self._children[lane].freeze()

    def thaw(self, lane: str) -> None:
        """Let a frozen lane's process go on."""
        if lane in self._children:
            self._children[lane].thaw()

    def pids(self) -> dict[str, int]:
        """Return the process that leads each lane that runs."""
        return {name: child.pid for name, child in self._children.items() if not child.ended}


# ---------------- where a child stands: it writes the stacks of its threads on a signal, even while it hangs


STACK_SIGNAL = signal.SIGUSR1
PATIENCE_S = 15.0
"""How long an answer may take: a lane that is frozen answers in its next turn."""
LOOK_EVERY_S = 0.05
_STACK_LINE = re.compile(r'(Current thread|Thread) 0x|  File "|  <|  \.\.\.|Stack \(most recent')
"""What `faulthandler` writes."""


def ask(child: LaneProcess, sink: Callable[[Event], object]) -> None:
    """Ask a child that `reports_stack`, and pass on its answer; nothing if it gives none.

    Thread: one of its own.
    """
    before = child.printed_bytes
    child.signal_leader(STACK_SIGNAL)
    deadline = time.monotonic() + PATIENCE_S
    lines: tuple[str, ...] = ()
    while time.monotonic() < deadline and not child.ended:
        time.sleep(LOOK_EVERY_S)
        found = stack_lines(child.printed_since(before))
        if found and found == lines:
            sink(StackReported(lane=child.lane, at_ns=time.monotonic_ns(), lines=lines))
            return
        lines = found


def stack_lines(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the lines of a stack among others."""
    return tuple(line for line in lines if _STACK_LINE.match(line))
