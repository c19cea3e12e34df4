"""The agent on a host: starts lanes, relays their bytes, and ends them without the monitor. Imports little."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfmon.lanes.launch import OWN_GROUP
from tfmon.lanes.remote.frames import CHUNK_BYTES, PONG, STAMP, Frame, FrameError, FrameReader, Kind, Outbox
from tfmon.lanes.remote.hosted import HostedLane, start_lane
from tfmon.model.threads import start_thread

SILENCE_S = 10.0
"""The lanes are ended after this silence of the monitor, which sends something every second."""
WAITING_BYTES = 262_144
"""Above this waiting amount no metric pipe is read: windows then grow longer, but none is lost."""
TERM_S, KILL_S = 0.45, 0.4
"""Time for lanes to end after SIGTERM and SIGKILL, when the monitor is gone."""
FILES_GUARD = """
trap '' HUP INT QUIT TERM TSTP
read -r over && exit
sleep 4
rm -rf -- "$1"
"""
"""Removes the folder of a killed agent; the guards of its lanes have ended them by then."""


class Agent:
    """Serves one monitor. Thread: its own, except `emit`."""

    def __init__(self, folder: Path, in_fd: int, out_fd: int) -> None:
        self._folder = folder
        self._in_fd, self._out_fd = in_fd, out_fd
        self._outbox = Outbox()
        self._frames = FrameReader()
        self._lanes: dict[int, HostedLane] = {}
        self._readings: Any = None
        self._heard_s = time.monotonic()
        self._held = False
        self._over: str | None = None
        self._selector = selectors.DefaultSelector()
        self._flowing = True
        self._writing = False
        for fd in (in_fd, out_fd):
            os.set_blocking(fd, False)
        self._selector.register(in_fd, selectors.EVENT_READ, self._hear)
        self._selector.register(self._outbox.wake_fd, selectors.EVENT_READ, self._outbox.collect)
        self._answers: dict[int, Callable[[Frame], None]] = {
            Kind.START: self._start,
            Kind.REQUEST: lambda frame: self._with_lane(frame, lambda lane: lane.write(frame.payload)),
            Kind.SIGNAL: lambda frame: self._with_lane(frame, lambda lane: lane.signal(*frame.payload)),
            Kind.PING: self._ping,
            Kind.HOLD: self._hold,
            Kind.GO_ON: self._go_on,
            Kind.ASK: self._ask,
            Kind.READ: self._read_machine,
            Kind.FILE: self._keep,
        }

    def serve(self) -> str:
        """Serve until the monitor is gone, and return why this ends. All lanes have ended then."""
        woken, waker = os.pipe()
        for fd in (woken, waker):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, self._end_by_signal)
        self._selector.register(woken, selectors.EVENT_READ, lambda: self._drain(woken))
        try:
            while self._over is None:
                self._write()
                flowing = self._outbox.waiting_bytes < WAITING_BYTES
                if flowing != self._flowing:
                    self._flowing = flowing
                    for lane in self._lanes.values():
                        if lane.metric_fd in lane.open:
                            self._watch(lane, lane.metric_fd, on=flowing)
                due = [1.0 + time.monotonic()]
                due += [at for lane in self._lanes.values() if (at := lane.output_due_s) is not None]
                for key, _ in self._selector.select(max(0.0, min(due) - time.monotonic())):
                    key.data()
                self._look_after_lanes()
                if not self._held and time.monotonic() - self._heard_s > SILENCE_S:
                    self._over = f"it heard nothing for {SILENCE_S:.0f} s and ended its lanes"
        finally:
            self._end_lanes()
        return self._over

    def last_word(self, reason: str) -> None:
        """Inform the monitor why this ends, if it reads that at once."""
        self._outbox.put(Kind.LAST_WORD, 0, reason.encode())
        self._outbox.collect()
        with contextlib.suppress(OSError):
            self._outbox.write(self._out_fd)

    def emit(self, line: bytes) -> None:
        """Send a reading, unless much waits for the link. Thread: any."""
        if self._outbox.waiting_bytes < WAITING_BYTES:
            self._outbox.put(Kind.EVENT, 0, line)

    def _hear(self) -> None:
        try:
            chunk = os.read(self._in_fd, CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._over = f"the connection broke: {error.strerror}"
            return
        if not chunk:
            self._over = "the connection was closed"
            return
        self._heard_s = time.monotonic()
        try:
            frames = self._frames.take(chunk)
        except FrameError as error:
            self._over = f"it was sent {error}"
            return
        for frame in frames:
            answer = self._answers.get(frame.kind)
            if answer is not None:  # a newer monitor may say more
                answer(frame)

    def _write(self) -> None:
        self._outbox.collect()
        try:
            self._outbox.write(self._out_fd)
        except OSError as error:
            self._over = self._over or f"the connection broke: {error.strerror}"
            return
        if self._writing != (not self._outbox.empty):
            self._writing = not self._writing
            if self._writing:
                self._selector.register(self._out_fd, selectors.EVENT_WRITE, lambda: None)
            else:
                self._selector.unregister(self._out_fd)

    def _look_after_lanes(self) -> None:
        now_s = time.monotonic()
        for lane in list(self._lanes.values()):
            due_s = lane.output_due_s
            if due_s is not None and due_s <= now_s and self._outbox.waiting_bytes < WAITING_BYTES:
                lane.pass_output()
            ended = lane.poll()
            for fd in (lane.metric_fd, lane.output_fd):
                if ended or fd not in lane.open:
                    self._watch(lane, fd, on=False)
            if ended:
                lane.reap()
                del self._lanes[lane.number]

    def _watch(self, lane: HostedLane, fd: int, *, on: bool) -> None:
        with contextlib.suppress(KeyError, ValueError):
            if on:
                self._selector.register(fd, selectors.EVENT_READ, lambda: lane.read(fd))
            else:
                self._selector.unregister(fd)

    def _end_lanes(self) -> None:
        self._lanes = {number: lane for number, lane in self._lanes.items() if not lane.own_command}
        for lane in self._lanes.values():
            lane.end()
        self._await_ends(TERM_S)
        for lane in self._lanes.values():
            lane.kill(signal.SIGKILL)
        self._await_ends(KILL_S)
        if self._readings is not None:
            self._readings.close()

    def _await_ends(self, patience_s: float) -> None:
        until_s = time.monotonic() + patience_s
        while self._lanes and time.monotonic() < until_s:
            self._look_after_lanes()
            time.sleep(0.005 if self._lanes else 0)

    def _end_by_signal(self, number: int, _: object) -> None:
        self._over = self._over or f"it was ended by {signal.Signals(number).name}"

    @staticmethod
    def _drain(fd: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(fd, 4096)

    def _with_lane(self, frame: Frame, do: Callable[[HostedLane], object]) -> None:
        lane = self._lanes.get(frame.number)
        if lane is not None:
            do(lane)

    def _start(self, frame: Frame) -> None:
        payload = json.loads(frame.payload)
        try:
            lane = start_lane(frame.number, payload, self._outbox)
        except OSError as error:
            answer = {"error": error.strerror or str(error), "number": error.errno}
        else:
            self._lanes[frame.number] = lane
            if self._flowing:
                self._watch(lane, lane.metric_fd, on=True)
            self._watch(lane, lane.output_fd, on=True)
            if self._held:
                lane.hold()
            answer = {"pid": lane.pid}
        self._outbox.put(Kind.STARTED, frame.number, json.dumps(answer).encode())

    def _ping(self, frame: Frame) -> None:
        (sent_ns,) = STAMP.unpack(frame.payload)
        payload = PONG.pack(sent_ns, time.monotonic_ns(), time.process_time_ns(), _memory_bytes())
        self._outbox.put(Kind.PONGED, 0, payload, urgent=True)

    def _hold(self, _: Frame) -> None:
        self._held = True
        for lane in self._lanes.values():
            lane.hold()

    def _go_on(self, _: Frame) -> None:
        self._held = False
        for lane in self._lanes.values():
            lane.go_on()

    def _keep(self, frame: Frame) -> None:
        """Store a file: its name in the folder, a zero byte, its content."""
        name, _, content = frame.payload.partition(b"\0")
        path = self._folder / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def _ask(self, frame: Frame) -> None:
        def answer(result: dict[str, Any]) -> None:
            self._outbox.put(Kind.ANSWER, frame.number, json.dumps(result).encode())

        def work() -> None:
            from tfmon.lanes.remote.questions import answer as find

            question = json.loads(frame.payload)
            answer(find(question["question"], question["arguments"]))

        start_thread("tfmon-answer", work, lambda reason: answer({"error": reason}))

    def _read_machine(self, frame: Frame) -> None:
        gpus = json.loads(frame.payload)["gpus"]
        start_thread("tfmon-readings", lambda: self._begin_readings(gpus), self._tell_no_readings)

    def _begin_readings(self, gpus: list[object]) -> None:
        from tfmon.lanes.remote.questions import Readings
        from tfmon.model.codec import read
        from tfmon.probes.base import Gpu

        if self._readings is None:
            self._readings = Readings(self._leaders, self.emit, [read(gpu, Gpu) for gpu in gpus])

    def _tell_no_readings(self, reason: str) -> None:
        from tfmon.model.codec import encode
        from tfmon.model.readings import Missing
        from tfmon.probes.host import unknown_host

        self.emit(encode(unknown_host(time.monotonic_ns(), Missing(reason))))

    def _leaders(self) -> dict[str, int]:
        """Return the first process of each lane. Thread: any."""
        return {lane.name: lane.pid for lane in list(self._lanes.values()) if not lane.ended}


def _memory_bytes() -> int:
    try:
        descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        return int(os.read(descriptor, 256).split()[1]) * os.sysconf("SC_PAGE_SIZE")
    finally:
        os.close(descriptor)


def run(folder: str, marker: str, say: Callable[..., None]) -> None:
    """Serve the monitor over stdin and stdout until the end, leave nothing behind, and end the process."""
    in_fd, out_fd = os.dup(0), os.dup(1)  # not inherited by anything that is started here
    nothing = os.open(os.devnull, os.O_RDWR)
    guard = _guard_files(folder)
    say(marker, folder=folder, pid=os.getpid(), python=sys.executable)
    for fd in (0, 1, 2):  # what a library prints must not reach the monitor as frames
        os.dup2(nothing, fd)
    agent = Agent(Path(folder), in_fd, out_fd)
    try:
        agent.last_word(agent.serve())
    except Exception as error:  # noqa: BLE001 - top of the process; the monitor shows it
        agent.last_word(f"it failed: {_told(error)}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if guard is not None:
            guard.kill()
        # Threads may hang in a driver.
        os._exit(0)


def _told(error: Exception) -> str:
    """Return an error in one line, with the line of code that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" ({Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})" if trace is not None else ""
    return f"{type(error).__name__}: {error}{place}"


def _guard_files(folder: str) -> subprocess.Popen[bytes] | None:
    try:
        return subprocess.Popen(
            ["/bin/sh", "-c", FILES_GUARD, "tfmon-guard", folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            **OWN_GROUP,
        )
    except OSError:
        return None
