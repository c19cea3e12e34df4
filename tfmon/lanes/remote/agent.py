"""The agent on a host: runs lanes, and ends them without the monitor."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from tfmon.lanes.lane_process import LaneProcess, LocalProcess, wait_ended
from tfmon.lanes.launch import BOOTSTRAP, OWN_GROUP, ProcessPlan
from tfmon.lanes.remote.link_lines import CHUNK_BYTES, LineError, LineReader, Sender
from tfmon.model.codec import plain
from tfmon.model.event_base import Event
from tfmon.model.folder_views import View
from tfmon.system.threads import guarded, start_thread

SILENCE_S = 10.0
"""The monitor sends a heartbeat every second."""
LOOK_S = 1.0
FULL_S = 0.01
TERM_S, KILL_S = 0.45, 0.4
LAST_WORD_S = 0.5
FILES_GUARD = """
trap '' HUP INT QUIT TERM TSTP
read -r over && exit
sleep 4
rm -rf -- "$1"
"""
"""Removes the folder of a killed agent."""


class HostedLane(LocalProcess):
    """A lane's process, whose events go to the monitor. Thread: see `LocalProcess`."""

    def __init__(self, number: int, payload: dict[str, Any], sender: Sender) -> None:
        """Start the lane; raises OSError."""
        self.number, self._sender = number, sender
        view = payload["plan"].pop("view")
        plan = ProcessPlan(**payload["plan"], view=View(**view) if view else None)
        environment = dict(plan.environment)
        if payload["path_first"]:
            python_folder = str(Path(sys.executable).parent)
            environment.setdefault("PATH", python_folder + os.pathsep + os.environ.get("PATH", os.defpath))
        if not plan.argv:  # TensorFlow's files of a killed lane are removed with the agent's folder
            environment.setdefault("TMPDIR", str(BOOTSTRAP.parents[2]))
        if file := payload.get("file"):
            path = Path(file[0])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file[1].encode("latin-1"))
        if plan.folder and not Path(plan.folder).is_dir():
            raise NotADirectoryError(0, f"there is no folder {plan.folder}")
        script = plan.script or str(BOOTSTRAP)
        plan = replace(plan, python=sys.executable, script=script, environment=environment, guarded=True)
        super().__init__(plan, self._send)
        if payload["echo"]:
            self.output.echo = self._send_output

    def _send(self, _: LaneProcess, event: Event) -> None:
        self._sender.send(number=self.number, event=plain(event, whole=False))

    def _send_output(self, chunk: bytes) -> None:
        # A script that prints faster than the link transmits waits, as under ssh.
        while self._sender.full and not self._sender.failure:
            time.sleep(FULL_S)
        self._sender.send(number=self.number, output=chunk.decode("latin-1"))

    def read(self, fd: int) -> bool:
        """Take one chunk, but no events while the link is full: windows grow longer."""
        if fd == self.metric_fd and self._sender.full and not self.poll():
            time.sleep(FULL_S)
            return True
        return super().read(fd)

    def tell_output(self, *, last: bool = False) -> None:
        """Report new output; while the link is full, the oldest is dropped."""
        if last or not self._sender.full:
            super().tell_output(last=last)


class _Ended(BaseException):
    """Ends `serve`; signals raise it, too."""


