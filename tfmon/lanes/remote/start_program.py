"""Starts a program of Python on a host."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import json
import os
import secrets
import select
import shlex
import signal
import socket
import subprocess
import tempfile
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfmon.errors import UsageError
from tfmon.lanes.remote.link_lines import CHUNK_BYTES
from tfmon.lanes.remote.remote_host import Host
from tfmon.lanes.remote.trouble import (
    HostError,
    ended_early,
    no_agent,
    no_launcher,
    other_python,
    settings_table,
    too_slow,
)
from tfmon.model.codec import clean

OLDEST_PYTHON = (3, 10)
PATIENCE_S = 30.0
LAUNCHER_PATIENCE_S = 600.0
"""A launcher may wait in a queue."""
RAY_PATIENCE_S = 90.0
CODE_PATIENCE_S = 60.0
EXIT_PATIENCE_S = 1.0
KEPT_BYTES = 16_384


SSH = (
    *("ssh", "-T", "-a", "-x"),
    *("-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=2", "-o", "ServerAliveCountMax=2"),
    # A shared connection of the user's ssh is used: it may have needed a second factor. tfmon does not share its
    # own, which carries all lanes of a host.
    *("-o", "ControlMaster=no", "-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none"),
)
SHELL = "sh"
"""No login shell, launcher or container interprets this word differently."""
PYTHONS = ("python3", "python")
FIRST_WORD = Path(__file__).with_name("host_start.py")
PACKAGE = Path(__file__).parents[2]
SHIPPED = (
    *("__init__", "analysis/__init__", "analysis/bottleneck_rules", "errors", "report", "units"),
    *("doctor", "lanes", "model", "probes", "profile", "hooks", "system", "trainer"),
)


class Wire:
    """A launcher, and the socket that is its stdin and stdout. Thread: one, except `cancel`."""

    def __init__(self, host: Host) -> None:
        """Raises TfmonError if the launcher did not start."""
        self.host = host
        self._marker = f"tfmon-{secrets.token_hex(8)}"
        argv = _launcher_command(host)
        self.connection, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - for as long as the launcher
        self._errors_from = 0
        try:
            # Ctrl+C and Ctrl+Z do not reach a separate session, and it cannot use the terminal.
            self.popen = subprocess.Popen(
                argv, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=self._errors, start_new_session=True
            )
        except OSError as error:
            self.connection.close()
            raise no_launcher(host, argv[0], error) from error
        finally:
            theirs.close()
        self.folder = self.python = ""
        self.pid = 0
        """Of the agent, like its folder and interpreter."""
        self.received = b""
        self._cancelled = False

    def greet(self) -> None:
        """Start the agent, or raise TfmonError."""
        first = self.first_word()
        try:
            version = tuple(int(part) for part in first["python"])
            if version < OLDEST_PYTHON:
                path = clean(str(first.get("executable")), 200)
                result, oldest = (".".join(map(str, numbers)) for numbers in (version, OLDEST_PYTHON))
                message = f"{path} on {self.host.name} is Python {result}; lanes need {oldest} or newer"
                raise HostError(message, other_python(self.host))
            code = packed()
            self.connection.settimeout(CODE_PATIENCE_S)
            with contextlib.suppress(OSError):  # its output explains it
                self.connection.sendall(b"%012d" % len(code) + code)
            self.connection.settimeout(None)
            ready = self._next_word(CODE_PATIENCE_S)
            if "failed" in ready:
                raise no_agent(self.host, str(ready["failed"]), str(ready["folder"]))
        except BaseException:
            self.kill()
            raise
        self.folder, self.python, self.pid = str(ready["folder"]), str(ready["python"]), int(ready["pid"])
        if self.host.ray is not None:
            self.host = replace(self.host, ray=self.host.ray.placed(self.error_lines()))
        self._errors_from = os.fstat(self._errors.fileno()).st_size  # earlier lines explain nothing

    def first_word(self, program: Path = FIRST_WORD) -> dict[str, Any]:
        """Start a program; return its first message; raises TfmonError."""
        host = self.host
        patience_s = LAUNCHER_PATIENCE_S if host.run else PATIENCE_S if host.ray is None else RAY_PATIENCE_S
        try:
            with contextlib.suppress(OSError):  # its output explains it
                self.connection.sendall(script_of(host, self._marker, program))
            first = self._next_word(patience_s)
            if "missing" in first:
                hint = f'python = "~/…/bin/python" under {settings_table(host)} sets one'
                raise HostError(f"there is no {host.python or 'Python'} on {host.name}", hint)
        except BaseException:
            self.kill()
            raise
        return first

    def _next_word(self, patience_s: float) -> dict[str, Any]:
        """Return the next message; keep other output for an error."""
        until_s = time.monotonic() + patience_s
        while True:
            _, marked, word = self.received.partition(self._marker.encode() + b" ")
            line, complete, rest = word.partition(b"\n")
            if marked and complete:
                self.received = rest
                with contextlib.suppress(ValueError):
                    fields = json.loads(line)
                    if isinstance(fields, dict):
                        return fields
                raise no_agent(self.host, "its answer cannot be read")
            if not marked:
                self.received = self.received[-KEPT_BYTES:]
            printed = self.received.decode(errors="replace")
            chunk = self.receive(max(0.0, until_s - time.monotonic()))
            if self._cancelled:
                raise HostError(f"the connection to {self.host.name} was broken off")
            if chunk == b"":
                raise ended_early(self.host, self.exit_code(), self.error_lines(), printed)
            if time.monotonic() > until_s:
                raise too_slow(self.host, patience_s, self.error_lines(), printed)
            self.received += chunk or b""

    def receive(self, wait_s: float) -> bytes | None:
        """Return output, empty at its end, or `None` for now."""
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        if not poll.poll(1000 * wait_s):
            return None
        try:
            return self.connection.recv(CHUNK_BYTES)
        except ConnectionError:  # before it had read everything
            return b""

    def error_lines(self) -> list[str]:
        """Return the lines of the launcher's stderr."""
        fd = self._errors.fileno()
        start = max(self._errors_from, os.fstat(fd).st_size - KEPT_BYTES)
        return os.pread(fd, KEPT_BYTES, start).decode(errors="replace").splitlines()

    def exit_code(self, patience_s: float = EXIT_PATIENCE_S) -> int | None:
        """Return the launcher's exit code."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(patience_s)
        return self.popen.returncode

    def cancel(self) -> None:
        """Make `greet` fail. Thread: any."""
        self._cancelled = True
        if not self.pid:
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        """End the launcher."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        self.connection.close()


