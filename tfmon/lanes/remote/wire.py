"""Starts an agent: the launcher, its pipes and input, until the agent reports that it is ready."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import json
import os
import secrets
import selectors
import shlex
import signal
import subprocess
import threading
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfmon.errors import UsageError
from tfmon.lanes.remote.frames import CHUNK_BYTES
from tfmon.lanes.remote.host import Host
from tfmon.lanes.remote.trouble import (
    OLDEST_PYTHON,
    HostError,
    ended_early,
    no_agent,
    no_launcher,
    no_python,
    old_python,
    too_slow,
)
from tfmon.model.codec import clean

PATIENCE_S = 30.0
"""Time for ssh until Python's first line."""
LAUNCHER_PATIENCE_S = 600.0
"""The same for a launcher of the settings, which may wait in a queue."""
RAY_PATIENCE_S = 90.0
"""The same for the bridge to Ray, whose own limits add up to less."""
CODE_PATIENCE_S = 60.0
"""Time for sending the code and starting the agent."""
LOOK_S = 0.25
EXIT_PATIENCE_S = 1.0
KEPT_BYTES = 16_384


SSH = (
    *("ssh", "-T", "-a", "-x"),
    *("-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=2", "-o", "ServerAliveCountMax=2"),
    # A connection that the user's own ssh shares is used; it may have asked for a second factor. tfmon shares
    # none: one connection carries all lanes of a host.
    *("-o", "ControlMaster=no", "-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none"),
)
"""The ssh command; the rest, including the checks of host keys, is the user's configuration."""
SHELL = "sh"
"""The program for the launcher: no login shell, launcher or container interprets this word differently."""
PYTHONS = ("python3", "python")
"""Tried in this order if the settings contain none."""
FIRST_WORD = Path(__file__).with_name("first_word.py")
PACKAGE = Path(__file__).parents[2]
SHIPPED = (
    *("__init__", "analysis/__init__", "analysis/rules", "errors", "report", "units"),
    *("doctor", "lanes", "model", "probes", "profile", "script", "trainer"),
)
"""The modules and packages that run on a host, and their imports."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """The agent's report about itself."""

    folder: str = ""
    python: str = ""
    pid: int = 0
    launcher: tuple[str, ...] = ()


