"""The processor's counters by `perf`: the meaning of its answers, which fake programs of that name give."""

import functools
import os
import shutil
from dataclasses import replace

import pytest
from support.profiles import profile

from tfmon.analysis.profile_json import counted
from tfmon.model.profile import NOT_COUNTED, CpuCounters
from tfmon.model.readings import Missing
from tfmon.probes import cpu_counters

pytestmark = pytest.mark.process

NO_COUNTERS = "<not supported>;;instructions:u;0;100.00;;\n<not supported>;;cycles:u;0;100.00;;"
REFUSED = """\
Error:
Access to performance monitoring and observability operations is limited.
Consider adjusting /proc/sys/kernel/perf_event_paranoid setting to open
"""


@pytest.fixture(autouse=True)
def _asked_anew(monkeypatch):
    monkeypatch.setattr(cpu_counters, "_obstacle", functools.cache(cpu_counters._obstacle.__wrapped__))


@pytest.fixture
def perf(tmp_path, put, monkeypatch):
    """Make a program `perf` that prints some lines to its standard error; returns the file with its arguments."""

    def make(*lines: str, code: int = 0):
        answer = put("answer", "\n".join(lines))
        put("perf", f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\ncat {answer} >&2\nexit {code}\n', 0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        return tmp_path / "asked"

    return make


def test_counts_become_shares_of_the_cycles_of_the_process_that_is_asked_for(perf):
    asked = perf(
        "3000000;;instructions:u;2000;100.00;1.50;insn per cycle",
        "2000000;;cycles:u;2000;100.00;;",
        "500000;;stalled-cycles-backend:u;2000;100.00;;",
    )
    assert cpu_counters.count(4321) == CpuCounters(1.5, 0.25)
    assert cpu_counters.count(4321) == CpuCounters(1.5, 0.25)
    attempts = asked.read_text().splitlines()
    assert [" -p 4321 " in attempt for attempt in attempts] == [False, True, True], "the machine is asked once"


@pytest.mark.parametrize(
    ("lines", "code", "reason"), [(NO_COUNTERS, 0, "NOT_SUPPORTED"), (REFUSED, 255, "NOT_ALLOWED")]
)
def test_where_nothing_is_counted_it_says_why_once_and_at_once(perf, lines, code, reason):
    asked = perf(*lines.splitlines(), code=code)
    why = Missing(getattr(cpu_counters, reason))
    assert cpu_counters.count(1) == why
    assert "-p" not in asked.read_text()
    said, nothing = (counted(replace(profile({}), counters=one)) for one in (why, NOT_COUNTED))
    assert list(said) == [f"instructions per cycle: n/a ({why.reason})"]
    assert not list(nothing), "where it was not tried"


def test_a_machine_without_perf_is_told_what_to_install(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert cpu_counters.count(1) == Missing(cpu_counters.NO_PERF)
