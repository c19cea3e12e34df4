"""tfmon in an emulated terminal, so that the screen can be read."""

import contextlib
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pexpect
import psutil
import pyte
from ptyprocess import PtyProcessError

from support.processes import gone as ended
from support.waiting import PATIENCE_S, wait_for

COLUMNS, ROWS = 120, 36
OF_THE_RUNNER = ("COLUMNS", "LINES", "NO_COLOR")
FAKE_TFMON = Path(__file__).with_name("fake_tfmon.py")
RESTORED = ("\x1b[?1049l", "\x1b[?25h")
"""The main screen is back, and the cursor with it."""


def gone(processes: list[psutil.Process]) -> bool:
    """Return True once all processes have ended; a busy machine may take its time for it."""
    wait_for(lambda: all(map(ended, processes)), what="all have ended")
    return True


def lanes_of(program: psutil.Process) -> list[psutil.Process]:
    """Return all processes below a program, without the fork that runs its race."""

    def forked(process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = process.parent()
            return parent is not None and process.cmdline() == parent.cmdline()
        return False

    return [process for process in program.children(recursive=True) if not forked(process)]


def racing(display: str) -> bool:
    return bool(re.search(r"\d steps/s", display))


class Terminal:
    """A program in an emulated terminal, tfmon by default."""

    def __init__(
        self,
        *arguments: str,
        program: Sequence[str] = ("-m", "tfmon"),
        executable: str = sys.executable,
        folder: Path | None = None,
        **environment: str,
    ) -> None:
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.Stream(self.screen)
        self.raw = self._begun = ""
        self.most, self.taken = 65_536, 0
        """How many bytes are read at once, at most, and how many were."""
        self.looks = True
        """Whether the output is parsed, not only counted."""
        # Its size is the terminal's, not the test runner's.
        inherited = {key: value for key, value in os.environ.items() if key not in OF_THE_RUNNER}
        self.process = pexpect.spawn(
            executable,
            [*program, *arguments],
            cwd=folder,
            dimensions=(ROWS, COLUMNS),
            env={**inherited, "TERM": "xterm-256color", **environment},
            encoding="utf-8",
            codec_errors="replace",
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # `nohup` disables it
        )

    def read(self) -> str:
        """Parse the new output, and return the screen."""
        try:
            text = self.process.read_nonblocking(self.most, timeout=0.05)
        except (pexpect.TIMEOUT, pexpect.EOF):
            text = ""
        self.taken += len(text.encode(errors="replace"))
        if not self.looks:
            return ""
        self.raw += text
        # pyte does not know the private form of `CSI u`, by which Textual asks for key reports; it may come cut.
        text = self._begun + text
        self._begun = re.search(r"(\x1b(\[[<>=?]?[0-9;]*)?)?$", text)[0]
        self._stream.feed(re.sub(r"\x1b\[[<>=?][0-9;]*u", "", text.removesuffix(self._begun)))
        return self.text()

    def text(self) -> str:
        return "\n".join(self.screen.display)

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        self.process.setwinsize(rows, columns)

    def wait_for(self, shown: Callable[[str], object], timeout_s: float = PATIENCE_S) -> str:
        try:
            wait_for(lambda: shown(self.read()), timeout_s)
        except AssertionError as error:
            raise AssertionError(f"not seen within {timeout_s} s:\n{self.text()}") from error
        return self.text()

    def children(self, at_least: int = 2) -> list[psutil.Process]:
        """Wait until so many processes are started, and return them."""
        program = psutil.Process(self.process.pid)
        self.wait_for(lambda _: len(lanes_of(program)) >= at_least)
        return lanes_of(program)

    def leave(self, code: int) -> str:
        """Quit with q, check that the terminal is restored and all lanes have ended; return the final output."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send("q")
        assert gone(children)
        assert self.wait_for_exit() == code
        assert all(sequence in self.raw for sequence in RESTORED)
        return self.raw.rsplit(RESTORED[0], 1)[1]

    def close(self) -> None:
        with contextlib.suppress(OSError, PtyProcessError, pexpect.ExceptionPexpect):
            if not self.process.closed:
                self.process.kill(signal.SIGKILL)
                self.process.close(force=True)

    def wait_for_exit(self) -> int | None:
        def over() -> bool:
            self.read()
            return not self.process.isalive()

        wait_for(over, what="the end of tfmon")
        before = -1
        while before != len(self.raw):
            before = len(self.raw)
            self.read()
        return self.process.exitstatus
