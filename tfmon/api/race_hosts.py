"""The other machines of a race."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from tfmon.api.settings import find_host
from tfmon.doctor.diagnosis import Diagnosis
from tfmon.doctor.facts import gather_facts
from tfmon.errors import TfmonError
from tfmon.lanes.plan import digest
from tfmon.lanes.remote import questions
from tfmon.lanes.remote.connection import Connection, working_folder
from tfmon.lanes.remote.remote_host import Host
from tfmon.lanes.remote.trouble import HostError, other_python
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.race import ScenarioInfo
from tfmon.model.session import Session, Snapshot
from tfmon.probes.base import Gpu
from tfmon.probes.find_gpus import GpuSearch
from tfmon.reports.findings import to_text


class Hosts:
    """The connections of one run. Thread: any. Some methods block."""

    def __init__(self, session: Session, connections: dict[str, Connection]) -> None:
        self._session = session
        self.connections = connections
        self.searches: dict[str, GpuSearch] = {}
        self.differing: dict[str, list[str]] = {}
        """Lines about the command's differing files, by host."""
        self._read: set[str] = set()

    def connect(self, names: Sequence[str], info: ScenarioInfo, find: Callable[[str], Host] = find_host) -> None:
        """Connect to the missing hosts at the same time; raises TfmonError."""
        for name in names:
            if name not in self.connections:
                self.connections[name] = Connection(find(name), self._session.accept)
        problems: list[TfmonError] = []
        with ThreadPoolExecutor(max(1, len(names)), thread_name_prefix="tfmon-connect") as pool:
            waiting = [pool.submit(self._prepare, self.connections[name], info) for name in names]
            try:
                for future in waiting:
                    error = future.exception()
                    if isinstance(error, TfmonError):
                        problems.append(error)
                    elif error is not None:
                        raise error
            except BaseException:
                self.close()  # otherwise the threads wait for the hosts
                raise
        lines = [*dict.fromkeys(problem.line for problem in problems)]
        if len(lines) == 1:
            raise problems[0]
        if lines:
            raise TfmonError("\ntfmon: ".join(lines), exit_code=max(problem.exit_code for problem in problems))

    def look(self, host: str, gpus: Sequence[Gpu]) -> Sequence[GpuSample]:
        """Return a sample of each GPU; raises TfmonError."""
        samples = self.connections[host].ask(questions.look, tuple(gpus))
        return tuple(replace(sample, host=host) for sample in samples)

    def begin_readings(self, hosts: Sequence[str]) -> None:
        """Start readings of the GPUs."""
        for name in hosts:
            if name not in self._read:
                self._read.add(name)
                self.connections[name].begin_readings(self.searches[name].sampled)

    def close(self) -> None:
        """End all agents."""
        connections = list(self.connections.values())
        if connections:
            with ThreadPoolExecutor(len(connections), thread_name_prefix="tfmon-close") as pool:
                list(pool.map(Connection.close, connections))

    def _prepare(self, connection: Connection, info: ScenarioInfo) -> None:
        connection.ensure()
        name = connection.host.name
        if name not in self.searches:
            self.searches[name], machine = connection.ask(questions.gpus)
            self._session.set_machine(machine, name)
        if not info.command:
            if not self._session.snapshot().hosts[name].machine.tensorflow:
                message = f"{connection.python} on {name} has no TensorFlow"
                raise HostError(message, other_python(connection.host))
            return
        folder, (program, *arguments) = working_folder(), info.command
        files = (word for word in arguments if word and not word.startswith("-") and Path(word).exists())
        missing, digests = connection.ask(
            questions.paths, tuple(dict.fromkeys(files)), (program,), folder, bool(connection.host.python)
        )
        differs = (file for file, there in digests.items() if there and there != digest(Path(folder, file)))
        self.differing[name] = [f"{file} has another content on {name}" for file in differs]
        if missing:
            text = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not there on {name}"
            raise TfmonError(text, "a command needs the same paths on every machine that it runs on")


def examine(snapshot: Snapshot, python: Path, connected: Hosts | None) -> str:
    """Return the doctor's report. Thread: any. Blocks for about a second."""
    hosts = list(dict.fromkeys(lane.spec.host for lane in snapshot.lanes)) or [""]

    def report_on(host: str) -> str:
        samples, lanes = snapshot.hosts[host].history, (lane for lane in snapshot.lanes if lane.spec.host == host)
        pids = tuple(pid for lane in lanes if (pid := lane.process.pid) is not None)
        if not host or connected is None:
            return to_text(Diagnosis(gather_facts(python, imports=False, samples=samples, own_pids=pids)))
        try:
            facts = connected.connections[host].ask(
                questions.doctor, imports=False, folder=working_folder(), own_pids=pids, samples=samples
            )
        except TfmonError as error:
            return error.line
        return to_text(Diagnosis(facts))

    if hosts == [""]:
        return report_on("")
    with ThreadPoolExecutor(len(hosts), thread_name_prefix="tfmon-doctor") as pool:
        reports = zip(hosts, pool.map(report_on, hosts), strict=True)
        return "\n\n".join(f"On {host or 'this machine'}:\n\n{report}" for host, report in reports)
