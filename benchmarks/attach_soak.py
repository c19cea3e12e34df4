"""Leaves a long training and comes back to it at random, and says whether anything was lost.

    python benchmarks/attach_soak.py [--minutes 60] [--attaches 50] [--seed N]

A Keras script trains under `tfmon watch --detach`. Terminals run `tfmon attach`, some at the same time, and end by
`q` and `d`, by SIGHUP, by SIGKILL or by closing; one viewer stays from the first moment to the last. In the end
exit code, steps and weights must be those without tfmon, and the recording must replay to what that viewer has.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import psutil
from common import options_of
from support.terminal import Terminal, gone, racing
from support.waiting import wait_for

from tfmon.api import sockets
from tfmon.api.viewer import Viewer
from tfmon.model.session import Snapshot
from tfmon.recordings.player import play_all

TRAINS = """
import hashlib, sys, time
import keras, numpy as np

epochs, pause = int(sys.argv[1]), float(sys.argv[2])
keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(8), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.random.default_rng(0).random((1600, 16), dtype="float32")

class Slowly(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(pause)

model.fit(x, x[:, :1], batch_size=8, epochs=epochs, verbose=0, callbacks=[Slowly()])
print(hashlib.sha256(b"".join(value.tobytes() for value in model.get_weights())).hexdigest())
sys.exit(3)
"""
PAUSE_S, STEPS_AN_EPOCH = 0.05, 200
WAYS = ("q and d", "SIGHUP", "SIGKILL", "closed")


def leave(terminal: Terminal, way: str) -> None:
    """End a viewer in one of the ways; raises AssertionError where it does not end."""
    viewer = psutil.Process(terminal.process.pid)
    if way == "q and d":
        for key in "qd":
            terminal.process.send(key)
            until = time.monotonic() + 0.5
            while time.monotonic() < until:
                terminal.read()
        terminal.wait_for_exit()
    elif way == "closed":
        terminal.process.ptyproc.fileobj.close()
    else:
        terminal.process.kill(getattr(signal, way))
    gone([viewer])


def attach_at_random(
    given: argparse.Namespace, chance: random.Random, name: str, runner: psutil.Process
) -> tuple[str, list[float]]:
    """Attach at random times; return the actions, and the memory of the runner in MB at each time."""
    every_s = 60 * given.minutes / (given.attaches + 1)
    done, memory, open_now = Counter[str](), [], list[Terminal]()
    for _ in range(given.attaches):
        until = time.monotonic() + chance.uniform(0.5, 1.5) * every_s
        open_now.append(Terminal("attach", name, *(("--readonly",) if chance.random() < 0.3 else ())))
        open_now[-1].wait_for(racing)
        memory.append(runner.memory_info().rss / 1e6)
        while time.monotonic() < until:
            for terminal in open_now:
                terminal.read()
        while open_now and (len(open_now) > 3 or chance.random() < 0.7):
            way = chance.choice(WAYS)
            leave(open_now.pop(chance.randrange(len(open_now))), way)
            done[way] += 1
    for terminal in open_now:
        leave(terminal, "SIGHUP")
    return ", ".join(f"{count} × {way}" for way, count in done.most_common()), memory


def known(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot without the time at which it was taken, and without the place of the recording."""
    return replace(snapshot, at_ns=0, recording=None)


def main() -> int:
    given = options_of(__doc__, minutes=60.0, attaches=50, seed=int.from_bytes(os.urandom(2), "big"))
    print(f"seed {given.seed}", flush=True)
    chance = random.Random(given.seed)
    with tempfile.TemporaryDirectory(prefix="tfmon-attach-") as folder:
        os.environ["TFMON_RECORDINGS"] = f"{folder}/recordings"
        script = Path(folder, "train.py")
        script.write_text(TRAINS)
        epochs = str(max(1, round(60 * given.minutes / PAUSE_S / STEPS_AN_EPOCH)))
        command = [sys.executable, str(script), epochs]
        plain = subprocess.run([*command, "0"], capture_output=True, text=True, check=False)
        watch = [sys.executable, "-m", "tfmon", "watch", "--detach", "--", *command, str(PAUSE_S)]
        print(subprocess.run(watch, capture_output=True, text=True, check=True).stdout, flush=True)
        wait_for(lambda: sockets.find("last"), what="it is under way")
        stays = Viewer(sockets.connect(sockets.find("last").path))
        stays.connect()
        runner = psutil.Process(stays.greeting.pid)
        done, memory = attach_at_random(given, chance, str(runner.pid), runner)
        patience_s = 600 + 60 * given.minutes
        wait_for(lambda: stays.session.snapshot().over, timeout_s=patience_s, what="the script has ended")
        stays.stop()
        gone([runner])
        (recording,) = Path(folder, "recordings").glob("*.gz")
        opened, replayed = play_all(recording)
        end = stays.session.snapshot()
        (lane,) = replayed.lanes
        output = [line.text for line in lane.log if line.text in plain.stdout.splitlines()]
        wrong = [
            f"{what}: {got} instead of {wanted}"
            for what, got, wanted in (
                ("exit code", lane.end.event.exit_code, plain.returncode),
                ("weights", output, plain.stdout.splitlines()),
                ("steps", lane.totals.steps, int(epochs) * STEPS_AN_EPOCH),
                ("what the recording says", known(replayed), known(end)),
            )
            if got != wanted
        ]
        print(f"{done}; {len(opened):,} events; memory of the runner {memory[0]:.1f} to {memory[-1]:.1f} MB")
    for line in wrong or ["nothing was lost"]:
        print(line[:2_000])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
