"""What views of the working folder cost: the start of a lane, reading a data set, and Python's audit hook.

    python tests/benchmarks/views.py [--gib 2]

Each figure is taken in place and in a view alternately, many times, in wall and CPU time: the fastest of each, and
the median of the pairs with its 95 % interval.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import options_of

from tfmon.model.views import OVERLAY, View, entry, open_place
from tfmon.probes.views import find_view

READ = """
import os, sys, time
from pathlib import Path
buffer, files = bytearray(1 << 20), sorted(Path("data").iterdir())
began, cpu = time.perf_counter(), time.process_time()
for path in files:
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
print(time.perf_counter() - began, time.process_time() - cpu)
"""
OPENS = """
import sys, time
if sys.argv[1] == "watched":
    sys.path.insert(0, sys.argv[2])
    from tfmon.script.uses import hear
    sys.addaudithook(hear)
from pathlib import Path
files = sorted(Path("small").iterdir())
began, cpu, times = time.perf_counter(), time.process_time(), 20 * len(files)
for _ in range(20):
    for path in files:
        with open(path, "rb") as file:
            file.read()
print((time.perf_counter() - began) / times, (time.process_time() - cpu) / times)
"""


def run(folder: Path, before: list[str], *words: str) -> tuple[float, float]:
    """Run a command; return what it prints, or the wall time that it took, and its CPU time."""
    began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*before, *words], cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    took_s, now = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    if not done.stdout.strip():
        return took_s, cpu_s
    wall_s, own_cpu_s = map(float, done.stdout.split())
    return wall_s, own_cpu_s


def interval(values: list[float]) -> str:
    """Return the median of some values with its 95 % interval, by order statistics."""
    values, count = sorted(values), len(values)
    reach = 0.98 * count**0.5
    low, high = max(0, int(count / 2 - reach)), min(count - 1, int(count / 2 + reach))
    return f"{statistics.median(values):.4g} ({values[low]:.4g} to {values[high]:.4g})"


def main() -> None:
    """Measure, and print a line for each figure."""
    args = options_of(__doc__, gib=2.0, times=15)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as place:
        folder, store = Path(place, "project"), Path(place, "recordings")
        for name, count, size in (("data", 64, int(args.gib * 2**24)), ("small", 1_000, 100_000)):
            (folder / name).mkdir(parents=True)
            for number in range(count):
                (folder / name / f"{number:04}.bin").write_bytes(os.urandom(1 << 16) * (size >> 16))
        print("view:", find_view(str(folder), store).text)
        numbers = iter(range(10_000))

        def view() -> list[str]:
            own = View(OVERLAY, str(folder), store=str(store / f"race.files/A-{next(numbers)}"))
            open_place(own)
            return entry(own)

        package = str(Path(__file__).parents[2])
        python = [sys.executable, "-S"]
        for what, plain, other in (
            ("start of /bin/true", ["/bin/true"], ["/bin/true"]),
            (f"reading {args.gib:g} GiB", [*python, "-c", READ], [*python, "-c", READ]),
            ("1,000 files of 64 KiB, each", [*python, "-c", OPENS, "plain"], [*python, "-c", OPENS, "plain"]),
            ("the same, watched", [*python, "-c", OPENS, "plain"], [*python, "-c", OPENS, "watched", package]),
        ):
            pairs = [
                (run(folder, [], *plain), run(folder, [] if "watched" in what else view(), *other))
                for _ in range(args.times)
            ]
            for kind in (0, 1):
                ours = [(plain[kind], other[kind]) for plain, other in pairs]
                first, second = (min(one) for one in zip(*ours, strict=True))
                print(
                    f"{what}, {('wall', 'CPU')[kind]}: fastest {1e3 * first:.4g} and {1e3 * second:.4g} ms; "
                    f"ms more: {interval([1e3 * (other - plain) for plain, other in ours])}; "
                    f"speed ×: {interval([plain / other for plain, other in ours if other])}"
                )


if __name__ == "__main__":
    main()
