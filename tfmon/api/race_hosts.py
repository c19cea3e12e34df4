"""The other machines of a race."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tfmon.api.settings import find_host
from tfmon.catalog import ScenarioInfo
from tfmon.doctor.diagnosis import Diagnosis
from tfmon.doctor.gather_facts import gather_facts
from tfmon.errors import TfmonError
from tfmon.lanes.remote.connection import Connection, working_folder
from tfmon.lanes.remote.questions import read_differing_answer, read_doctor_answer, read_look_answer, read_part
from tfmon.lanes.remote.remote_host import Host
from tfmon.lanes.remote.trouble import HostError, other_python
from tfmon.model.codec import plain
from tfmon.model.events import Event
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.host_states import HostState
from tfmon.model.race import Machine
from tfmon.model.readings import Reading, known
from tfmon.model.session import Session, Snapshot
from tfmon.probes.base import Gpu
from tfmon.probes.find_gpus import GpuSearch
from tfmon.probes.surroundings import OthersLoad
from tfmon.reports.findings import to_text


class Hosts:
    """The connections of one run. Thread: any; some methods block."""

    def __init__(self, session: Session, connect: Callable[[Host, Callable[[Event], None]], Connection]) -> None:
        self._session = session
        self._connect = connect
        self._connections: dict[str, Connection] = {}
        self._searches: dict[str, GpuSearch] = {}
        self._differing: dict[str, tuple[str, ...]] = {}
        self._read: set[str] = set()

    def connect(self, names: Sequence[str], info: ScenarioInfo, find: Callable[[str], Host] = find_host) -> None:
        """Connect to the missing hosts at the same time; raises TfmonError."""
        for name in names:
            if name not in self._connections:
                self._connections[name] = self._connect(find(name), self._session.accept)
        problems: list[TfmonError] = []
        with ThreadPoolExecutor(max(1, len(names)), thread_name_prefix="tfmon-connect") as pool:
            waiting = [pool.submit(self._prepare, self._connections[name], info) for name in names]
            try:
                for one in waiting:
                    error = one.exception()
                    if isinstance(error, TfmonError):
                        problems.append(error)
                    elif error is not None:
                        raise error
            except BaseException:
                self.close()  # or the threads would wait for their hosts
                raise
        lines = [*dict.fromkeys(problem.line for problem in problems)]
        if len(lines) == 1:
            raise problems[0]
        if lines:
            raise TfmonError("\ntfmon: ".join(lines), exit_code=max(problem.exit_code for problem in problems))

    def search(self, host: str) -> GpuSearch:
        """Return the GPUs of a host."""
        return self._searches[host]

    def look(self, host: str, gpus: Sequence[Gpu]) -> Sequence[GpuSample]:
        """Return a sample of each GPU; raises TfmonError."""
        result = self._connections[host].ask("look", gpus=plain(tuple(gpus)))
        return read_look_answer(result, host)

    def place(self, host: str) -> Connection:
        """Return the connection to a host."""
        return self._connections[host]

    def differing_files(self) -> tuple[str, ...]:
        """Return the command's files that differ."""
        differing = self._differing.items()
        return tuple(f"{file} has another content on {host}" for host, files in differing for file in files)

    def begin_readings(self, hosts: Sequence[str]) -> None:
        """Start readings of the GPUs."""
        for name in hosts:
            if name not in self._read:
                self._read.add(name)
                self._connections[name].begin_readings(self._searches[name].sampled)

    def close(self) -> None:
        """End all agents."""
        connections = list(self._connections.values())
        if connections:
            with ThreadPoolExecutor(len(connections), thread_name_prefix="tfmon-close") as pool:
                list(pool.map(Connection.close, connections))

    def _prepare(self, connection: Connection, info: ScenarioInfo) -> None:
        connection.ensure()
        name = connection.host.name
        if name not in self._searches:
            result = connection.ask("gpus", python="")
            self._searches[name] = read_part(result, "search", GpuSearch)
            self._session.set_machine(read_part(result, "machine", Machine), name)
        if not info.command:
            if not self._session.snapshot().hosts[name].machine.tensorflow:
                message = f"{connection.greeting.python} on {name} has no TensorFlow"
                raise HostError(message, other_python(connection.host))
            return
        sought = command_paths(info.command)
        result = connection.ask("paths", **sought, path_first=bool(connection.host.python))
        self._differing[name] = read_differing_answer(result, sought["folder"])
        if missing := read_part(result, "missing", tuple[str, ...]):
            names = " and ".join(missing)
            raise TfmonError(
                f"{names} is not there on {name}" if len(missing) == 1 else f"{names} are not there on {name}",
                "a command needs the same paths on every machine that it runs on",
            )


def command_paths(command: Sequence[str]) -> dict[str, Any]:
    """Return the paths of a command."""
    program, *arguments = command
    files = [word for word in arguments if word and not word.startswith("-") and Path(word).exists()]
    return {"folder": working_folder(), "programs": [program], "paths": list(dict.fromkeys(files))}


def examine(snapshot: Snapshot, python: Path, processes: Iterable[int], connected: Hosts | None) -> str:
    """Return the doctor's report. Thread: any; blocks for about a second."""
    hosts = list(dict.fromkeys(lane.spec.host for lane in snapshot.lanes)) or [""]

    def one(host: str) -> str:
        others = _others_load(snapshot.hosts[host])
        if not host or connected is None:
            facts = gather_facts(python, imports=False, others=others, own_pids=tuple(processes))
            return to_text(Diagnosis(facts))
        lanes = (lane for lane in snapshot.lanes if lane.spec.host == host)
        pids = [pid for lane in lanes if (pid := lane.process.pid) is not None]
        options: dict[str, Any] = {"imports": False, "folder": working_folder(), "pids": pids}
        try:
            return to_text(
                read_doctor_answer(connected.place(host).ask("doctor", **options, others=plain(others)))
            )
        except TfmonError as error:
            return error.line

    if hosts == [""]:
        return one("")
    with ThreadPoolExecutor(len(hosts), thread_name_prefix="tfmon-doctor") as pool:
        named = zip(hosts, pool.map(one, hosts), strict=True)
        return "\n\n".join(f"On {host or 'this machine'}:\n\n{report}" for host, report in named)


def _others_load(machine: HostState) -> OthersLoad:
    def mean(readings: list[Reading]) -> float | None:
        values = [value for reading in readings if (value := known(reading)) is not None]
        return sum(values) / len(values) / 100 if values else None

    samples = machine.history
    stolen = mean([sample.steal_pct for sample in samples])
    cores = machine.machine.cores or 1
    source = f"mean of {len(samples)} samples of this race, one a second"
    return OthersLoad(mean([sample.others_cpu_pct for sample in samples]), stolen and stolen / cores, source)