def _launcher_command(host: Host) -> list[str]:
    if host.ray is not None:
        return [*host.ray.command("lane"), SHELL]
    if host.run:
        return [*host.run, SHELL]
    if host.name.startswith("-") or not host.name:
        raise UsageError(f"{host.name!r} is not a host", "name one as ssh knows it, such as me@gpu2")
    return [*SSH, "--", host.name, SHELL]


def script_of(host: Host, marker: str, program: Path = FIRST_WORD) -> bytes:
    """Return the lines that make the shell a Python.

    A shell reads ahead, so nothing may be sent before Python's first line.
    """
    pythons = " ".join(map(_path, [host.python] if host.python else PYTHONS))
    code = shlex.quote(program.read_text("utf-8"))
    missing = shlex.quote(f'{marker} {{"missing": true}}')
    lines = (
        f"for python in {pythons}; do",
        f'command -v "$python" >/dev/null 2>&1 && exec "$python" -c {code} {shlex.quote(marker)}',
        f"done; printf '%s\\n' {missing}; exit 127",
    )
    return ("\n".join(lines) + "\n").encode()


def _path(python: str) -> str:
    if python == "~" or python.startswith("~/"):
        return '"$HOME"' + shlex.quote(python[1:])
    return shlex.quote(python)


@functools.cache
def packed() -> bytes:
    """Return a zip of the shipped code. Thread: any."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in files().items():
            archive.writestr(name, path.read_bytes())
    return buffer.getvalue()


def files() -> dict[str, Path]:
    """Return the files of the zip."""
    paths = [path for name in SHIPPED for path in (PACKAGE / f"{name}.py", *(PACKAGE / name).rglob("*.py"))]
    result = {str(path.relative_to(PACKAGE.parent)): path for path in paths if path.is_file()}
    nvml = importlib.util.find_spec("pynvml")  # a host need not have it
    if nvml is not None and nvml.origin:
        result["pynvml.py"] = Path(nvml.origin)
    return result
