"""Measures the cost of the screen: CPU, bytes to the terminal, memory, and the time of keys.

    python benchmarks/screen_cost.py [--seconds 30] [--runs 1] [--against FOLDER] [--scripted] [--only PARTS]

Runs the real program in a pseudo-terminal of 120x36 at its default refresh, with two lanes that train small-dense
in turns on the CPU. The figures are those of the viewer and of the process that runs the race, with all their
threads, sampling and recording included, after they have settled; not of the lanes. With several runs a figure is
the median, with the least and the most behind it; `--against` measures another checkout in turn with this one.
`--scripted` has lanes that report like small-dense but do not train, for a machine that is too busy to train.

PARTS: two, six, keys, script (a user's command, which has a process of its own: counted are that and its viewer,
then that alone), peers (htop, btop, nvitop; one that does not run is named with what it says). `goals` stands for
two,six,keys,peers. Each figure that has a goal is printed with it. A key counts as echoed when the terminal has
been given the words that it changes.

Python keeps its bytecode as it does for a user, whatever PYTHONDONTWRITEBYTECODE says here: a program that
compiles its modules at each start takes 7 MiB more from then on. The first start of each checkout is not counted.

With `two`, the figure in the status line is read after ten seconds and compared with the count in this time.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import statistics
import sys
import tempfile
import textwrap
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import psutil
from common import met, options_of
from link import Link
from support.terminal import racing

THIS = Path(__file__).resolve().parents[1]
SETTLE_S = 12.0
"""From the first window on: by then statistics are loaded, all charts move, and what grows at first has grown."""
KEY_S = 5.0
ESCAPE = "\x1b[27u"
TWO = ("cpu,prefetch=off", "cpu,prefetch=auto")
SIX = tuple(f"cpu,batch_size={2**power}" for power in range(2, 8))
MEMORY = "resident, shared pages in parts"
NO_LANES = {"script", "peers"}
"""Parts that start no lane of a scenario, so that they run without TensorFlow."""
SAID = "status line off by"
STATUS = re.compile(r"tfmon (\d+\.\d) %")
STATUS_S = 10.0
"""The status line has the mean of ten samples, one a second."""
GOALS = {
    "two lanes: CPU": 1.5,
    "two lanes: CPU of the runner": 1.0,
    "two lanes: CPU of the viewer": 0.5,
    "two lanes: written": 1.2,
    f"two lanes: {MEMORY}": 80.0,
    f"two lanes: {SAID}": 0.2,
    "six lanes: CPU": 2.3,
    "key to echo: 95 % within": 20.0,
}
"""At most."""


class Figures:
    """Figures by name and place, which are printed as medians."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str, str], list[float]] = defaultdict(list)

    def add(self, part: str, place: str, unit: str, value: float) -> None:
        """Keep one measurement."""
        self._values[part, place, unit].append(value)
        print(f"  {place:10} {part:42} {value:9.3f} {unit}", flush=True)

    def print(self) -> None:
        """Print the medians."""
        print(f"\n{'median (least to most)':42} {'':10}")
        for (part, place, unit), values in sorted(self._values.items()):
            spread = f"({min(values):.3f} to {max(values):.3f})" if len(values) > 1 else ""
            median = statistics.median(values)
            goal = f"goal {GOALS[part]:g}: {met(median <= GOALS[part])}" if part in GOALS else ""
            print(f"{part:42} {place:10} {median:9.3f} {unit}   {spread} {goal}".rstrip())


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process, of its threads that ended, too: to the nanosecond, or by psutil."""
    try:
        return time.clock_gettime((~pid << 3) | 2)  # clock_getcpuclockid(3) of Linux
    except OSError:
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)


def runners(pid: int) -> list[psutil.Process]:
    """Return the runner of a viewer, if there is one: a fork with the same command line."""
    viewer = psutil.Process(pid)
    return [child for child in viewer.children() if child.cmdline() == viewer.cmdline()]


def measure(
    figures: Figures,
    part: str,
    place: str,
    program: Link,
    seconds: float,
    processes: Sequence[psutil.Process] = (),
) -> None:
    """Measure the cost of a program, or of some of its processes, over a time."""
    pids = [one.pid for one in processes or (psutil.Process(program.process.pid), *runners(program.process.pid))]
    program.looks = False
    began, before, taken = time.monotonic(), [*map(cpu_s, pids)], program.taken
    program.run(seconds)
    took = time.monotonic() - began
    used = [100 * (cpu_s(pid) - start) / took for pid, start in zip(pids, before, strict=True)]
    figures.add(f"{part}: CPU", place, "% of a core", sum(used))
    if len(pids) == 2:
        figures.add(f"{part}: CPU of the viewer", place, "% of a core", used[0])
        figures.add(f"{part}: CPU of the runner", place, "% of a core", used[1])
    figures.add(f"{part}: written", place, "kB/s", (program.taken - taken) / took / 1e3)
    memory = [psutil.Process(pid).memory_full_info() for pid in pids]
    figures.add(f"{part}: resident", place, "MiB", sum(one.rss for one in memory) / 2**20)
    if hasattr(memory[0], "pss"):
        shared = sum(one.pss for one in memory) / 2**20
        figures.add(f"{part}: {MEMORY}", place, "MiB", shared)
    program.looks = True


def compare_status_line(figures: Figures, place: str, program: Link) -> None:
    """Measure until the mean of the status line is complete, and keep its difference from the count.

    Call it before `measure`, which does not read the output.
    """
    pids = [program.process.pid, *(runner.pid for runner in runners(program.process.pid))]
    began, before = time.monotonic(), sum(map(cpu_s, pids))
    program.run(STATUS_S)
    cpu_pct = 100 * (sum(map(cpu_s, pids)) - before) / (time.monotonic() - began)
    shown = STATUS.search(program.wait_for(STATUS.search))
    figures.add("two lanes: as the status line says", place, "% of a core", float(shown[1]))
    figures.add(f"two lanes: {SAID}", place, "% of a core", abs(float(shown[1]) - cpu_pct))


def start(folder: Path, lanes: Sequence[str], scripted: bool) -> Link:
    """Start a race with the program of a checkout, and wait until its figures are there and it has settled."""
    words = [word for lane in lanes for word in ("--lane", lane)]
    what = (str(folder / "tests" / "support" / "fake_tfmon.py"),) if scripted else ("-m", "tfmon")
    program = Link(
        "race", "small-dense", *words, program=what, folder=folder, PYTHONPATH=str(folder),
        TFMON_TEST_CHILD=str(folder / "benchmarks" / "scripted_lane.py"), COLORTERM="truecolor",
        TFMON_RECORDINGS=f"{tempfile.gettempdir()}/tfmon-screen-cost",
    )  # fmt: skip
    program.wait_for(racing)
    program.run(SETTLE_S)
    return program


def key_times(program: Link, presses: int) -> list[float]:
    """Press Tab and Esc in turn; return the seconds from each press to its echo, infinity if there is none."""
    times = []
    for number in range(presses):
        program.run(0.1 + 0.37 * (number % 7) / 7)
        key, words = (("\t", "keys act on cpu"), (ESCAPE, "keys act on all"))[number % 2]
        pressed = time.monotonic()
        program.process.send(key)
        try:
            program.wait_for(lambda text, words=words: words in text, KEY_S)
            times.append(program.taken_at - pressed)
        except AssertionError:
            times.append(float("inf"))
    return times


def measure_two(figures: Figures, place: str, folder: Path, options: argparse.Namespace, wanted: set[str]) -> None:
    """Measure a race of two lanes and its keys."""
    if not wanted & {"two", "keys"}:
        return
    program = start(folder, TWO, options.scripted)
    if "two" in wanted:
        compare_status_line(figures, place, program)
        measure(figures, "two lanes", place, program, options.seconds)
    if "keys" in wanted:
        program.process.send("\x0c")
        times = sorted(key_times(program, options.presses))
        figures.add("key to echo: median", place, "ms", statistics.median(times) * 1e3)
        figures.add("key to echo: 95 % within", place, "ms", times[int(0.95 * (len(times) - 1))] * 1e3)
    figures.add("quit", place, "s", program.quit("q"))


SCRIPT = """
import time
from tfmon import report
while True:
    time.sleep(0.01)
    report.step(examples=4)
