"""Compares tfmon's figures with other tools on the same work, in turns; docs/crosscheck.md has the table.

    python benchmarks/crosscheck.py [--rounds 3] [--only examples,wall] [--out crosscheck.md]

It takes about 30 minutes on two cores with nothing beside it. hyperfine, GNU time and pidstat (sysstat) must be
installed; Debian has packages of them. Each difference has an interval of 95 % from the rounds,
by Student's t on the logarithms of ours over theirs; the rows of one round were measured one after the other.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from common import mean_and_reach, measured_on, options_of
from verdicts import load

import tfmon
from tfmon import units
from tfmon.analysis.compare import compare_all
from tfmon.analysis.gate import judge
from tfmon.recordings.results import read_json

HERE = Path(__file__).parent
SCRIPT = str(HERE / "user_script.py")
PYTHON = sys.executable
ENVIRONMENT = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
SCENARIOS = ("small-dense", "large-dense", "slow-preprocess", "sequential-rnn", "text-conv")
SECONDS = 5.0
STEPS_PER_EXECUTION = (1, 32)
"""The two settings of the script, which knows nothing of tfmon."""
STEPS_AN_EPOCH, EPOCHS = 1024, 20
BATCH = 64
FRESH = 5
"""Rounds of what differs most from process to process."""
CLOSE = 0.03
"""A difference beyond which one of the two must be wrong, or measure something else."""


@dataclass(frozen=True)
class Row:
    """What tfmon and another tool say of the same thing."""

    what: str
    theirs: str
    """The other tool."""
    pairs: Sequence[tuple[float, float]]
    """Ours and theirs, round by round."""
    write: Callable[[float], str]
    note: str = ""

    @property
    def cells(self) -> list[str]:
        """The row of the page: figure, ours, theirs, the difference with its interval, and the result."""
        ours, theirs = (statistics.median(pair[place] for pair in self.pairs) for place in (0, 1))
        logs = [math.log(one / other) for one, other in self.pairs]
        middle, interval, near = statistics.mean(logs), "", abs(statistics.mean(logs)) <= math.log1p(CLOSE)
        if len(logs) > 1:
            middle, reach = mean_and_reach(logs)
            low, high = (100 * math.expm1(middle + sign * reach) for sign in (-1, 1))
            interval, near = f" ({low:+.1f} to {high:+.1f})", near or low <= 0 <= high
        off = f"{100 * math.expm1(middle):+.1f} %{interval}"
        said = self.note or ("" if near else "**differs**")
        return [self.what, self.write(ours), f"{self.write(theirs)} ({self.theirs})", off, said]


def run(*command: str, **given: Any) -> str:
    """Return the output of a command; SystemExit with the end of its errors if it fails."""
    ran = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False, **given)
    if ran.returncode:
        raise SystemExit(f"{' '.join(command)}: {ran.stderr[-2_000:]}")
    return ran.stdout


def race(*arguments: str, command: str = "race") -> dict[str, Any]:
    """Return the JSON result of a race; its options come first."""
    result = json.loads(run(PYTHON, "-m", "tfmon", command, "--json", "--no-record", *arguments))
    return dict(result)


def watched(*arguments: str) -> dict[str, Any]:
    """Return the one lane of a script that is watched, as JSON says it."""
    return dict(race("--", *arguments, command="watch")["lanes"][0])


def raced_alone(name: str, *settings: str, seconds: float = SECONDS) -> dict[str, Any]:
    """Return the JSON result of a race of one lane on the CPU."""
    return race(name, "--lane", ",".join(("cpu", *settings)), "--seconds", f"{seconds:g}")


def script(setting: int = 1, epochs: int = EPOCHS) -> list[str]:
    """Return the command of the user's script."""
    return [PYTHON, SCRIPT, "--steps-per-execution", str(setting), "--epochs", str(epochs)]


def examples(rounds: int) -> Iterator[Row]:
    """Compare examples/s of scenarios with a plain loop and its own clock, in fresh processes and turns."""
    for name in SCENARIOS:
        command = [PYTHON, str(HERE / "bare_loop.py"), name, "--seconds", f"{SECONDS:g}"]

        def ours(name: str = name) -> float:
            return float(raced_alone(name)["lanes"][0]["examples_per_s"])

        def theirs(command: Sequence[str] = command) -> float:
            return float(json.loads(run(*command))["examples_per_s"])

        pairs = []
        for number in range(max(rounds, FRESH)):
            first, second = (ours, theirs) if number % 2 else (theirs, ours)
            values = {one: one() for one in (first, second)}
            pairs.append((values[ours], values[theirs]))
        yield Row(f"examples/s of {name}", "a plain loop", pairs, units.rate)


