"""Count the files of tfmon that a window visits on its way to the screen, and a key press on its way to the lane.

    python benchmarks/files_visited.py

A lane that trains nothing runs with a server, a viewer and the app in this process, under `sys.setprofile`. The
benchmark counts the files with a function that is called

- for a window: from the chunk that is read from the lane's pipe to the session that the screen reads. Listed
  separately are the files that draw the screen from there, once per refresh and not per window.
- for a key press: on the stack of the message that the screen sends, and from there to the pipe of the lane.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

from common import met
from support.lanes import RacingGroup
from support.waiting import wait_for

import tfmon
from tfmon.api.program import Program
from tfmon.api.run import Interruption
from tfmon.api.server import Connection, Server
from tfmon.api.viewer import Viewer
from tfmon.lanes.pipes import MetricLines
from tfmon.lanes.process import LocalProcess
from tfmon.model import codec
from tfmon.model.control_messages import ChangeKnob
from tfmon.model.lane_events import Window
from tfmon.ui.app import MonitorApp
from tfmon.ui.monitor import Monitor

ROOT = Path(tfmon.__file__).parent
GOAL = 12


class Visits:
    """The files that are called in a thread between the call of a function and its return."""

    def __init__(self) -> None:
        self.files: dict[str, set[str]] = {}
        """Files by the name of the part, the last visit of each."""
        self._open: dict[int, tuple[FrameType, str, set[str]]] = {}
        self._parts: dict[object, tuple[str, Callable[[FrameType], bool]]] = {}

    def watch(self, part: str, function: Any, wanted: Callable[[FrameType], bool] = lambda _frame: True) -> None:
        """Record the files of a part, which begins if `function` is called with a frame that is wanted."""
        self._parts[function.__code__] = part, wanted

    def profile(self, frame: FrameType, event: str, _argument: object) -> None:
        """Take a call or return: see `sys.setprofile`."""
        if event not in ("call", "return"):
            return
        thread = threading.get_ident()
        visit = self._open.get(thread)
        if event == "return" and visit is not None and visit[0] is frame:
            self.files[visit[1]] = visit[2]
            del self._open[thread]
        elif event == "call" and visit is not None:
            visit[2].update(file_of(frame))
        elif event == "call" and frame.f_code in self._parts:
            part, wanted = self._parts[frame.f_code]
            if wanted(frame):
                files: set[str] = set()
                outer: FrameType | None = frame
                while outer is not None:
                    files.update(file_of(outer))
                    outer = outer.f_back
                self._open[thread] = frame, part, files


def file_of(frame: FrameType) -> set[str]:
    """Return the file of a frame if it belongs to tfmon, but not the starter of threads."""
    path = Path(frame.f_code.co_filename)
    if not path.is_relative_to(ROOT) or path.name == "threads.py":
        return set()
    return {str(path.relative_to(ROOT))}


class FakeProgram(SimpleNamespace):
    """A program with other lanes."""

    perform, all_over = Program.perform, Program.all_over
    suspenders, suspend_lanes, continue_lanes = Program.suspenders, Program.suspend_lanes, Program.continue_lanes


async def race(visits: Visits, logs: Path) -> None:
    """Start a lane, and press a key on the screen."""
    group = RacingGroup(logs)
    program = FakeProgram(session=group.session, lanes=group, experiments=SimpleNamespace(), repeat=str)
    server = Server(program, Interruption(lambda: None, lambda: True))  # type: ignore[arg-type]
    server.begin(())
    ours, theirs = socket.socketpair()
    server.connect(theirs)
    viewer = Viewer(ours, began_here=True, detachable=False)
    group.begin(group.plan("cpu"))
    viewer.connect()
    app = MonitorApp(viewer)
    try:
        async with app.run_test(size=(120, 36)) as pilot:
            wait_for(lambda: {"read", "encode", "take"} <= visits.files.keys(), what="a window arrives")
            await pilot.press("B")
            await pilot.pause()
            wait_for(lambda: "perform" in visits.files, what="the key arrives")
    finally:
        viewer.leave()
        group.stop()


def report(title: str, visits: Visits, *parts: str) -> None:
    """Print how many files the parts have visited, and which."""
    files = set().union(*(visits.files.get(part, set()) for part in parts))
    print(f"{title}: {len(files)} files (at most {GOAL}: {met(len(files) <= GOAL)})")
    for part in parts:
        print(f"    {part}: {', '.join(sorted(visits.files.get(part, ())))}")


def main() -> None:
    """Measure and print."""
    visits = Visits()
    visits.watch("read", MetricLines.take, lambda frame: b'"type":"Window"' in frame.f_locals["chunk"])
    visits.watch("encode", codec.encode, lambda frame: isinstance(frame.f_locals["value"], Window))
    visits.watch("take", Viewer._take, lambda frame: frame.f_locals["line"].startswith(b'{"type":"Window"'))
    visits.watch("draw", Monitor.pull)
    visits.watch("press", Viewer.send, lambda frame: isinstance(frame.f_locals["message"], ChangeKnob))
    visits.watch("perform", Connection._handle, lambda frame: "ChangeKnob" in str(frame.f_locals["request"]))
    visits.watch("write", LocalProcess.write)
    threading.setprofile(visits.profile)
    sys.setprofile(visits.profile)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(race(visits, Path(folder)))
    sys.setprofile(None)
    report("a window, from the pipe to the screen's session", visits, "read", "encode", "take")
    report("a key press, from the screen to the lane", visits, "press", "perform")
    print(f"drawing, per refresh: {len(visits.files['draw'])} files")


if __name__ == "__main__":
    main()
