"""Readings of another machine: taken by the real probes, and the same here as they were sent."""

import os
import threading

import pytest
from support.events import reread
from support.waiting import wait_for

from tfmon.lanes.remote.questions import start_readings
from tfmon.model.codec import plain
from tfmon.model.events import Event
from tfmon.model.gpu_samples import ClockReason, GpuFault, GpuSample, SlowReading
from tfmon.model.readings import HostSample, Missing, TreeSample
from tfmon.probes.base import Gpu, absent_gpu

GPU = Gpu(index=1, uuid="GPU-1", name="NVIDIA H200", physical_gpu=3, power_limit_w=700.0)
SAMPLE = reread(
    absent_gpu(GPU, 2**62 + 1, "broken"),
    busy_pct=float("nan"),
    power_w=0.1 + 0.2,
    reasons=(ClockReason("hot", "warning"),),
    faults=(GpuFault(7, 79, "the GPU fell off the bus (XID 79)"),),
    used_by_pid={4242: None, 4243: 10**11},
    busy_by_pid={4242: 12.5},
)


def test_the_machine_and_its_lanes_are_sampled_until_the_end():
    samples: list[Event] = []
    lanes = {"gpu2/cpu": os.getpid(), "gpu2/gpu:0": 2**30}
    tickers = start_readings(lambda: lanes, samples.append, every_s=0.02)
    try:
        wait_for(lambda: len(samples) >= 8, what="some samples")
    finally:
        for ticker in tickers:
            ticker.close()
    hosts = [sample for sample in samples if isinstance(sample, HostSample)]
    trees = [sample for sample in samples if isinstance(sample, TreeSample)]
    assert hosts and all(host.memory_used_bytes > 0 for host in hosts)
    assert trees and {tree.lane for tree in trees} == {"gpu2/cpu"}, "a lane without a process has none"
    assert all(tree.private_bytes > 0 and os.getpid() in tree.pids for tree in trees)
    wait_for(lambda: "tfmon-host" not in [one.name for one in threading.enumerate()], what="no thread is left")


@pytest.mark.process
def test_a_host_cannot_pass_for_another_nor_steer_a_terminal(ssh):
    link = ssh.connect()
    sent = reread(SAMPLE, host="gpu9", name="\x1b[31mH200\x07", busy_pct=Missing("\x9b2Jno"))
    link._tell_sample(plain(sent))
    link._tell_sample({"type": "RaceBegan", "at_ns": 1})
    (found,) = link.heard(GpuSample)
    assert (found.host, found.name, found.load.busy_pct) == ("gpu2", "H200", Missing("no"))


def test_all_stamps_of_a_sample_are_put_on_the_monitors_clock():
    sample = reread(SAMPLE, at_ns=30, since_ns=10, until_ns=20, slow=(SlowReading("load", 60.0, 6.0, 25),))
    moved = sample.on_clock(lambda there_ns: there_ns + 1_000)
    assert (moved.at_ns, moved.processes.since_ns, moved.processes.until_ns) == (1_030, 1_010, 1_020)
    assert (moved.slow[0].at_ns, moved.faults[0].at_ns) == (1_025, 1_007)
    assert moved.age_s("load") == sample.age_s("load")
    assert SAMPLE.on_clock(lambda there_ns: 0).processes.since_ns is None
