"""A lost SSH connection, over an sshd of the test's own on loopback; skipped where none is installed."""

from __future__ import annotations

import contextlib
import getpass
import sys
from pathlib import Path

import pytest
from support.sshd import needs_sshd, sshd
from support.terminal import gone
from support.waiting import HANGS_S

pytest.importorskip("pexpect")

import pexpect

__all__ = ["sshd"]
ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.pty, needs_sshd]


def test_no_lane_outlives_a_connection_that_is_lost(sshd):
    program = ROOT / "tests" / "support" / "fake_tfmon.py"
    race = "race small-dense --lane cpu --lane cpu,prefetch=auto --no-record"
    words = ["-tt", "-i", str(sshd.folder / "user"), "-p", str(sshd.port), "-o", "StrictHostKeyChecking=no"]
    words += ["-o", "UserKnownHostsFile=/dev/null", f"{getpass.getuser()}@127.0.0.1"]
    words += [f"env PYTHONPATH={ROOT} {sys.executable} {program} {race}"]
    clients = [
        pexpect.spawn("ssh", words, dimensions=(36, 120), encoding="utf-8", codec_errors="replace")
        for _ in range(2)
    ]
    for client in clients:
        client.expect_exact("steps/s", timeout=HANGS_S)
    programs = sshd.process.children(recursive=True)
    monitors = [each for each in programs if each.cmdline()[1:2] == [str(program)]]
    lanes = [lane for each in monitors for lane in each.children(recursive=True)]  # and spare workers
    assert len(monitors) == 2 and len(lanes) >= 4
    clients[0].kill(9)
    with contextlib.suppress(pexpect.ExceptionPexpect):  # it waits only a moment for the end of ssh
        clients[1].close(force=False)
    assert gone([*lanes, *monitors])
