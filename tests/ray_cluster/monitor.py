"""A monitor with lanes on a node, to be killed. The environment names the cluster, argv the name of the host."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.hosts import Linked, start_all_kinds

from tfmon.lanes.remote.ray import RayCluster

if __name__ == "__main__":
    link = Linked(RayCluster(os.environ["RAY_ADDRESS"]).host(sys.argv[1]))
    link.ensure()
    children = start_all_kinds(link)
    print(link.agent.pid, *{pid for child in children for pid in (child.pid, child.said_pid())}, flush=True)
    threading.Event().wait()
