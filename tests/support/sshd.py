"""An sshd on loopback, with its own keys in a temporary folder. Tests are skipped if it is not installed."""

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
SSH = shutil.which("ssh")
PROGRAMS = (SSHD, SSH, shutil.which("ssh-keygen"))
needs_sshd = pytest.mark.skipif(None in PROGRAMS, reason="sshd, ssh or ssh-keygen is not installed")
SETTINGS = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
SetEnv XDG_STATE_HOME={folder}/state TFMON_RUNTIME={folder}/run
"""
CLIENT = """
Host gpu2 gpu3
    HostName 127.0.0.1
    Port {port}
    User {user}
    IdentityFile {folder}/user
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
"""
LISTENS = "Server listening on 127.0.0.1"
ROOTS_FOLDER = Path("/run/sshd")
"""The folder that Debian's sshd needs. Its service makes it, so it is missing if root starts sshd."""


@dataclass(frozen=True)
class Sshd:
    """A running sshd that lets this user in with the key `user` of its folder."""

    process: psutil.Process
    port: int
    folder: Path

    def put_client(self) -> str:
        """Return a folder with an `ssh` that reaches it as gpu2 and gpu3."""
        host_key = (self.folder / "host.pub").read_text()
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {host_key}")
        settings = CLIENT.format(port=self.port, folder=self.folder, user=getpass.getuser())
        (self.folder / "config").write_text(settings)
        program = self.folder / "client" / "ssh"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {SSH} -F {self.folder}/config "$@"\n')
        program.chmod(0o755)
        return str(program.parent)

    def sessions(self) -> list[psutil.Process]:
        return [child for child in self.process.children(recursive=True) if "sshd" in name_of(child)]


@contextlib.contextmanager
def running_sshd(folder: Path) -> Iterator[Sshd | None]:
    """Run an sshd with its files in a folder; yields `None` if it cannot start."""
    for name in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(words, check=True)
    if os.getuid() == 0:
        ROOTS_FOLDER.mkdir(mode=0o755, exist_ok=True)
    for attempt in range(5):
        port, log = free_port(), folder / f"log-{attempt}"
        settings = folder / "sshd_config"
        settings.write_text(SETTINGS.format(port=port, folder=folder))
        command = [str(SSHD), "-D", "-e", "-f", str(settings)]
        if subprocess.run([*command, "-t"], capture_output=True).returncode:
            break
        with log.open("w") as file, subprocess.Popen(command, stderr=file) as daemon:
            try:
                while LISTENS not in log.read_text() and daemon.poll() is None:
                    time.sleep(0.01)
                if daemon.poll() is None:
                    yield Sshd(psutil.Process(daemon.pid), port, folder)
                    return
            finally:
                daemon.terminate()
    yield None


@pytest.fixture
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running_sshd(tmp_path_factory.mktemp("sshd")) as found:
        if found is None:
            pytest.skip("an sshd may not be started here")
        yield found


def free_port() -> int:
    """Return a port that is free now; another process may take it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def name_of(process: psutil.Process) -> str:
    """Return a process's name; "" if it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.name()
    return ""
