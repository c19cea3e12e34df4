"""A monitor with one lane, for tests that kill it: argv is "suspended" if the lane's child is suspended."""

import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tfmon.lanes.lane_process import LocalProcess
from tfmon.lanes.launch import ProcessPlan

heard = threading.Event()
script = Path(__file__).with_name("speaker.py")
plan = ProcessPlan(lane="cpu", python=sys.executable, environment={"SAYS": "a_listener"}, script=str(script))
child = LocalProcess(plan, lambda *_: heard.set())
child.start_reading(sys.exit)
heard.wait()
if sys.argv[1] == "suspended":
    child.suspend()
print(child.pid, flush=True)
threading.Event().wait()
