"""Count with `sys.setprofile` which files of the product a window and a key press visit.

    python benchmarks/visited_files.py

The lane is a script that reports windows. The runner's server, a viewer and the screen run in this process, so
that one profiler sees all of their threads. A window is followed from the bytes in the pipe of the lane to the
session of the viewer, without the recorder. A key press is followed from the action of the key to the bytes in the
pipe of the lane, without the drawing of the screen. What follows it is an event, as a window is.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import TypeAlias

from common import find_scenario, options_of, program_of

import tfmon
from tfmon.api import program
from tfmon.api.options import RaceOptions
from tfmon.api.run_base import Interruption
from tfmon.api.server import Server
from tfmon.api.viewer import Viewer
from tfmon.lanes.group import LaneGroup
from tfmon.model.race import CONCURRENT
from tfmon.ui.app import MonitorApp

PRODUCT = f"{Path(tfmon.__file__).parent}{os.sep}"
GOAL = 12
WATCHED_S = 3.0
WINDOW, KEY = "a window", "a key press"
BEGINS = {
    ("lanes/lane_process.py", "read"): WINDOW,
    ("api/server.py", "_write"): WINDOW,
    ("api/viewer.py", "_take"): WINDOW,
    ("ui/screens/page.py", "action_step_knob"): KEY,
    ("api/server.py", "_handle"): KEY,
}
"""The functions in which a way begins in each of its threads."""
REQUEST = ("lanes/lane_process.py", "send")
"""The function with which the way of a key press ends."""
ASIDE = {("ui/monitor.py", "say"), ("ui/monitor.py", "pull"), ("recordings/recorder.py", "_take")}
Files: TypeAlias = dict[str, Counter[str]]
"""The called functions, by file."""


class Profiler:
    """Collects the functions of each way, by file. Thread: any."""

    def __init__(self) -> None:
        self.visits: dict[str, Files] = {way: {} for way in BEGINS.values()}
        self.active = False
        self._thread = threading.local()

    def see(self, frame: FrameType, event: str, _argument: object) -> None:
        """Take an event of the interpreter."""
        if event not in ("call", "return") or not frame.f_code.co_filename.startswith(PRODUCT):
            return
        stack: list[tuple[FrameType, Files | None]] = vars(self._thread).setdefault("stack", [])
        file, name = place = frame.f_code.co_filename.removeprefix(PRODUCT), frame.f_code.co_name
        outer, files = stack[-1] if stack else (None, None)
        if event == "call":
            if place in ASIDE:
                stack.append((frame, files := None))
            elif place in BEGINS and (not stack or files is not None):
                stack.append((frame, files := {}))
            if files is not None:
                files.setdefault(file, Counter())[name] += 1
        elif frame is outer:
            stack.pop()
            if place in BEGINS and files is not None and self.active and counts(frame):
                self._keep(BEGINS[place], files)
        elif place == REQUEST and files is not None and outer is not None:
            stack[-1] = outer, None
            if self.active:
                self._keep(KEY, files)

    def _keep(self, way: str, files: Files) -> None:
        for file, names in files.items():
            self.visits[way].setdefault(file, Counter()).update(names)


def counts(frame: FrameType) -> bool:
    """Return whether a finished function took only windows. Functions of a key press always count."""
    taken = frame.f_locals.get("chunk", frame.f_locals.get("line"))
    return taken is None or (bool(taken) and all(b'"type":"Window"' in line for line in taken.splitlines()))


async def press_keys(viewer: Viewer, profiler: Profiler) -> None:
    """Show the race on a screen, and change a knob."""
    app = MonitorApp(viewer)
    async with app.run_test(size=(120, 36)) as pilot:
        while not any(lane.steady.windows for lane in viewer.snapshot().lanes):
            await pilot.pause(0.1)
        profiler.active = True
        await pilot.press("p")
        await pilot.pause(WATCHED_S)
        profiler.active = False


def main() -> None:
    """Count and print."""
    options_of(__doc__)
    profiler = Profiler()
    threading.setprofile(profiler.see)
    sys.setprofile(profiler.see)
    os.environ["TFMON_RECORDINGS"] = tempfile.mkdtemp(prefix="tfmon-visits-")
    script = Path(__file__).with_name("scripted_lane.py")
    vars(program)["LaneGroup"] = functools.partial(LaneGroup, script=script)
    options = RaceOptions(lanes=("cpu",), mode=CONCURRENT)
    with program_of(options, find_scenario("small-dense")) as race:
        server = Server(race, Interruption(lambda: None, lambda: True))
        server.started.set_result("")
        ours, theirs = socket.socketpair()
        server.connect(theirs)
        viewer = Viewer(ours)
        asyncio.run(press_keys(viewer, profiler))
        viewer.leave()
    sys.setprofile(None)
    threading.setprofile(None)  # type: ignore[arg-type]
    for way, files in profiler.visits.items():
        print(f"{way} visits {len(files)} files (at most {GOAL})")
        for file, names in sorted(files.items()):
            print(f"  {file:28} {', '.join(names)}")


if __name__ == "__main__":
    main()
