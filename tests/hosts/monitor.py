"""A monitor with lanes on a host, to be killed or stopped: argv says with which lanes.

SILENCE: after how many seconds its agent takes silence for a loss.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.hosts import Linked, agents_code, start_all_kinds

from tfmon.hosts import wire
from tfmon.hosts.host import Host
from tfmon.lanes.suspend import Suspender, suspend_with

if "SILENCE" in os.environ:
    wire.packed = agents_code("SILENCE_S = 10.0", f"SILENCE_S = {os.environ['SILENCE']}")
link = Linked(Host(os.environ.get("HOST", "gpu2"), python=sys.executable))
link.open()
if sys.argv[1] == "kinds":
    children = start_all_kinds(link)
else:
    children = [link.start("a_listener") for _ in range(2)]
    suspend_with(Suspender(lambda: [link], lambda *_: None))
print(link.agent.pid, *{pid for child in children for pid in (child.pid, child.said_pid())}, flush=True)
while True:
    threading.Event().wait(0.5)
