"""A Ray cluster, as the monitor sees it: the bridge asks it what it has; one of our own is started and ended."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfmon.errors import UsageError
from tfmon.hosts.host import Host
from tfmon.hosts.ray_nodes import Refusal, matching
from tfmon.hosts.reservation import Reservation, gpus_needed, word_of
from tfmon.hosts.trouble import HostError, bridge_failed, no_bridge
from tfmon.hosts.wire import KEPT_BYTES
from tfmon.model.codec import CodecError, read
from tfmon.model.spec import SpecError, parse_lane

LOCAL = "local"
"""The address that stands for a cluster of our own."""
ASK_S = 40.0
HEAD_S = 60.0
"""How long a cluster of our own may take to start; it takes some seconds."""
END_S = 6.0


@dataclass(frozen=True, slots=True)
class RayNode:
    """A node of a cluster."""

    id: str
    name: str
    address: str
    hostname: str = ""
    kinds: tuple[str, ...] = ()
    """The kinds of its GPUs, as Ray calls them, such as H100."""
    cpus: float = 0
    gpus: float = 0
    memory_bytes: int = 0
    free_cpus: float | None = None
    """What is not reserved; None where Ray does not say it."""
    free_gpus: float | None = None


class RayCluster:
    """One cluster. Nothing is started before it is needed. Thread: any; what asks the cluster takes seconds."""

    def __init__(self, address: str = "", python: str = "", cpus: float = 1) -> None:
        """Name a cluster.

        Args:
            address: HOST:PORT; "local" for one of our own on this machine, that `close` ends; empty for
                RAY_ADDRESS, or else the one that runs on this machine.
            python: The Python with Ray that runs the bridge; by default this one.
            cpus: How many CPUs each reservation takes.
        """
        self._address, self._python, self._cpus = address, python or sys.executable, cpus
        self._token = self._own_address = ""
        self._starting = threading.Lock()
        self._head: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None

    def host(self, name: str, gpus: int = 0, python: str = "") -> Host:
        """Return how a part of the cluster is reached; see `reservation` for its name.

        Raises:
            HostError: A cluster of our own did not start.
        """
        return Host(name, python=python, ray=self._reservation(word_of(name), gpus))

    def nodes(self) -> tuple[RayNode, ...]:
        """Return the nodes that are alive.

        Raises:
            HostError: The cluster cannot be used.
        """
        try:
            done = subprocess.run(
                self._reservation("", 0).command("nodes"),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=ASK_S,
                start_new_session=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise HostError(f"the Ray cluster did not answer within {ASK_S:.0f} s") from None
        except OSError as error:
            raise no_bridge(self._python, error) from error
        if done.returncode:
            said = done.stderr[-KEPT_BYTES:].decode(errors="replace").splitlines()
            raise bridge_failed(said, f"it ended with exit code {done.returncode}")
        try:
            found: tuple[RayNode, ...] = read(json.loads(done.stdout), tuple[RayNode, ...], strict=False)
        except (ValueError, CodecError) as error:
            raise HostError(f"the bridge to Ray said what cannot be read: {error}") from error
        return found

    def workers(self, place: str) -> int:
        """Return for how many reservations such as `ray/gpu` or `ray:H100/gpu` there is room now.

        On the CPU there is room for one a node: its lanes use all cores.

        Raises:
            UsageError: There can be no such place.
            HostError: The cluster cannot be used, or no node ever has room.
        """
        try:
            spec = parse_lane(place, ())
        except SpecError as error:
            raise UsageError(str(error)) from error
        asked = self._reservation(word_of(spec.host), gpus_needed([spec]))
        try:
            nodes = matching([asdict(node) for node in self.nodes()], asdict(asked))
        except Refusal as refusal:
            raise HostError(refusal.error, refusal.hint) from refusal
        rooms = [_room(node, asked) for node in nodes]
        return sum(rooms if asked.gpus else [min(room, 1) for room in rooms])

    def close(self) -> None:
        """End a cluster of our own, and remove its files. Takes some seconds."""
        with self._starting:
            self._end()

    # ---------------------------------------------------------------- a cluster of our own

    def _reservation(self, word: str, gpus: int) -> Reservation:
        with self._starting:
            if self._address == LOCAL and not self._own_address:
                try:
                    self._start()
                except BaseException:
                    self._end()
                    raise
            address = self._own_address if self._address == LOCAL else self._address
        return Reservation(self._python, address, self._token, word, gpus, self._cpus)

    def _start(self) -> None:
        """Start a cluster that listens on the loopback interface alone, and to those with its token."""
        self._folder = Path(tempfile.mkdtemp(prefix="tfmon-ray-"))
        token = self._folder / "token"
        token.touch(0o600)
        token.write_text(secrets.token_hex(32))
        self._token = str(token)
        try:
            self._head = subprocess.Popen(
                Reservation(self._python, token=self._token).command("head"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise no_bridge(self._python, error) from error
        self._own_address = self._first_word(self._head)

    def _end(self) -> None:
        if self._head is not None:
            assert self._head.stdin
            self._head.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._head.wait(END_S)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._head.pid, signal.SIGKILL)
            self._head.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._head = self._folder = None
        self._own_address = ""

    def _first_word(self, head: subprocess.Popen[bytes]) -> str:
        """Return the address that a new cluster says."""
        assert head.stdout and head.stderr
        heard, until_s = b"", time.monotonic() + HEAD_S
        otherwise = f"no cluster was started within {HEAD_S:.0f} s"
        with selectors.DefaultSelector() as selector:
            selector.register(head.stdout, selectors.EVENT_READ)
            while not heard.endswith(b"\n") and selector.select(max(0.0, until_s - time.monotonic())):
                part = os.read(head.stdout.fileno(), KEPT_BYTES)
                if not part:
                    otherwise = "it ended before there was a cluster"
                    break
                heard += part
        if heard.endswith(b"\n"):
            return str(json.loads(heard)["address"])
        os.set_blocking(head.stderr.fileno(), False)
        said = (head.stderr.read(KEPT_BYTES) or b"").decode(errors="replace")
        raise bridge_failed(said.splitlines(), otherwise)


def _room(node: Mapping[str, Any], asked: Reservation) -> int:
    """Return how many reservations a node has room for; what it has counts where Ray does not say what is free."""
    rooms = []
    for key, amount in (("gpus", asked.gpus), ("cpus", asked.cpus)):
        if amount:
            free = node["free_" + key]
            rooms.append(int((node[key] if free is None else free) / amount))
    return min(rooms, default=1)
