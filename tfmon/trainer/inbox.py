"""The child's end of the knob pipe."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from tfmon.model.wire import Request, Stop, WireError, decode_request
from tfmon.trainer.mailbox import leave
from tfmon.trainer.orphan import end_group

GRACE_S = 1.0
"""How long the loop may take to end by itself after Stop; a trace or an import cannot be interrupted."""


class Inbox(threading.Thread):
    """Reads requests until the pipe ends, and ends the process then: a lane does not outlive its monitor."""

    def __init__(
        self,
        fd: int,
        deliver: Callable[[Request], None],
        end: Callable[[int], None] | None = None,
    ) -> None:
        """Read `fd`; `end` ends the process, with an exit code, and what the process started is its own affair."""
        super().__init__(name="tfmon-inbox", daemon=True)
        self._fd = fd
        self._deliver = deliver
        self._leave = end or leave
        self._ends_group = end is None

    def run(self) -> None:
        """Deliver every request; an unreadable line is passed over, for a newer monitor may say more."""
        rest = b""
        while chunk := os.read(self._fd, 65_536):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._handle(line)
        if self._ends_group:
            end_group()
        self._leave(0)

    def _handle(self, line: bytes) -> None:
        try:
            request = decode_request(line)
        except WireError:
            return
        self._deliver(request)
        if isinstance(request, Stop):
            patience = threading.Timer(GRACE_S, self._leave, (0,))
            patience.daemon = True
            patience.start()
