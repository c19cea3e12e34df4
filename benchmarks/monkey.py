"""Presses random keys, clicks, scrolls and resizes over real lanes, as a cat on the keyboard would.

It prints its seed, which repeats the actions. If an action leaves tfmon, it starts again with the next seed.
Every twenty acts it asks for the race again, in 120 columns, and the screen must show it. It ends with 1 if that
fails, and for what `soak.py` checks: a crash, a traceback, a process that is left, a terminal that is not
restored, a recording that ends before its last event, a figure that grew.
"""

from __future__ import annotations

import collections
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from common import options_of
from soak import Soak

from tfmon.ui.keys import KEYS

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

    def __init__(self, *, seed: int) -> None:
        super().__init__(real=True, seed=seed)
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
            column, row = self.random.randint(1, self.size[0]), self.random.randint(1, self.size[1])
            for _ in range(self.random.choice([1, 1, 2])):
                self._send(f"\x1b[<{button};{column};{row}M")
                if button < 35:
                    self._send(f"\x1b[<{button};{column};{row}m")
        self.done[what] += 1
        if sum(self.done.values()) % ASKS_EVERY == 0:
            self._ask_for_the_race()

    def _send(self, text: str) -> None:
        self.sent.append(text)
        self.terminal.process.send(text)
        until = time.monotonic() + self.random.choice([0.0, 0.02, 0.3])
        while time.monotonic() < until:
            self.terminal.read()

    def _resize(self, columns: int, rows: int) -> None:
        self.size = columns, rows
        self.terminal.resize(columns, rows)

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


def main() -> int:
    given = options_of(__doc__, minutes=10.0, seed=int.from_bytes(os.urandom(2), "big"))
    print(f"seed {given.seed}", flush=True)
    before = Path.cwd()
    folder = os.environ["TFMON_RECORDINGS"] = tempfile.mkdtemp(prefix="tfmon-monkey-")
    os.chdir(folder)  # the screen is saved there
    ends_at, seed, wrong = time.monotonic() + 60 * given.minutes, given.seed, []
    try:
        while (left_s := ends_at - time.monotonic()) > 0 and not wrong:
            monkey = Monkey(seed=seed)
            try:
                monkey.run(left_s)
                wrong = monkey.wrong + monkey.end()
            finally:
                monkey.terminal.close()
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