class Agent:
    """Serves one monitor; `do` of a message names the method. Thread: its own, except `emit`."""

    def __init__(self, in_fd: int, out_fd: int) -> None:
        self._in_fd = in_fd
        self._failure = ""
        self.sender = Sender(out_fd)
        self._lines = LineReader()
        self._lanes: dict[int, HostedLane] = {}
        self._tickers: list[Any] = []
        self._held = False

    def _fail(self, reason: str) -> None:
        self._failure = reason
        os.kill(os.getpid(), signal.SIGTERM)

    def serve(self) -> str:
        """Serve the monitor; return why the connection ended."""
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, self._end_by_signal)
        try:
            self._serve()
        except _Ended as end:
            return str(end)
        finally:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            self._end_lanes()

    def _serve(self) -> NoReturn:
        heard_s = time.monotonic()
        poll = select.poll()
        poll.register(self._in_fd, select.POLLIN)
        while True:
            if poll.poll(LOOK_S * 1000):
                try:
                    chunk = os.read(self._in_fd, CHUNK_BYTES)
                    messages = self._lines.take(chunk)
                except OSError as error:
                    raise _Ended(f"the connection broke: {error.strerror}") from error
                except LineError as error:
                    raise _Ended(f"it was sent {error}") from error
                if not chunk:
                    raise _Ended("the connection was closed")
                heard_s = time.monotonic()
                for message in messages:
                    getattr(self, f"_do_{message.pop('do')}")(**message)
            elif not self._held and time.monotonic() - heard_s > SILENCE_S:
                raise _Ended(f"it received nothing for {SILENCE_S:.0f} s and ended its lanes")

    def _end_by_signal(self, number: int, _: object) -> NoReturn:
        raise _Ended(self._failure or f"it was ended by {signal.Signals(number).name}")

    def _end_lanes(self) -> None:
        lanes = [lane for lane in list(self._lanes.values()) if lane.grace_s is None]  # guards end commands
        for lane in lanes:
            lane.end_requests()
            lane.kill(signal.SIGCONT)
            lane.kill(signal.SIGTERM)
        if not wait_ended(lanes, TERM_S):
            for lane in lanes:
                lane.kill(signal.SIGKILL)
            wait_ended(lanes, KILL_S)
        for ticker in self._tickers:
            ticker.close()

    def emit(self, event: Event) -> None:
        """Send a reading. Thread: any."""
        if not self.sender.full:
            self.sender.send(event=plain(event, whole=False))

    def _do_start(self, call: int, number: int, payload: dict[str, Any]) -> None:
        try:
            lane = HostedLane(number, payload, self.sender)
        except OSError as error:
            self.sender.send(call=call, failed=error.strerror or str(error), errno=error.errno)
            return
        self._lanes = {key: other for key, other in self._lanes.items() if not other.ended} | {number: lane}
        lane.start_reading(self._fail)
        if self._held:
            lane.hold()
        self.sender.send(call=call, pid=lane.pid)

    def _do_request(self, lane: int, line: str) -> None:
        if lane in self._lanes:
            self._lanes[lane].write(line.encode())

    def _do_control(self, lane: int, method: str, arguments: list[int]) -> None:
        if lane in self._lanes:
            getattr(self._lanes[lane], method)(*arguments)

    def _do_beat(self, sent_ns: int) -> None:
        now_ns, cpu_ns = time.monotonic_ns(), time.process_time_ns()
        self.sender.send(beat=sent_ns, at_ns=now_ns, cpu_ns=cpu_ns, memory_bytes=_memory_bytes())

    def _do_hold(self) -> None:
        """Suspend every lane, and ignore silence until `_do_go_on`."""
        self._held = True
        for lane in self._lanes.values():
            lane.hold()

    def _do_go_on(self) -> None:
        self._held = False
        for lane in self._lanes.values():
            lane.go_on()

    def _do_ask(self, call: int, question: str, arguments: dict[str, Any]) -> None:
        def work() -> None:
            from tfmon.lanes.remote.questions import answer

            self.sender.send(call=call, **answer(question, arguments))

        start_thread("tfmon-answer", work, lambda reason: self.sender.send(call=call, error=reason))

    def _do_read(self, gpus: list[object]) -> None:
        start_thread("tfmon-readings", lambda: self._begin_readings(gpus), self._tell_no_readings)

    def _begin_readings(self, gpus: list[object]) -> None:
        from tfmon.model.codec import read
        from tfmon.probes.base import Gpu, Ticker
        from tfmon.probes.find_gpus import gpu_probes
        from tfmon.probes.host_probe import HostProbe

        if not self._tickers:
            host = HostProbe(lambda: {lane.lane: lane.pid for lane in self._lanes.values() if not lane.ended})
            probes = host, *gpu_probes([read(gpu, Gpu) for gpu in gpus])
            self._tickers = [Ticker(probe, self.emit) for probe in probes]
            for ticker in self._tickers:
                ticker.start()

    def _tell_no_readings(self, reason: str) -> None:
        from tfmon.model.readings import Missing
        from tfmon.probes.host_probe import unknown_host

        self.emit(unknown_host(time.monotonic_ns(), Missing(reason)))


def _memory_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return -1


def run(folder: str, marker: str, report: Callable[..., None]) -> None:
    """Serve the monitor, and end the process."""
    in_fd, out_fd = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    guard = _guard_files(folder)
    report(marker, folder=folder, pid=os.getpid(), python=sys.executable)
    for fd in (0, 1, 2):  # a library's output must not reach the monitor
        os.dup2(nothing, fd)
    agent = Agent(in_fd, out_fd)
    try:
        send = agent.sender.send
        guarded("tfmon-agent", lambda: send(last=agent.serve()), lambda reason: send(last=reason))
    finally:
        agent.sender.flush(LAST_WORD_S)
        shutil.rmtree(folder, ignore_errors=True)
        if guard is not None:
            guard.kill()
        # Threads may hang in a driver.
        os._exit(0)


def _guard_files(folder: str) -> subprocess.Popen[bytes] | None:
    with contextlib.suppress(OSError):
        return subprocess.Popen(
            ["/bin/sh", "-c", FILES_GUARD, "tfmon-guard", folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            **OWN_GROUP,
        )
    return None
