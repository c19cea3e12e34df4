"""The doctor beside a race: this machine and those of its hosts, with what the race knows of other programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tfmon.api.hosts import Hosts
from tfmon.doctor.facts import OthersLoad, Running
from tfmon.doctor.report import run_checks
from tfmon.errors import TfmonError
from tfmon.lanes.remote.connection import working_folder
from tfmon.lanes.remote.questions import read_doctor_answer
from tfmon.model.codec import plain
from tfmon.model.hosts import HostState
from tfmon.model.readings import Reading, known
from tfmon.model.session import Snapshot
from tfmon.reports.checks import to_text


def examine(snapshot: Snapshot, python: Path, processes: Iterable[int], connected: Hosts | None) -> str:
    """Return the doctor's report as text; TensorFlow is not loaded beside the lanes that are measured.

    With hosts, each machine has a report of its own, this one only if a lane trains on it.

    Args:
        snapshot: The race.
        python: The interpreter that trains on this machine.
        processes: Those of the lanes on this machine.
        connected: The connections to hosts; None without any.
    Thread: any; blocks for about a second.
    """
    hosts = list(dict.fromkeys(lane.spec.host for lane in snapshot.lanes)) or [""]

    def one(host: str) -> str:
        others = others_load(snapshot.hosts[host])
        if not host or connected is None:
            return to_text(run_checks(python, imports=False, running=Running(tuple(processes), others)))
        pids = [lane.pid for lane in snapshot.lanes if lane.spec.host == host and lane.pid is not None]
        words: dict[str, Any] = {"imports": False, "folder": working_folder(), "pids": pids}
        try:
            return to_text(read_doctor_answer(connected.place(host).ask("doctor", **words, others=plain(others))))
        except TfmonError as error:
            return error.line

    if hosts == [""]:
        return one("")
    with ThreadPoolExecutor(len(hosts), thread_name_prefix="tfmon-doctor") as pool:
        return _together(hosts, list(pool.map(one, hosts)))


def _together(hosts: Sequence[str], reports: Sequence[str]) -> str:
    named = zip(hosts, reports, strict=True)
    return "\n\n".join(f"On {host or 'this machine'}:\n\n{report}" for host, report in named)


def others_load(machine: HostState) -> OthersLoad:
    """Return the load by others on a machine over the samples that the screen shows, too.

    Units: cores, and a share of the CPU time of all cores; the samples have both in percent of one core.
    """

    def mean(readings: list[Reading]) -> float | None:
        values = [value for one in readings if (value := known(one)) is not None]
        return sum(values) / len(values) / 100 if values else None

    samples = machine.history
    stolen = mean([one.steal_pct for one in samples])
    cores = machine.machine.cores or 1
    source = f"mean of {len(samples)} samples of this race, one a second"
    return OthersLoad(mean([one.others_cpu_pct for one in samples]), stolen and stolen / cores, source)
