"""tfmon in a folder whose lanes have views of it."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from support.waiting import HANGS_S

ROOT = Path(__file__).parents[2]
PACKAGES = next(Path(one) for one in sys.path if one.endswith("site-packages"))
LANES = ("--lane", "cpu", "--lane", "cpu", "--slice", "0.2")
ORDINARY = "ordinary"
REFUSED = "refused"
"""Users of the system: one without rights, and one who may make no namespaces."""


def content(folder: Path) -> dict[str, str]:
    """Return the modes, times and contents of all files in a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        data = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(folder))] = (
            f"{about.st_mode} {about.st_mtime_ns} {hashlib.sha1(data).hexdigest()}"
        )
    return found


def mounts(store: Path) -> list[str]:
    """Mounts of any process that show a store."""
    found = []
    for path in Path("/proc").glob("[0-9]*/mountinfo"):
        try:
            found += [line for line in path.read_text().splitlines() if str(store) in line]
        except OSError:
            continue
    return found


class Runner:
    """Runs tfmon in a folder as some user of the system."""

    def __init__(self, folder: Path, store: Path, python: str = sys.executable, *before: str) -> None:
        self.folder, self.store = folder, store
        self._before, self._python = before, python
        self._environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{PACKAGES}"}
        self._environment.update(
            TFMON_RECORDINGS=str(store), TFMON_STATE=str(store), PYTHONDONTWRITEBYTECODE="1", HOME=str(store)
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [*self._before, self._python, "-m", "tfmon", *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=self.folder, env=self._environment, stdout=pipe, stderr=pipe, text=True
        )

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
