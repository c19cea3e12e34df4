"""How another machine is reached, and its agent started: by ssh, by a launcher of the settings file, or by Ray."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path

from tfmon.errors import UsageError
from tfmon.lanes.remote.reservation import Reservation

SSH = (
    *("ssh", "-T", "-a", "-x"),
    *("-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=2", "-o", "ServerAliveCountMax=2"),
    # A connection that the user's own ssh shares is used; it may have asked for a second factor. tfmon shares
    # none: one connection carries all lanes of a host.
    *("-o", "ControlMaster=no", "-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none"),
)
"""How ssh is called; all else is the user's own configuration, the checks of host keys too."""
SHELL = "sh"
"""What the launcher starts: a word that no login shell, launcher or container reads in another way."""
PYTHONS = ("python3", "python")
"""Tried in this order where the settings name none."""
_FIRST_WORD = Path(__file__).with_name("first_word.py")


@dataclass(frozen=True, slots=True)
class Host:
    """A machine that lanes may run on."""

    name: str
    """What the user calls it: a destination of ssh, such as `me@gpu3`, or the name of a table `[hosts.NAME]`."""
    run: tuple[str, ...] = ()
    """A command that runs another command there and passes stdin and stdout; empty for ssh."""
    python: str = ""
    """The interpreter there; empty for `python3`. `~` is the home there."""
    settings: str = field(default="the settings file", compare=False)
    """The file in which the table is, or would be."""
    ray: Reservation | None = None
    """What is asked of a Ray cluster; None where Ray does not reach it."""


def words_of(host: Host) -> list[str]:
    """Return the command that starts a shell on a host, whose stdin and stdout are passed.

    Raises:
        UsageError: The name would be read as an option.
    """
    if host.ray is not None:
        return [*host.ray.command("lane"), SHELL]
    if host.run:
        return [*host.run, SHELL]
    if host.name.startswith("-") or not host.name:
        raise UsageError(f"{host.name!r} is not a host", "name one as ssh knows it, such as me@gpu2")
    return [*SSH, "--", host.name, SHELL]


def script_of(host: Host, marker: str) -> bytes:
    """Return the lines that the shell reads: they replace it by Python, or say that there is none.

    Nothing is sent behind them until Python has said its first word: a shell may read ahead.
    """
    pythons = " ".join(map(_path, [host.python] if host.python else PYTHONS))
    code = shlex.quote(_FIRST_WORD.read_text("utf-8"))
    missing = shlex.quote(f'{marker} {{"missing": true}}')
    lines = (
        f"for python in {pythons}; do",
        f'command -v "$python" >/dev/null 2>&1 && exec "$python" -c {code} {shlex.quote(marker)}',
        f"done; printf '%s\\n' {missing}; exit 127",
    )
    return ("\n".join(lines) + "\n").encode()


def _path(python: str) -> str:
    """Quote a path for the shell, but for the home that it begins with."""
    if python == "~" or python.startswith("~/"):
        return '"$HOME"' + shlex.quote(python[1:])
    return shlex.quote(python)