def wall(rounds: int) -> Iterator[Row]:
    """Compare step times of a script in two settings, and their ratio, with hyperfine's of whole commands."""
    times: dict[int, list[tuple[float, float]]] = {setting: [] for setting in STEPS_PER_EXECUTION}
    ratios = []
    for _ in range(max(rounds, FRESH)):
        for setting, pairs in times.items():
            with tempfile.TemporaryDirectory() as folder:
                kept = Path(folder) / "hyperfine.json"
                commands = [" ".join(script(setting, epochs)) for epochs in (1, EPOCHS)]
                run("hyperfine", "-N", "--runs", "1", "--export-json", str(kept), *commands)
                short, whole = (one["mean"] for one in json.loads(kept.read_text())["results"])
            theirs = (whole - short) / STEPS_AN_EPOCH / (EPOCHS - 1)
            pairs.append((BATCH / watched(*script(setting))["examples_per_s"], theirs))
        lanes = [option for one in times for option in ("--lane", f"cpu,steps_per_execution={one}")]
        raced = race(*lanes, "--seconds", "12", "--", *script(epochs=10**7))
        rates = [lane["examples_per_s"] for lane in raced["lanes"]]
        slow, fast = (pairs[-1][1] for pairs in times.values())
        ratios.append((rates[1] / rates[0], slow / fast))
    for setting, pairs in times.items():
        what = f"time of a batch of a script, steps_per_execution={setting}"
        yield Row(what, "hyperfine, less a run of one epoch", pairs, _milliseconds)
    yield Row("ratio of a race of both settings", "hyperfine", ratios, units.ratio)


def machine(rounds: int) -> Iterator[Row]:
    """Compare CPU and memory of a script with pidstat's and GNU time's."""
    cpu, memory, command = [], [], script(epochs=2 * EPOCHS)
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            kept = Path(folder) / "time.txt"
            run("/usr/bin/time", "-v", "-o", str(kept), *command)
            peak = next(line for line in kept.read_text().splitlines() if "Maximum resident" in line)
        with _pidstat() as theirs:
            lane = watched(*command)
        cpu.append((lane["cpu_pct"], theirs["cpu"]))
        memory.append((lane["peak_private_bytes"] + theirs["shared"], 1024 * float(peak.split()[-1])))
    yield Row("CPU of a script", "pidstat", cpu, units.percent)
    yield Row("peak of its memory, with the pages of libraries", "GNU time", memory, units.memory)


