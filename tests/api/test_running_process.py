"""The description of a process that tfmon did not start, and its most likely bottleneck."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from support.events import tree_sample
from support.ui import racing_demo

from tfmon.api import observed_process
from tfmon.api.observed_process import ProcessLook, RunningProcess, show, stack_of, supposed
from tfmon.errors import TfmonError, UsageError
from tfmon.model.readings import Missing

WAITS = "import sys, time; print(flush=True); sys.stdin.read(); sys.exit(3)"


@pytest.fixture
def trains():
    with subprocess.Popen([sys.executable, "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process


@pytest.mark.process
def test_it_is_described_and_goes_on_as_if_nobody_had_looked_and_its_end_is_told(trains, capsys):
    process = RunningProcess(trains.pid)
    process.look()
    show(trains.pid, live=False)
    said = capsys.readouterr().out
    assert said.startswith(f"{sys.executable} -c") and f"PID {trains.pid} of " in said
    assert "1 process, 1 thread\n" in said
    assert re.search(r"^cpu +\d+ % of \d+; main thread \d+ %$", said, re.M)
    assert "gpu      none on which it has memory" in said and "tfmon watch -- " in said
    trains.stdin.close()
    assert trains.wait() == 3
    with pytest.raises(TfmonError, match=f"process {trains.pid} has ended"):
        process.look()


@pytest.mark.parametrize("pid", [0, 2**22 + 1])
def test_one_that_is_not_there_is_told(pid):
    with pytest.raises(UsageError, match=f"process {pid}"):
        RunningProcess(pid)


def look(cpu: float, main: float | Missing, gpu: float | None = None) -> ProcessLook:
    """Return a look at a process with that CPU, and with that share of a GPU if it has one."""
    tree = replace(tree_sample(), cpu_pct=cpu, pids=(7,))
    gpus = ()
    if gpu is not None:
        (sample,) = racing_demo().session.snapshot().hosts[""].gpus
        gpus = (replace(sample, processes=replace(sample.processes, used_by_pid={7: 1}, busy_by_pid={7: gpu})),)
    return ProcessLook(tree, 9, main, 0.0, 0.0, gpus)


@pytest.mark.parametrize(
    ("cpu", "main", "gpu", "said"),
    [
        (120, 90, 96, "the GPU limits it: it is busy 96 % of the time (fairly sure)"),
        (110, 97, 20, "its main thread limits it, by Python or by starting operations: it never waits"),
        (390, 30, 20, "the input or other work of the CPU limits it: all cores are used while the GPU"),
        (160, 8, 20, "other threads or processes limit it, such as the input: its main thread waits while"),
        (3, 2, 1, "it waits while the GPU is busy 1 % of the time: for a disk, the network, a lock"),
        (395, 60, None, "the CPU limits it: all cores are used (fairly sure)"),
        (101, 99, None, "its main thread limits it"),
        (150, 60, 60, "no single part while the GPU is busy 60 %"),
        (100, Missing("not allowed"), None, "not enough can be read"),
    ],
)
def test_what_limits_it_is_supposed_from_cpu_and_gpu(cpu, main, gpu, said):
    assert supposed([look(cpu, main, gpu)] * 3, 4).startswith(said)


@pytest.mark.process
def test_where_it_stands_is_read_without_pausing_it(tmp_path, monkeypatch):
    frames = [
        {"name": "wait", "filename": "/usr/lib/python3.11/queue.py", "short_filename": "queue.py", "line": 3},
        {"name": "step", "filename": "/home/ana/train.py", "short_filename": "train.py", "line": 42},
    ]
    answer = json.dumps([{"thread_name": "MainThread", "frames": frames}])
    program = tmp_path / "py-spy"
    program.write_text(f"#!/bin/sh\necho \"$@\" > {tmp_path}/words\necho '{answer}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert stack_of(7) == "train.py:42 step"
    assert "--nonblocking" in (tmp_path / "words").read_text()
    monkeypatch.setattr(observed_process.shutil, "which", lambda _name: None)
    assert stack_of(7) == ""
