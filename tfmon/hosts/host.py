"""How another machine is reached: by ssh, by a launcher of the settings file, or by Ray."""

from __future__ import annotations

from dataclasses import dataclass, field

from tfmon.hosts.reservation import Reservation


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