@contextlib.contextmanager
def _pidstat() -> Iterator[dict[str, float]]:
    """Have pidstat watch the script that a tfmon of this process starts; its means are there afterwards."""
    result: dict[str, float] = {}
    over = threading.Event()

    def look() -> None:
        while (process := _of_script()) is None and not over.wait(0.1):
            pass
        if process is None:
            return
        command = ["pidstat", "-u", "-p", str(process.pid), "1"]
        environment = {**os.environ, "LC_ALL": "C"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as pidstat:
            assert pidstat.stdout is not None
            shares = []
            for line in pidstat.stdout:
                fields = line.split()
                if len(fields) > 8 and fields[2] == str(process.pid):
                    shares.append(float(fields[7]))
                with contextlib.suppress(psutil.Error):
                    result["shared"] = float(process.memory_info().shared)  # of files, such as libraries
        result["cpu"] = statistics.mean(shares[_START_S:-1])

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield result
    finally:
        over.set()
        thread.join()


_START_S = 12
"""Seconds of the script's start, and of the first epoch."""


def _of_script() -> psutil.Process | None:
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if SCRIPT in child.cmdline() and "tfmon" not in child.cmdline():
                return child
    return None


def gate(rounds: int) -> Iterator[Row]:
    """Compare the gate's ratio and answer with `pyperf compare_to` on the same samples."""
    import pyperf

    each = max(5, rounds)
    results: dict[str, list[Any]] = {"before": [], "same": [], "slower": []}
    for _ in range(each):
        for name, batch in (("before", 64), ("same", 64), ("slower", 48)):
            results[name].append(raced_alone("large-dense", f"batch_size={batch}", seconds=4.0))
    for name in ("same", "slower"):
        sides = [[read_json(one, "", "") for one in results[side]] for side in ("before", name)]
        # The knob differs on purpose: the gate compares figures, whatever made them.
        answer = judge(compare_all(*sides), 0.05)
        values = [[1 / one["lanes"][0]["examples_per_s"] for one in results[side]] for side in ("before", name)]
        suites = [
            pyperf.Benchmark([pyperf.Run(side, metadata={"name": name}, collect_metadata=False)])
            for side in values
        ]
        with tempfile.TemporaryDirectory() as folder:
            paths = [str(Path(folder) / f"{number}.json") for number in range(2)]
            for path, suite in zip(paths, suites, strict=True):
                suite.dump(path)
            said = run(PYTHON, "-m", "pyperf", "compare_to", *paths).splitlines()[-1]
        theirs = statistics.mean(values[0]) / statistics.mean(values[1])
        ours = answer.lanes[0].ratio or math.nan
        note = f"gate of 5 %: {answer.kind}; pyperf: {said.split('] ', 1)[-1]}"
        yield Row(f"throughput, {name} over before", "pyperf compare_to", [(ours, theirs)], units.ratio, note)


def best(rounds: int) -> Iterator[Row]:
    """Compare the best of a sweep with brute force: a separate race of each combination."""
    sizes = (32, 256, 2048)
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "sweep.jsonl.gz"
        found = tfmon.sweep("large-dense", {"batch_size": list(sizes)}, on="cpu", limit_s=30, record=kept)
    speeds: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(rounds):
        for size in sizes:
            (lane,) = raced_alone("large-dense", f"batch_size={size}")["lanes"]
            speeds[size].append(lane["examples_per_s"])
    middle = {size: statistics.median(values) for size, values in speeds.items()}
    winner, first = max(middle, key=lambda size: middle[size]), min(sizes)
    ours = found.best()
    same = "the same" if ours.settings["batch_size"] == winner else f"**brute force: {winner}**"
    theirs = middle[int(ours.settings["batch_size"])] / middle[first]
    pairs, what = [(ours.ratio or math.nan, theirs)], f"best of a sweep, batch {ours.settings['batch_size']}"
    yield Row(what, "brute force", pairs, units.ratio, f"best: {same}")


def trace(rounds: int) -> Iterator[Row]:
    """Compare what tfmon and XProf read in the same traces of a net that waits for its input."""
    from traces.xprof_answers import converted, tables

    from tfmon.profile import loop_thread
    from tfmon.profile.breakdown import read_profile
    from tfmon.profile.trace import STEP, Times, read_space

    times: dict[str, list[tuple[float, float]]] = {"step time": [], "input wait": [], "ten largest operations": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as kept:
            run(PYTHON, str(HERE / "traces" / "record.py"), "slow-input", kept)
            (path,) = Path(kept).glob("**/*.xplane.pb")
            steps, operations = tables(*converted(path, "input_pipeline_analyzer", "framework_op_stats"))
            loop, profile = loop_thread.find(read_space(path), STEP), read_profile(path)
        compared = [number for number in steps if 0 <= number < len(loop.steps)]
        spans = [loop.steps[number] for number in compared]
        ms = [sum(steps[number][name] for number in compared) for name in ("stepTimeMs", "infeedTimeMs")]
        times["step time"].append((sum(end - start for start, end in spans) / 1e12, ms[0] / 1e3))
        times["input wait"].append(((loop.input & Times(spans)).total / 1e12, ms[1] / 1e3))
        largest = sorted((part for part in profile.parts if part.runs), key=lambda part: -part.self_ns)[:10]
        self_us = sum(operations[part.kind, part.name]["total_self_time"] for part in largest)
        ours_s = sum(part.self_ns for part in largest) * profile.steps / 1e9
        times["ten largest operations"].append((ours_s, self_us / 1e6))
    for what, pairs in times.items():
        yield Row(f"{what} of a trace", "XProf", pairs, _milliseconds)


def handicaps(rounds: int) -> Iterator[Row]:
    """Compare the ratio of two lanes with a known one, and count the intervals that cover it, quiet and loaded."""
    command = [PYTHON, str(HERE / "handicap.py")]
    for busy in (False, True):
        for percent in (3, 5, 10):
            truth, covered, pairs = 1 + percent / 100, 0, []
            for _ in range(rounds):
                lanes = [option for own in (0, percent) for option in ("--lane", f"cpu,handicap={own}")]
                with load(busy):
                    verdict = race(*lanes, "--seconds", "10", "--", *command)["verdict"]
                (first, *_), ends = verdict["ranking"], verdict["ratio_ci95"]
                low, ratio, high = (
                    one if first["id"] == "A" else 1 / one for one in (ends[0], verdict["ratio"], ends[1])
                )
                covered += min(low, high) <= truth <= max(low, high)
                pairs.append((ratio, truth))
            how = "beside a busy process" if busy else "quiet"
            note = f"its interval of 95 % covers the truth in {covered} of {rounds}"
            yield Row(
                f"ratio of steps of {percent} % more, {how}", "known by construction", pairs, units.ratio, note
            )


MEASURED = {
    "examples": examples,
    "wall": wall,
    "trace": trace,
    "machine": machine,
    "gate": gate,
    "best": best,
    "handicaps": handicaps,
}


def _milliseconds(seconds: float) -> str:
    return f"{1_000 * seconds:.3f} ms"


def table(rows: Sequence[Row], rounds: int, took_s: float) -> str:
    """Return the text that the manual includes: place and time of the measurement, and the rows."""
    lines = [
        f"{measured_on()}; {rounds} rounds in {took_s / 60:.0f} minutes.",
        "",
        "| what | tfmon | the other tool | difference | |",
        "|---|---|---|---|---|",
        *("| " + " | ".join(row.cells) + " |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    options = options_of(__doc__, rounds=3, only="", out="")
    names = options.only.split(",") if options.only else list(MEASURED)
    rows: list[Row] = []
    began = time.monotonic()
    for name in names:
        for row in MEASURED[name](options.rounds):
            rows.append(row)
            print(" | ".join(row.cells), flush=True)
    if options.out:
        Path(options.out).write_text(table(rows, options.rounds, time.monotonic() - began))


if __name__ == "__main__":
    main()
