"""Presses random keys, clicks, scrolls and resizes over real lanes, as a cat on the keyboard would.

With `--scripts` it watches five scripts, one after the other, for a fifth of the time each, and trains each beside
it without tfmon. No key is pressed, no cell clicked, that changes a setting or confirms an end; so each is to be
started once, and to end with the exit code, the last line and the weights, to the bit, that it has without tfmon.

It prints its seed, which repeats the actions. If an action leaves tfmon, it starts again with the next seed.
Every twenty acts it asks for the race again, in 120 columns, and the screen must show it. It ends with 1 if that
fails, and for what `soak.py` checks: a crash, a traceback, a process that is left, a terminal that is not
restored, a recording that ends before its last event, a figure that grew.
"""

from __future__ import annotations

import collections
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from common import options_of
from soak import RACE, Soak

from tfmon.recordings.library import RecordedRun, runs
from tfmon.recordings.player import play_all
from tfmon.ui.keys import KEYS

TESTS = Path(__file__).resolve().parents[1] / "tests"
SIZES = ((120, 36), (80, 24), (200, 50), (60, 15), (40, 12), (21, 5), (300, 80), (1, 1))
"""Columns and rows."""
LEAVE_OR_SUSPEND = ("app.quit", "quit", "stop")
CLOSES_OR_LEAVES = "q"
"""On a page it closes the page, on the race it leaves: Escape closes pages here."""
SPECIAL = {
    "escape": "\x1b", "enter": "\r", "space": " ", "tab": "\t", "shift+tab": "\x1b[Z", "backspace": "\x7f",
    "up": "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D", "home": "\x1b[H", "end": "\x1b[F",
    "pageup": "\x1b[5~", "pagedown": "\x1b[6~", "delete": "\x1b[3~", "f1": "\x1bOP", "shift+left": "\x1b[1;2D",
    "shift+right": "\x1b[1;2C", "ctrl+left": "\x1b[1;5D", "ctrl+right": "\x1b[1;5C", "ctrl+p": "\x10",
    "ctrl+u": "\x15",
    "colon": ":", "comma": ",", "full_stop": ".", "question_mark": "?", "slash": "/", "minus": "-", "plus": "+",
    "equals_sign": "=", "left_square_bracket": "[", "right_square_bracket": "]",
}  # fmt: skip
ASKS_EVERY = 20
SCRIPTS = ("text_classification", "image_classifier", "legacy_keras")
CHANGES = set("pbBgxmkEecutsq\r :\x10")
"""Keys that change a setting, pause, leave, or open a page that can do so."""
KEYS_ROWS, SIZES_THAT_COUNT = 3, 3
"""Rows at the end of the screen that may show keys, and how many sizes back tfmon may still draw."""
QUESTION = "again: yes"
GUEST = """
import hashlib, os, runpy, sys, time
import keras
path, minutes, name = sys.argv[1], float(sys.argv[2]), sys.argv[3]
with open(name + ".started", "a") as file:
    file.write("started ")
keras.utils.set_random_seed(1)
digest, began, done = hashlib.sha256(), time.monotonic(), 0

def enough():
    if name == "watched":
        return time.monotonic() > began + 60 * minutes
    return os.path.exists("watched.ended") and done >= int("0" + open("watched.ended").read())

while not enough():
    for model in runpy.run_path(path).values():
        if isinstance(model, keras.Model):
            for weights in model.get_weights():
                digest.update(weights.tobytes())
    done += 1
    print(f"{done} times, weights {digest.hexdigest()}", flush=True)
with open(name + ".ended", "w") as file:
    file.write(str(done))
sys.exit(3)
"""
"""Trains a script repeatedly: watched for a time, alone at least as often. Ends with code 3."""


