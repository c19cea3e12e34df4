"""What is known of hosts without a race: each is connected to, asked, and left again."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfmon.errors import TfmonError
from tfmon.lanes.remote.connection import Connection, working_folder
from tfmon.lanes.remote.host import Host
from tfmon.lanes.remote.questions import read_doctor_answer, read_machine_answer
from tfmon.model.events import Event, LinkMeasured
from tfmon.model.race import Machine

if TYPE_CHECKING:
    from tfmon.doctor.report import Report

AT_ONCE = 16
DOCTOR_S = 120.0
"""How long the doctor may take there; what it tries has limits of its own, together below this."""


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What is known of one host."""

    host: Host
    error: str = ""
    """Why it cannot be used, in one line; empty if it can."""
    hint: str = ""
    """What to do about that; may be empty."""
    machine: Machine = field(default_factory=Machine)
    python: str = ""
    """The path of the Python there."""
    link: LinkMeasured | None = None


def survey(hosts: Sequence[Host]) -> list[Surveyed]:
    """Return the surveys of several hosts, taken at once; a failed one does not delay the others.

    Thread: any; takes a second or two, and as long as the launcher of a host tries to reach it.
    """
    told: list[list[Event]] = [[] for _ in hosts]
    connections = [Connection(host, events.append) for host, events in zip(hosts, told, strict=True)]
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="tfmon-survey") as pool:
        try:
            return list(pool.map(_survey, connections, told))
        except BaseException:  # Ctrl+C: nobody waits for a host any more
            for connection in connections:
                connection.close()
            raise


def _survey(connection: Connection, told: Sequence[Event]) -> Surveyed:
    host = connection.host
    try:
        connection.open()
        machine = read_machine_answer(connection.ask("gpus"))
    except TfmonError as error:
        return Surveyed(host, error=error.message, hint=error.hint)
    finally:
        connection.close()
    link = next((event for event in reversed(told) if isinstance(event, LinkMeasured)), None)
    return Surveyed(host, machine=machine, python=connection.python, link=link)


def examine(host: Host, python: str = "", *, imports: bool = True) -> Report:
    """Return the doctor's report of a host.

    Args:
        host: The host.
        python: The interpreter there; by default the one that would train.
        imports: Import TensorFlow, too.

    Raises:
        TfmonError: the host cannot be used.
    """
    connection = Connection(host, lambda _: None)
    try:
        connection.open()
        words = {"imports": imports, "folder": working_folder(), "python": python}
        return read_doctor_answer(connection.ask("doctor", DOCTOR_S, **words))
    finally:
        connection.close()
