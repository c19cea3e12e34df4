"""tfmon in a folder whose lanes have views of it."""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

from support.processes import gone
from support.waiting import HANGS_S, wait_for

ROOT = Path(__file__).parents[2]
PACKAGES = next(Path(one) for one in sys.path if one.endswith("site-packages"))
LANES = ("--lane", "cpu", "--lane", "cpu", "--slice", "0.2")
ORDINARY = "ordinary"
REFUSED = "refused"
"""Users of the system: one without rights, and one who may make no namespaces."""


def content(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        data = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(folder))] = (
            f"{about.st_mode} {about.st_mtime_ns} {hashlib.sha1(data).hexdigest()}"
        )
    return found


def mounts(store: Path) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/mountinfo"):
        try:
            found += [line for line in path.read_text().splitlines() if str(store) in line]
        except OSError:
            continue
    return found


class Runner:
    def __init__(self, folder: Path, store: Path, python: str = sys.executable, *before: str) -> None:
        self.folder, self.store = folder, store
        self._before, self._python = before, python

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [*self._before, self._python, "-m", "tfmon", *words]
        environment = {
            **os.environ, **dict.fromkeys(("TFMON_RECORDINGS", "TFMON_STATE", "HOME"), str(self.store)),
            "PYTHONPATH": f"{ROOT}{os.pathsep}{PACKAGES}", "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.folder, env=environment, stdout=pipe, stderr=pipe, text=True)

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        started = self.start(*words)
        stdout, stderr = started.communicate(timeout=HANGS_S)
        return subprocess.CompletedProcess(words, started.returncode, stdout, stderr)

    def race(self, text: str, *words: str, script: Sequence[str] = ()) -> dict:
        """Race a script, and return the result; a folder that changed fails."""
        (self.folder / "train.py").write_text(text)
        before = content(self.folder)
        lanes = () if "--lane" in words else LANES
        done = self("race", *lanes, *words, "--json", "--", self._python, "train.py", *script)
        assert done.returncode == 0, done.stdout[-3_000:] + done.stderr
        assert content(self.folder) == before
        return {**json.loads(done.stdout), "stderr": done.stderr}

    def kill(self, *words: str, at: str, lanes: bool = False) -> None:
        """Kill a command once a path of its store was seen, with its lanes or alone: nothing of it is left."""
        before, before_mounts = content(self.folder), len(mounts(self.store))
        started = self.start(*words)
        wait_for(lambda: list(self.store.glob(at)) or started.poll() is not None, what=at)
        monitor = psutil.Process(started.pid)
        processes = [monitor, *monitor.children(recursive=True)]
        for process in processes if lanes else processes[:1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        started.communicate()
        wait_for(lambda: all(map(gone, processes)), what="all processes are gone")
        wait_for(lambda: len(mounts(self.store)) <= before_mounts, what="no mount is left")
        assert content(self.folder) == before