def keystrokes() -> list[str]:
    """Return the bytes of a terminal for every key of tfmon, except for the keys that leave it."""
    names = {name for key in KEYS if key.action not in LEAVE_OR_SUSPEND for name in key.keys.split(",")}
    names -= {CLOSES_OR_LEAVES, *(name for name in names if name.startswith("ctrl+") and name not in SPECIAL)}
    unknown = sorted(name for name in names if len(name) > 1 and name not in SPECIAL)
    assert not unknown, f"what a terminal sends for {unknown} is not known here"
    return sorted(SPECIAL.get(name, name) for name in names) + list("xyz 12/ü\x7f")


class Monkey(Soak):
    """One run."""

    pause_s = (0.05, 0.5)
    may_leave = True

    def __init__(self, *, seed: int, words: Sequence[str] = RACE) -> None:
        super().__init__(real=True, seed=seed, words=words)
        self.keystrokes = keystrokes()
        self.size = SIZES[0]
        self.wrong: list[str] = []
        self.sent: collections.deque[str] = collections.deque(maxlen=40)

    def act(self) -> None:
        """Do one random thing, and ask for the race now and then."""
        what = self.random.choices(["key", "click", "scroll", "resize"], weights=[12, 3, 2, 1])[0]
        if what == "key":
            self._send(self.random.choice(self.keystrokes))
        elif what == "resize":
            self._resize(*self.random.choice(SIZES))
        else:
            button = self.random.choice([0, 0, 0, 2] if what == "click" else [64, 65, 35])
            first, last = self._rows()
            column, row = self.random.randint(1, self.size[0]), self.random.randint(first, max(first, last))
            for _ in range(self.random.choice([1, 1, 2]) if first <= last else 0):
                self._send(f"\x1b[<{button};{column};{row}M")
                if button < 35:
                    self._send(f"\x1b[<{button};{column};{row}m")
        self.done[what] += 1
        if sum(self.done.values()) % ASKS_EVERY == 0:
            self._ask_for_the_race()

    def close(self) -> None:
        """End what runs."""
        self.terminal.close()

    def _rows(self) -> tuple[int, int]:
        """Return the first and the last row that may be clicked."""
        return 1, self.size[1]

    def _send(self, text: str) -> None:
        self.sent.append(text)
        self.terminal.process.send(text)
        until = time.monotonic() + self.random.choice([0.0, 0.02, 0.3])
        while time.monotonic() < until:
            self.terminal.read()

    def _resize(self, columns: int, rows: int) -> None:
        self.size = columns, rows
        self.terminal.screen.resize(rows, columns)
        self.terminal.process.setwinsize(rows, columns)

    def _ask_for_the_race(self) -> None:
        """Close every dialog, check that the race is on the screen, and restart its lanes."""
        self._resize(*SIZES[0])
        self.press(*["\x1b"] * 5)

        def shows_the_race(text: str) -> bool:
            above = text.splitlines()[:2]  # the tabs are above the header
            return not self.terminal.process.isalive() or any(row.lstrip().startswith("tfmon") for row in above)

        try:
            self.terminal.wait_for(shows_the_race, timeout_s=30)
        except AssertionError as error:
            self.wrong.append(f"after {sum(self.done.values())} acts the race is {error}")
        self.press("r")


