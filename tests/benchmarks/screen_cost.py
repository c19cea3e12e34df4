"""What the screen costs: CPU of the monitor, bytes to the terminal, and how soon a key is echoed.

    python tests/benchmarks/screen_cost.py [--seconds 30] [--real] [--only two,eight,paused,keys,link,peers]

Runs the real program in a pseudo-terminal of 120x36 at its default refresh. Counted is the monitor's own process
with all its threads, sampling included, after it has settled; not its lanes. The lanes are scripted, and report as
those of small-dense do; `--real` trains with TensorFlow. Beside it run htop and btop, where they are installed, at
their own default refresh (1.5 s and 2 s; the monitor draws twice a second).

A key counts as echoed when the terminal has been given the words that it changes. `link` lets the terminal take
20 kB/s and no more: what the screen is then behind is the wait for a key.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

from benchmarks.common import options_of  # noqa: E402
from support.link import Link  # noqa: E402

LINK_BYTES_PER_S = 20_000
SETTLE_S = 12.0
"""From the first window on: by then statistics are loaded, all charts move, and what grows at first has grown."""
KEY_S = 2.0
SCRIPTED = (str(HERE.parent / "support" / "fake_tfmon.py"),)
REAL = ("-m", "tfmon")
TWO = ("cpu,prefetch=off", "cpu,prefetch=auto")
EIGHT = tuple(f"cpu,batch_size={2**power}" for power in range(2, 10))


@dataclass(frozen=True, slots=True)
class Cost:
    """What a program took over a stretch of time."""

    core_pct: float
    """CPU time of all its threads over wall time."""
    bytes_per_s: float


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process's threads: on Linux by the scheduler, to the nanosecond, else by psutil."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
    except (OSError, IndexError):
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)


def measure(program: Link, seconds: float) -> Cost:
    """Return what a program takes over so long."""
    program.looks = False
    began, before, taken = time.monotonic(), cpu_s(program.pid), program.taken
    program.run(seconds)
    took = time.monotonic() - began
    return Cost(100 * (cpu_s(program.pid) - before) / took, (program.taken - taken) / took)


def start(lanes: Sequence[str], real: bool, bytes_per_s: float | None = None) -> Link:
    """Start a race and wait until its figures are there and it has settled."""
    words = [word for lane in lanes for word in ("--lane", lane)]
    program = Link(
        [sys.executable, *(REAL if real else SCRIPTED), "race", "small-dense", *words],
        bytes_per_s,
        {"TFMON_TEST_CHILD": str(HERE / "scripted_lane.py"), "PYTHONPATH": str(HERE.parents[1])},
    )
    if not program.wait_for(lambda text: "steps/s" in text):
        raise SystemExit("the race did not start:\n" + "\n".join(program.screen.display))
    program.run(SETTLE_S)
    return program


def key_times(program: Link, presses: int) -> list[float]:
    """Press Tab and Esc in turn and return the time from each press to its echo, in seconds."""
    times = []
    for number in range(presses):
        key, words = (("\t", "keys act on cpu"), ("\x1b[27u", "keys act on all"))[number % 2]
        program.run(0.1 + 0.37 * (number % 7) / 7)
        pressed = time.monotonic()
        program.press(key)
        seen = program.wait_for(lambda text, words=words: words in text, KEY_S)
        times.append(program.taken_at - pressed if seen else float("inf"))
    return times


def say_keys(name: str, times: list[float]) -> None:
    """Print how long keys took."""
    p95 = sorted(times)[int(0.95 * (len(times) - 1))]
    print(
        f"{name:34} p50 {statistics.median(times) * 1e3:6.1f} ms   p95 {p95 * 1e3:6.1f} ms   ({len(times)} keys)"
    )


def say(name: str, cost: Cost, goal: tuple[float, float] | None = None) -> None:
    """Print a cost."""
    aim = f"   (goal {goal[0]:g} %, {goal[1]:g} kB/s)" if goal else ""
    print(f"{name:34} {cost.core_pct:5.2f} % of a core   {cost.bytes_per_s / 1e3:5.2f} kB/s{aim}", flush=True)


def main() -> None:
    """Measure and print."""
    options = options_of(__doc__, seconds=30.0, presses=40, real=False, only="two,paused,keys,eight,link,peers")
    wanted = set(options.only.split(","))
    two = None
    if wanted & {"two", "paused", "keys"}:
        program = start(TWO, options.real)
        if "two" in wanted:
            two = measure(program, options.seconds)
            say("tfmon, two lanes", two, (2, 4))
        program.looks = True
        if "keys" in wanted:
            program.press("\x0c")
            say_keys("key to echo", key_times(program, options.presses))
        if "paused" in wanted:
            program.press(" ")
            program.run(7)
            say("tfmon, two lanes, paused", measure(program, options.seconds))
        print(f"{'quit':34} {program.leave('q'):.2f} s")
    if "eight" in wanted:
        program = start(EIGHT, options.real)
        say("tfmon, eight lanes", measure(program, options.seconds), (4, 8))
        program.leave("q")
    if "link" in wanted:
        program = start(TWO, options.real, LINK_BYTES_PER_S)
        say_keys("key to echo at 20 kB/s", key_times(program, options.presses))
        print(f"{'quit at 20 kB/s':34} {program.leave('q'):.2f} s")
    for name in ("htop", "btop") if "peers" in wanted else ():
        if shutil.which(name) is None:
            print(f"{name} is not installed")
            continue
        peer = Link([name])
        peer.run(3)
        cost = measure(peer, options.seconds)
        say(name, cost)
        if two is not None:
            cpu, sent = two.core_pct / cost.core_pct, two.bytes_per_s / cost.bytes_per_s
            print(f"{'':34} tfmon takes {cpu:.1f} times its CPU and {sent:.1f} times its bytes")
        peer.leave("q")


if __name__ == "__main__":
    main()
