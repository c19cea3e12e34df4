"""A monitor with one lane, to be killed: argv says what the lane's child does, and whether it is frozen."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tfmon.lanes.process import LaneProcess
from tfmon.lanes.reader import PipeReader

heard = threading.Event()
pump = PipeReader()
pump.start()
script = Path(__file__).with_name("speaker.py")
child = LaneProcess("cpu", Path(sys.executable), {"SAYS": "a_listener"}, lambda *_: heard.set(), script)
pump.watch(child)
heard.wait()
if sys.argv[1] == "frozen":
    child.suspend()
print(child.pid, flush=True)
threading.Event().wait()