class Wire:
    """A launcher and its pipes. Thread: one, except `kill`."""

    def __init__(self, host: Host) -> None:
        """Start the launcher; raises TfmonError if it did not start."""
        self.host = host
        self._marker = f"tfmon-{secrets.token_hex(8)}"
        argv = words_of(host)
        try:
            # A session of its own: neither Ctrl+C nor Ctrl+Z reaches it, and it can ask nothing at the terminal.
            self.popen = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise no_launcher(host, argv[0], error) from error
        assert self.popen.stdin and self.popen.stdout and self.popen.stderr
        self.in_fd = self.popen.stdin.fileno()
        self.out_fd = self.popen.stdout.fileno()
        self.error_fd = self.popen.stderr.fileno()
        for fd in (self.in_fd, self.out_fd, self.error_fd):
            os.set_blocking(fd, False)
        self.greeting = Greeting()
        self.received = b""
        self._cancelled = threading.Event()
        self._unsent = b""
        self._printed = b""
        self._said = b""
        self._out_open = True
        self.errors_open = True

    def greet(self) -> None:
        """Start the agent, and wait for its greeting; raises TfmonError for none; the launcher has ended then."""
        try:
            self._greet()
        except BaseException:
            self.kill()
            raise

    def _greet(self) -> None:
        host = self.host
        self._unsent = script_of(host, self._marker)
        patience_s = LAUNCHER_PATIENCE_S if host.run else PATIENCE_S if host.ray is None else RAY_PATIENCE_S
        first = self._next_word(patience_s)
        if "python" not in first:
            raise no_python(host)
        version = tuple(int(part) for part in first["python"])
        if version < OLDEST_PYTHON:
            raise old_python(host, version, clean(str(first.get("executable")), 200))
        code = packed()
        self._unsent += b"%012d" % len(code) + code
        ready = self._next_word(CODE_PATIENCE_S)
        if "failed" in ready:
            raise no_agent(host, str(ready["failed"]), str(ready["folder"]))
        self.greeting = Greeting(
            folder=str(ready["folder"]),
            python=str(ready["python"]),
            pid=int(ready["pid"]),
            launcher=tuple(self.said()),
        )
        self._said = b""  # output until now does not explain a later end

    def _next_word(self, patience_s: float) -> dict[str, Any]:
        """Wait for the next line with the marker, and keep the others for messages."""
        until_s = time.monotonic() + patience_s
        marker = self._marker.encode() + b" "
        while True:
            *lines, rest = self.received.split(b"\n")
            for number, line in enumerate(lines):
                # What is printed without a line's end stands before the marker.
                before, result, word = line.partition(marker)
                self._printed = (self._printed + (before if result else line + b"\n"))[-KEPT_BYTES:]
                if result:
                    self.received = b"\n".join([*lines[number + 1 :], rest])
                    with contextlib.suppress(ValueError):
                        fields = json.loads(word)
                        if isinstance(fields, dict):
                            return fields
                    raise no_agent(self.host, "its word cannot be read")
            self.received = rest[-KEPT_BYTES:]
            if not self._out_open:
                self._printed += rest
                raise ended_early(self.host, self.exit_code(), self.said(), self._printed.decode(errors="replace"))
            if self._cancelled.is_set():
                raise HostError(f"the connection to {self.host.name} was broken off")
            if time.monotonic() > until_s:
                printed = (self._printed + rest).decode(errors="replace")
                raise too_slow(self.host, patience_s, self.said(), printed)
            self._exchange()

    def _exchange(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self.out_fd, selectors.EVENT_READ)
            if self.errors_open:
                selector.register(self.error_fd, selectors.EVENT_READ)
            if self._unsent:
                selector.register(self.in_fd, selectors.EVENT_WRITE)
            for key, _ in selector.select(LOOK_S):
                if key.fd == self.in_fd:
                    try:
                        self._unsent = self._unsent[os.write(self.in_fd, self._unsent[:CHUNK_BYTES]) :]
                    except BlockingIOError:
                        pass
                    except OSError:  # it ended; what it said is still to be read
                        self._unsent = b""
                elif key.fd == self.out_fd:
                    chunk = os.read(self.out_fd, CHUNK_BYTES)
                    self._out_open = bool(chunk)
                    self.received += chunk
        self.read_errors()

    def read_errors(self) -> None:
        """Read the launcher's stderr."""
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(self.error_fd, CHUNK_BYTES)
            self.errors_open = bool(chunk)
            self._said = (self._said + chunk)[-KEPT_BYTES:]

    def said(self) -> list[str]:
        """Return the lines that the launcher wrote to stderr."""
        return self._said.decode(errors="replace").splitlines()

    def exit_code(self) -> int | None:
        """Return the launcher's exit code, or `None` if it does not end soon after its pipe."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(EXIT_PATIENCE_S)
        self.read_errors()
        return self.popen.returncode

    def cancel(self) -> None:
        """Have `greet` give up soon. Thread: any."""
        self._cancelled.set()

    def close(self) -> None:
        """Close the pipe to the agent, which ends it, and let the launcher end."""
        assert self.popen.stdin
        self.popen.stdin.close()

    def kill(self) -> None:
        """End the launcher and close its pipes."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            assert pipe
            with contextlib.suppress(OSError):
                pipe.close()


def words_of(host: Host) -> list[str]:
    """Return the command that starts a shell on a host; raises UsageError if ssh would read an option."""
    if host.ray is not None:
        return [*host.ray.command("lane"), SHELL]
    if host.run:
        return [*host.run, SHELL]
    if host.name.startswith("-") or not host.name:
        raise UsageError(f"{host.name!r} is not a host", "name one as ssh knows it, such as me@gpu2")
    return [*SSH, "--", host.name, SHELL]


def script_of(host: Host, marker: str, program: Path = FIRST_WORD) -> bytes:
    """Return the lines that make the shell a Python. Send nothing before its first line: a shell reads ahead."""
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
    """Quote a path for the shell, except a home at its beginning."""
    if python == "~" or python.startswith("~/"):
        return '"$HOME"' + shlex.quote(python[1:])
    return shlex.quote(python)


@functools.cache
def packed() -> bytes:
    """Return a zip of the code that a host needs. Thread: any."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(files().items()):
            # A fixed time: equal code makes equal bytes.
            entry = zipfile.ZipInfo(name)
            entry.external_attr, entry.compress_type = 0o600 << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return buffer.getvalue()


def files() -> dict[str, Path]:
    """Return the files of the zip by their name in it."""
    paths = [path for name in SHIPPED for path in (PACKAGE / f"{name}.py", *(PACKAGE / name).rglob("*.py"))]
    result = {str(path.relative_to(PACKAGE.parent)): path for path in paths if path.is_file()}
    nvml = importlib.util.find_spec("pynvml")  # one file, which a host need not have
    if nvml is not None and nvml.origin:
        result["pynvml.py"] = Path(nvml.origin)
    return result
