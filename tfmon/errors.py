"""Errors that a user can mend, and the exit codes."""

from __future__ import annotations

import contextlib
import traceback

EXIT_FINE = 0
EXIT_LANE_FAILED = 1
EXIT_UNUSABLE_HOST = 1
EXIT_USAGE = 2
EXIT_DEVICE_ABSENT = 3
EXIT_WORSE = 4
EXIT_CANNOT_TELL = 5
EXIT_BUSY = 6
EXIT_UNHEALTHY = 7
EXIT_INTERRUPTED = 130


FLAGS = {"lanes": "--lane", "settings": "--set", "slice_s": "--slice", "limit_s": "--limit", "everything": "--all"}


def flag(name: str) -> str:
    """Return the flag of an option."""
    return FLAGS.get(name, f"--{name.replace('_', '-')}")


class TfmonError(Exception):
    """A problem in one line, with a hint and the exit code of the command."""

    exit_code = EXIT_USAGE

    def __init__(
        self, message: str, hint: str = "", *, options: tuple[str, ...] = (), exit_code: int | None = None
    ) -> None:
        super().__init__(message, hint)
        if exit_code is not None:
            self.exit_code = exit_code
        self.message = message
        """The problem, and the allowed values."""
        self.hint = hint
        """What to do about the problem. May be empty."""
        self.options = options
        """The options whose flags are in the text, see `use_arguments`."""

    def use_arguments(self) -> None:
        """Replace the flags by a Python caller's arguments."""
        for name in sorted(self.options, key=len, reverse=True):  # --ray-python before --ray
            self.message = self.message.replace(flag(name), name)
            self.hint = self.hint.replace(flag(name), name)

    @property
    def line(self) -> str:
        """The message and the hint, in one line."""
        return " · ".join(filter(None, (self.message, self.hint)))

    def __str__(self) -> str:
        return self.line


def described(error: Exception) -> str:
    """Return an unexpected error in one line, with the file of its traceback."""
    import tempfile  # late: a command that succeeds does without

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


class ExperimentError(TfmonError):
    """An experiment is not possible."""

    exit_code = EXIT_LANE_FAILED


class DeviceAbsentError(TfmonError):
    """The device of a lane does not exist."""

    exit_code = EXIT_DEVICE_ABSENT


class GpusBusyError(TfmonError):
    """Others use every suitable GPU for longer than the race waits."""

    exit_code = EXIT_BUSY
