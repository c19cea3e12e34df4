"""How long a user waits: for the help, the list, and the first paint of the screen while TensorFlow still loads.

The screen is the real program in a pseudo-terminal; its first paint is when the name of the scenario has been
written. Each figure is the median and the slowest of several runs, after a discarded first run. Python
keeps its bytecode as it does for a user, whatever PYTHONDONTWRITEBYTECODE says here.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import pexpect
from common import options_of

ENVIRONMENT = {**os.environ, "TERM": "xterm-256color"}


def time_command(*words: str) -> float:
    """Return how long a command takes, in seconds."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "tfmon", *words], stdout=subprocess.DEVNULL, check=True, env=ENVIRONMENT)
    return time.perf_counter() - began


def time_first_paint() -> float:
    """Return the time from the command to the first paint, in seconds; the program is quit afterwards."""
    began = time.perf_counter()
    program = pexpect.spawn(sys.executable, ["-m", "tfmon"], dimensions=(36, 120), env=ENVIRONMENT)
    program.expect("tfmon")
    took = time.perf_counter() - began
    program.send("q")
    program.expect(pexpect.EOF, timeout=20)
    program.close()
    return took


def main() -> None:
    """Measure and print."""
    runs = options_of(__doc__, runs=7).runs
    figures: dict[str, Callable[[], float]] = {
        "tfmon --help": lambda: time_command("--help"),
        "tfmon list": lambda: time_command("list"),
        "first paint of tfmon": time_first_paint,
    }
    with tempfile.TemporaryDirectory() as folder:
        ENVIRONMENT.pop("PYTHONDONTWRITEBYTECODE", None)
        ENVIRONMENT["PYTHONPYCACHEPREFIX"] = folder
        for name, measure in figures.items():
            _, *times = [measure() for _ in range(runs + 1)]
            print(
                f"{name:22} median {statistics.median(times):.3f} s   slowest {max(times):.3f} s   ({runs} runs)"
            )


if __name__ == "__main__":
    main()
