"""A monitor with lanes on a host, to be killed or stopped: argv says with which lanes, and on which node of Ray.

IMPATIENT: a file; while it is there, the agent takes 3 s of silence for a loss, and otherwise none.
"""

import os
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import pytest
from support.hosts import Linked, agents_code, be_patient, start_all_kinds

from tfmon.lanes.remote import start_program
from tfmon.lanes.remote.ray import RayCluster
from tfmon.lanes.remote.remote_host import Host
from tfmon.lanes.suspend import Suspender, suspend_with

if len(sys.argv) == 2:
    be_patient(pytest.MonkeyPatch())
if "IMPATIENT" in os.environ:
    start_program.packed = agents_code(
        "> SILENCE_S", f"> (3.0 if Path({os.environ['IMPATIENT']!r}).exists() else 1e9)"
    )
cluster = RayCluster(os.environ["RAY_ADDRESS"]) if len(sys.argv) > 2 else None
link = Linked(cluster.host(sys.argv[2]) if cluster else Host("gpu2", python=sys.executable))
link.ensure()
if sys.argv[1] == "kinds":
    children = start_all_kinds(link)
else:
    children = [link.start("a_listener") for _ in range(2)]
    suspender = Suspender(lambda: [link], lambda *_: None, sys.exit)
    suspend_with(suspender.suspend_lanes, suspender.continue_lanes)
print(link.agent.pid, *{pid for child in children for pid in (child.pid, child.said_pid())}, flush=True)
while True:
    threading.Event().wait(0.5)
