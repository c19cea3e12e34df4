"""A monitor with one lane, for tests that kill it: argv is "suspended" if the lane's child is suspended."""

import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tfmon.lanes.lane_process import LocalProcess

heard = threading.Event()
script = Path(__file__).with_name("speaker.py")
child = LocalProcess("cpu", Path(sys.executable), {"SAYS": "a_listener"}, lambda *_: heard.set(), script)
child.start_reading(sys.exit)
heard.wait()
if sys.argv[1] == "suspended":
    child.suspend()
print(child.pid, flush=True)
threading.Event().wait()
