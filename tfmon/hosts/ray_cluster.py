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
from dataclasses import dataclass
from pathlib import Path

from tfmon.hosts.host import Host
from tfmon.hosts.reservation import Reservation, gpus_needed, told, word_of
from tfmon.hosts.trouble import HostError
from tfmon.model.codec import CodecError, clean, read
from tfmon.model.spec import parse_lane

LOCAL = "local"
"""The address that stands for a cluster of our own."""
ASK_S = 40.0
HEAD_S = 60.0
"""How long a cluster of our own may take to start; it takes some seconds."""
END_S = 6.0
KEPT_BYTES = 16_384


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
        self._token = ""
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
        said = ""
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
            raise self._no_bridge(error) from error
        said = done.stderr[-KEPT_BYTES:].decode(errors="replace")
        if done.returncode:
            raise self._why(said, f"it ended with exit code {done.returncode}")
        try:
            found: tuple[RayNode, ...] = read(json.loads(done.stdout), tuple[RayNode, ...], strict=False)
        except (ValueError, CodecError) as error:
            raise HostError(f"the bridge to Ray said what cannot be read: {error}") from error
        return found

    def workers(self, place: str) -> int:
        """Return for how many reservations such as `ray/gpu` or `ray:H100/gpu` there is room now; see `nodes`.

        On the CPU there is room for one a node: its lanes use all cores.
        """
        spec = parse_lane(place, ())
        gpus, word = gpus_needed([spec]), word_of(spec.host)
        rooms = [_room(node, gpus, self._cpus) for node in self.nodes() if not word or _fits(node, word)]
        return sum(rooms if gpus else [min(room, 1) for room in rooms])

    def close(self) -> None:
        """End a cluster of our own, and remove its files. Takes some seconds."""
        with self._starting:
            if self._head is not None:
                assert self._head.stdin
                self._head.stdin.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._head.wait(END_S)
                _kill(self._head)
                self._head = None
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None

    # ---------------------------------------------------------------- a cluster of our own

    def _reservation(self, word: str, gpus: int) -> Reservation:
        with self._starting:
            if self._address == LOCAL and self._head is None:
                self._start()
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
            raise self._no_bridge(error) from error
        self._own_address = self._first_word(self._head)

    def _first_word(self, head: subprocess.Popen[bytes]) -> str:
        """Return the address that a new cluster says."""
        assert head.stdout and head.stderr
        heard, until_s = b"", time.monotonic() + HEAD_S
        with selectors.DefaultSelector() as selector:
            selector.register(head.stdout, selectors.EVENT_READ)
            while not heard.endswith(b"\n") and selector.select(max(0.0, until_s - time.monotonic())):
                part = os.read(head.stdout.fileno(), KEPT_BYTES)
                if not part:
                    break
                heard += part
        if heard.endswith(b"\n"):
            return str(json.loads(heard)["address"])
        _kill(head)
        said = head.stderr.read(KEPT_BYTES).decode(errors="replace")
        raise self._why(said, f"no cluster was started within {HEAD_S:.0f} s")

    def _no_bridge(self, error: OSError) -> HostError:
        why = error.strerror or str(error)
        return HostError(f"{self._python} did not start: {why}", "--ray-python names a Python that has Ray")

    def _why(self, said: str, otherwise: str) -> HostError:
        words = told(said.splitlines())
        if words.get("error"):
            return HostError(clean(str(words["error"]), 400), clean(str(words.get("hint", "")), 400))
        last = [line for line in said.splitlines() if line.strip()]
        return HostError(f"the bridge to Ray failed: {clean(last[-1], 200) if last else otherwise}")


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _fits(node: RayNode, word: str) -> bool:
    names = (node.name, node.address, node.hostname, node.id)
    return word in names or word.lower() in map(str.lower, node.kinds)


def _room(node: RayNode, gpus: int, cpus: float) -> int:
    """Return how many reservations a node has room for; what it has counts where Ray does not say what is free."""
    rooms = []
    for free, total, amount in ((node.free_gpus, node.gpus, gpus), (node.free_cpus, node.cpus, cpus)):
        if amount:
            rooms.append(int((total if free is None else free) / amount))
    return min(rooms, default=0)
