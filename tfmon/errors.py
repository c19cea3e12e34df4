"""Errors that the user can do something about, and the exit codes."""

from __future__ import annotations

import contextlib
import tempfile
import traceback

EXIT_FINE = 0
EXIT_LANE_FAILED = 1
EXIT_UNUSABLE_HOST = 1
"""Of `tfmon hosts` alone."""
EXIT_USAGE = 2
EXIT_DEVICE_ABSENT = 3
EXIT_WORSE = 4
EXIT_CANNOT_TELL = 5
EXIT_BUSY = 6
EXIT_UNHEALTHY = 7
EXIT_INTERRUPTED = 130


class TfmonError(Exception):
    """A problem in one line, with a hint that says what to do about it; a command leaves with `exit_code`."""

    exit_code = EXIT_USAGE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        """What is wrong, and what is allowed."""
        self.hint = hint
        """What to do about it; may be empty."""

    @property
    def line(self) -> str:
        """The message and the hint, where there is one line for both."""
        return " · ".join(filter(None, (self.message, self.hint)))

    def __str__(self) -> str:
        return self.line


def described(error: Exception) -> str:
    """Return an unexpected error in one line, with the file to which its traceback was written."""
    line = " ".join(f"{type(error).__name__}: {error}".split())
    with (
        contextlib.suppress(OSError),
        tempfile.NamedTemporaryFile("w", prefix="tfmon-error-", suffix=".txt", delete=False) as file,
    ):
        file.write("".join(traceback.format_exception(error)))
        line += f" (traceback: {file.name})"
    return line


class UsageError(TfmonError):
    """A mistake on the command line, in a scenario file or in a setting."""


class DeviceAbsentError(TfmonError):
    """A device that a lane names is not there."""

    exit_code = EXIT_DEVICE_ABSENT


class GpusBusyError(TfmonError):
    """Others use every GPU that a race could have, for longer than it was to wait."""

    exit_code = EXIT_BUSY