"""


def measure_script(figures: Figures, place: str, folder: Path, seconds: float) -> None:
    """Measure the cost of watching a user's command: with the screen, and after the screen is closed."""
    with tempfile.TemporaryDirectory(prefix="tfmon-") as scratch:
        script = Path(scratch) / "train.py"
        script.write_text(SCRIPT)
        program = Link(
            "watch", "--", sys.executable, str(script), folder=folder, PYTHONPATH=str(folder),
            COLORTERM="truecolor", TFMON_RECORDINGS=f"{scratch}/recordings", TFMON_RUNTIME=scratch,
        )  # fmt: skip
        program.wait_for(racing)
        program.run(SETTLE_S)
        measure(figures, "script", place, program, seconds)
        alone = runners(program.process.pid)
        if not alone:
            program.quit("qq")
            return
        program.process.kill(signal.SIGKILL)
        measure(figures, "script, no viewer", place, program, seconds, alone)
        program.close()
        alone[0].terminate()


def measure_peers(figures: Figures, seconds: float) -> None:
    """Measure other monitors, if they are installed and start."""
    folders = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for name in ("htop", "btop", "nvitop"):
        path = shutil.which(name, path=folders)
        if path is None:
            print(f"  {name} is not installed")
            continue
        peer = Link(program=("-c", f"import os; os.execv({path!r}, [{name!r}])"))
        peer.run(3)
        if peer.process.isalive():
            measure(figures, "peer", name, peer, seconds)
        else:
            print(f"  {name} does not start: {textwrap.shorten(peer.text(), 100)}")
        peer.quit("q")


def main() -> None:
    """Measure and print."""
    parts = "two,keys,six,script,peers"
    options = options_of(__doc__, seconds=30.0, runs=1, presses=40, scripted=False, against=str(THIS), only=parts)
    wanted = set(options.only.replace("goals", "two,six,keys,peers").split(","))
    if unknown := wanted - set(parts.split(",")):
        raise SystemExit(f"--only {','.join(sorted(unknown))}: name some of {parts}")
    places = {"this": THIS, **({} if options.against == str(THIS) else {"other": Path(options.against).resolve()})}
    figures = Figures()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = f"{tempfile.gettempdir()}/tfmon-screen-cost-bytecode"
    for folder in places.values() if wanted - NO_LANES else ():
        start(folder, TWO, options.scripted).quit("q")
    for _ in range(options.runs):
        for place, folder in places.items():
            measure_two(figures, place, folder, options, wanted)
            if "six" in wanted:
                program = start(folder, SIX, options.scripted)
                measure(figures, "six lanes", place, program, options.seconds)
                program.quit("q")
            if "script" in wanted:
                measure_script(figures, place, folder, options.seconds)
        if "peers" in wanted:
            measure_peers(figures, options.seconds)
    figures.print()


if __name__ == "__main__":
    main()
