"""Hosts that are this machine."""

from collections.abc import Iterator

import pytest
from support.hosts import FakeSsh, Ssh
from support.sshd import Sshd


@pytest.fixture
def ssh(tmp_path, monkeypatch) -> Iterator[FakeSsh]:
    """A stand-in for ssh; its connections are closed at the end."""
    fake = FakeSsh(tmp_path, monkeypatch)
    yield fake
    fake.close()


@pytest.fixture
def real_ssh(sshd: Sshd, monkeypatch) -> Iterator[Ssh]:
    real = Ssh(sshd.put_client(), monkeypatch)
    real.sessions = sshd.sessions
    yield real
    real.close()
