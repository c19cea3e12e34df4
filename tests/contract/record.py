"""Record the kept runs again: `python tests/contract/record.py [NAME…]`. Each trains for half a minute on the CPU.

Paths of the machine that records are replaced. Run `TFMON_UPDATE=1 pytest tests/contract` afterwards.
"""

import gzip
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from support.sshd import running_sshd  # noqa: E402 - the path is set above

from contract.kept_runs import KEPT, SWEEP, recording  # noqa: E402

VALIDATED = """
import keras
import numpy as np

keras.utils.set_random_seed(1)
data = np.random.default_rng(1)
x, y = data.normal(size=(6_000, 64)), data.normal(size=(6_000, 1))
model = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(x, y, batch_size=16, epochs=10, validation_split=0.5, verbose=0)
"""
FAILS = """
import os

import keras
import numpy as np

x, y = np.ones((640, 8)), np.ones((640, 1))
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
for epoch in range(90):
    model.fit(x, y, verbose=0)
    if epoch == 30 and os.environ["TFMON_LANE"] == "B":
        raise ValueError("the labels of shard 7 are missing")
"""
TWO = ("--lane", "cpu", "--lane", "cpu,batch_size=64", "--seconds", "15")
RUNS: dict[str, tuple[str, ...]] = {
    "race": ("race", "small-dense", *TWO, "--headless"),
    "repeat": ("race", "small-dense", *TWO, "--set", "prefetch=2", "--headless"),
    "three": (
        "race", "small-dense", "--lane", "cpu", "--lane", "cpu,batch_size=64", "--lane", "cpu,graph=false",
        "--seconds", "20", "--headless",
    ),
    "failed": ("race", "--lane", "cpu", "--lane", "cpu", "--headless", "--", sys.executable, "fails.py"),
    "remote": ("race", "small-dense", "--lane", "cpu", "--lane", "gpu2/cpu", "--seconds", "15", "--headless"),
    "watch": ("watch", "--headless", "--", sys.executable, "validated.py"),
    "tune": ("tune", "small-dense", "--json"),
    "crossover": (
        "crossover", "small-dense", "--lane", "cpu", "--lane", "cpu,graph=false", "--from", "8", "--to", "64",
        "--json",
    ),
    "sweep": ("sweep", "small-dense", "--over", "batch_size=16,64,256", "--limit", "10", "--headless"),
}  # fmt: skip


def main() -> None:
    names = sys.argv[1:] or list(RUNS)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "validated.py").write_text(VALIDATED)
        (folder / "fails.py").write_text(FAILS)
        (folder / "sshd").mkdir()
        with running_sshd(folder / "sshd") as sshd:
            if sshd is None:
                sys.exit("an sshd is needed for the lane on another host")
            settings = folder / "config.toml"
            settings.write_text(f'[hosts.gpu2]\npython = "{sys.executable}"\n')
            path = os.pathsep.join([sshd.put_client(), os.environ["PATH"]])
            private = {"HOME": scratch, "TFMON_CONFIG": str(settings), "PATH": path, "PYTHONPATH": str(ROOT)}
            for name in names:
                record(name, folder, {**os.environ, **private})


def record(name: str, folder: Path, environment: dict[str, str]) -> None:
    """Record one run, and keep its file without the paths of this machine."""
    file = folder / f"{name}{'.sweep' if name == SWEEP else '.jsonl'}"
    before, *command = RUNS[name]
    words = [sys.executable, "-m", "tfmon", before, "--record", file.name, *command]
    done = subprocess.run(words, cwd=folder, env=environment, check=False)
    text = file.read_text(encoding="utf-8")
    for path, instead in (
        (str(folder), "/home/me/project"),
        (sys.prefix, "/home/me/tf"),
        (str(ROOT), "/home/me/tfmon"),
    ):
        text = text.replace(path, instead)
    KEPT.mkdir(exist_ok=True)
    if name == SWEEP:
        recording(name).write_text(text, encoding="utf-8")
    else:
        recording(name).write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{name}: exit code {done.returncode}, {recording(name).stat().st_size / 1024:.0f} KiB", flush=True)


if __name__ == "__main__":
    main()