class Watcher(Monkey):
    """Random keys over one script."""

    may_leave, codes = False, (3,)

    def __init__(self, script: str, minutes: float, *, seed: int) -> None:
        Path("guest.py").write_text(GUEST)
        self.script = script
        path = str(TESTS / "scripts" / "shapes" / f"{script}.py")
        command = [sys.executable, "guest.py", path, str(minutes)]
        with Path("alone.out").open("w") as printed:
            self.alone = subprocess.Popen([*command, "alone"], stdout=printed, stderr=subprocess.DEVNULL)
        super().__init__(seed=seed, words=("watch", "--", *command, "watched"))
        self.keystrokes = [key for key in self.keystrokes if key not in CHANGES]
        self.ended = Path("watched.ended")
        self.heights = collections.deque([SIZES[0][1]], maxlen=SIZES_THAT_COUNT)

    def act(self) -> None:
        """Do one random thing, and let no question be answered by the next."""
        super().act()
        while QUESTION in self.terminal.read() and self.terminal.process.isalive():
            pass

    def _resize(self, columns: int, rows: int) -> None:
        super()._resize(columns, rows)
        self.heights.append(rows)

    def _rows(self) -> tuple[int, int]:
        """Leave out the tabs and the keys, also at their previous positions."""
        return 2, min(self.heights) - KEYS_ROWS

    def close(self) -> None:
        """End what runs."""
        super().close()
        self.alone.kill()
        self.alone.wait()

    def press(self, *keys: str) -> None:
        """Press keys, but restart nothing."""
        super().press(*(key for key in keys if key != "r"))

    def run(self, seconds: float) -> None:
        """Press keys until the script has ended."""
        ends_at = time.monotonic() + seconds
        while not self.ended.exists() and time.monotonic() < ends_at and self.terminal.process.isalive():
            self.act()
            self.lanes()
            until = time.monotonic() + self.random.uniform(*self.pause_s)
            while time.monotonic() < until:
                self.terminal.read()
            self.terminal.raw = self.terminal.raw[-20_000:]

    def end(self) -> list[str]:
        """Leave, wait until it has trained as often without tfmon, and return what differs."""
        if not self.ended.exists():
            return [f"{self.script} did not end: {self.terminal.read()}"]
        while not _latest().closed and self.terminal.process.isalive():  # before that `q` asks a question
            self.press("\x1b")
        wrong = super().end()
        code = self.alone.wait()
        last = f"{self.ended.read_text()} times, "
        printed = [line for line in Path("alone.out").read_text().splitlines() if line.startswith(last)]
        _, known = play_all(_latest().file)
        (lane,) = known.lanes
        assert lane.end.event is not None
        changes = [change.text for period in known.periods for change in period.changes]
        watched = (
            lane.end.event.exit_code,
            lane.end.event.requested,
            changes,
            list(lane.end.event.output_tail[-1:]),
        )
        alone = code, False, [], printed
        starts = len(Path("watched.started").read_text().split())
        print(f"{self.script}: {printed}, {lane.totals.steps:,} steps seen")
        if watched != alone or starts != 1:
            wrong.append(f"{self.script}, started {starts} times, ended as {watched}, without tfmon as {alone}")
        for name in ("watched.started", "watched.ended", "alone.started", "alone.ended"):
            Path(name).unlink(missing_ok=True)
        return wrong


def _latest() -> RecordedRun:
    return max(runs(), key=lambda run: run.path.stat().st_mtime)


def main() -> int:
    given = options_of(__doc__, minutes=10.0, seed=int.from_bytes(os.urandom(2), "big"), scripts=False)
    print(f"seed {given.seed}", flush=True)
    before = Path.cwd()
    folder = os.environ["TFMON_RECORDINGS"] = tempfile.mkdtemp(prefix="tfmon-monkey-")
    os.chdir(folder)  # the screen is saved there
    ends_at, seed, wrong = time.monotonic() + 60 * given.minutes, given.seed, []
    try:
        scripts = itertools.cycle(SCRIPTS)
        while (left_s := ends_at - time.monotonic()) > 0 and not wrong:
            monkey = Watcher(next(scripts), given.minutes / 5, seed=seed) if given.scripts else Monkey(seed=seed)
            try:
                monkey.run(left_s + 600 if given.scripts else left_s)
                wrong = monkey.wrong + monkey.end()
            finally:
                monkey.close()
            monkey.report()
            sys.stdout.flush()
            if wrong:
                print(f"seed {seed}, in {monkey.size} at last: {list(monkey.sent)}, recorded in {folder}")
            seed += 1
    finally:
        os.chdir(before)
        if not wrong:
            shutil.rmtree(folder, ignore_errors=True)
    for line in wrong or ["nothing was wrong"]:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
