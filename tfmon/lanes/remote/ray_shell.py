"""What runs on a node of a Ray cluster: a command, whose pipes are passed on.

Ray sends the class there by value, so it imports the standard library only and stays readable for Python 3.9.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHUNK_BYTES = 65_536
KEPT_BYTES = 4_096
RAYS_OWN = ("OMP_NUM_THREADS", "PYTHONBREAKPOINT", "SPT_NOENV")
"""What Ray sets for its workers besides RAY_…; a lane gets what it has on the monitor's machine."""


class Shell:
    """A command and its pipes. Thread: `write` and `end` one, `read` another, the rest a third."""

    def start(self, command: list[str], given: dict[str, str], nice: int) -> dict[str, Any]:
        """Start the command, and return where it runs.

        Args:
            command: Its words.
            given: Variables that it has besides the node's.
            nice: The nice value that it ought to have.
        """
        import ray

        context = ray.get_runtime_context()
        visible = ",".join(sorted(context.get_accelerator_ids().get("GPU", [])))
        self.said = tempfile.TemporaryFile()  # noqa: SIM115 - open for as long as the command runs
        home = Path.home()
        self.popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            bufsize=0,
            env=surroundings(dict(os.environ), given, visible),
            cwd=home if home.is_dir() else None,
            start_new_session=True,
        )
        with contextlib.suppress(OSError):  # only root may lower it
            os.setpriority(os.PRIO_PROCESS, self.popen.pid, nice)
        self.written = 0
        return {"node": context.get_node_id(), "visible": visible}

    def write(self, number: int, data: bytes) -> None:
        """Write to the command's stdin; writes are numbered from 0."""
        if number != self.written:
            raise RuntimeError(f"write {number} came in place of {self.written}")
        self.written += 1
        assert self.popen.stdin
        while data:
            data = data[os.write(self.popen.stdin.fileno(), data) :]

    def end(self) -> None:
        """Close the command's stdin."""
        assert self.popen.stdin
        self.popen.stdin.close()

    def read(self) -> Iterator[bytes]:
        """Yield what the command writes, until it closes its stdout."""
        assert self.popen.stdout
        while data := os.read(self.popen.stdout.fileno(), CHUNK_BYTES):
            yield data

    def reap(self) -> tuple[int, str]:
        """Return the exit code, and the end of what was said on stderr."""
        code = 0
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self.popen.wait(1.0)
        self.said.seek(0)
        return code, self.said.read()[-KEPT_BYTES:].decode(errors="replace")


def surroundings(worker: dict[str, str], given: dict[str, str], visible: str) -> dict[str, str]:
    """Return the variables of a command: those of Ray's worker without what Ray added, and with what is given.

    Args:
        worker: The variables of Ray's worker.
        given: What the monitor's own lanes have of those that Ray sets.
        visible: The GPUs that are reserved, as Ray names them: it counts them as the driver does.
    """
    kept = {key: value for key, value in worker.items() if not key.startswith("RAY_") and key not in RAYS_OWN}
    own = str(Path(sys.executable).parent)
    path = own + os.pathsep + kept.get("PATH", os.defpath)
    return {
        **kept,
        **given,
        "PATH": path,
        "CUDA_VISIBLE_DEVICES": visible or "-1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
