"""What goes wrong for a reason the user can act on, and the exit code that says so."""

from __future__ import annotations

EXIT_FINE = 0
EXIT_LANE_FAILED = 1
EXIT_USAGE = 2
EXIT_DEVICE_ABSENT = 3
EXIT_INTERRUPTED = 130


class TfmonError(Exception):
    """A problem told in one line, with a hint that says what to do.

    The command prints `message`, then `hint` on a line of its own, and leaves with `exit_code`; no traceback.
    """

    exit_code = EXIT_USAGE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        """What was wrong, and what is allowed."""
        self.hint = hint
        """What to do about it; may be empty."""


class UsageError(TfmonError):
    """A wrong word on the command line, in a scenario file or in a setting."""


class DeviceAbsentError(TfmonError):
    """A device that was asked for by name is not there."""

    exit_code = EXIT_DEVICE_ABSENT
