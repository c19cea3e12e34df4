"""A lane's process on a host, as the agent has it: its bytes go to the monitor undecoded."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tfmon.lanes.launch import BOOTSTRAP, Child, Command, Launched, launch
from tfmon.lanes.remote.frames import ENDED, Kind, Outbox
from tfmon.model.views import View

KEPT_OUTPUT_BYTES = 65_536
"""Limit of output that waits for the link; older output is dropped, so that the process never blocks."""
OUTPUT_EVERY_S = 0.05
"""Output is collected for this time: a process that prints much costs few frames."""


class HostedLane(Child):
    """A child of the agent. Thread: the agent's loop."""

    def __init__(
        self, number: int, name: str, launched: Launched, outbox: Outbox, *, own_command: bool = False
    ) -> None:
        """Take over a process; a user's own command is ended by its guard, which gives it time to save."""
        super().__init__(launched, lambda chunk: outbox.put(Kind.METRICS, number, chunk), self._take_output)
        self.number, self.name, self.own_command = number, name, own_command
        self._outbox = outbox
        self._suspended = False
        self._output = bytearray()
        self._dropped = 0
        self._output_sent_s = 0.0
        self.ended = False

    def signal(self, number: int, alone: int) -> None:
        """Signal the group of the child, or the child alone, and remember whether it is suspended."""
        if number == signal.SIGSTOP:
            self._suspended = True
        elif number == signal.SIGCONT:
            self._suspended = False
        self.kill(number, alone=bool(alone))

    def hold(self) -> None:
        """Suspend the child until `go_on`, which leaves it as it was."""
        self.kill(signal.SIGSTOP)

    def go_on(self) -> None:
        """End `hold`."""
        if not self._suspended:
            self.kill(signal.SIGCONT)

    def end(self) -> None:
        """Make the child end soon: its monitor is gone."""
        self._end_requests()
        self.kill(signal.SIGCONT)
        self.kill(signal.SIGTERM)

    def _take_output(self, chunk: bytes) -> None:
        self._output += chunk
        too_many = len(self._output) - KEPT_OUTPUT_BYTES
        if too_many > 0:
            del self._output[:too_many]
            self._dropped += too_many

    @property
    def output_due_s(self) -> float | None:
        """When the output is due to be passed on, or `None` without output."""
        return self._output_sent_s + OUTPUT_EVERY_S if self._output else None

    def pass_output(self) -> None:
        """Pass on the output of the child."""
        if self._dropped:
            self._outbox.put(Kind.DROPPED, self.number, str(self._dropped).encode())
        if self._output:
            self._outbox.put(Kind.OUTPUT, self.number, bytes(self._output))
        self._output.clear()
        self._dropped, self._output_sent_s = 0, time.monotonic()

    def reap(self) -> None:
        """Reap an ended child, and pass on how it ended."""
        self.ended, at_ns = True, time.monotonic_ns()
        code = self._reap()
        self.pass_output()
        self._outbox.put(Kind.ENDED, self.number, ENDED.pack(code, at_ns))


def start_lane(number: int, payload: dict[str, Any], outbox: Outbox) -> HostedLane:
    """Start the process of a lane; raises OSError if it does not start."""
    environment = dict(payload["environment"])
    if payload["path_first"]:
        own = str(Path(sys.executable).parent)
        environment.setdefault("PATH", own + os.pathsep + os.environ.get("PATH", os.defpath))
    script = Path(payload["script"]) if payload["script"] else BOOTSTRAP
    command = None
    if payload["command"]:
        view = payload["command"].pop("view")
        command = Command(**payload["command"], view=View(**view) if view else None)
    folder = payload["folder"]
    if folder and not Path(folder).is_dir():
        raise NotADirectoryError(0, f"there is no folder {folder}")
    launched = launch(Path(sys.executable), environment, script, command, folder=folder, guarded=True)
    return HostedLane(number, payload["name"], launched, outbox, own_command=command is not None)
