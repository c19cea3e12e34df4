"""Asks five questions of users with nvitop, btop, XProf, hyperfine, TraceML and tfmon; keeps what each answers.

    python benchmarks/compared/run.py [--only input,commit]

It takes ten minutes on two cores. docs/compared.md includes the files that it writes into kept/. Each tool gets
the same script in a fresh folder. A line `[… n lines]` marks a place where the output is shortened.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

import pexpect
import psutil
import pyte

HERE = Path(__file__).parent
KEPT = HERE / "kept"
ROWS, COLUMNS = 34, 110
"""Of the terminal in which btop and tfmon draw."""
PATIENCE_S = 120.0
STARTED_S = 9.0
"""CPU time after which a script trains; the start of TensorFlow takes about 6 s of it."""


@dataclass(frozen=True)
class Answer:
    """The answer of a tool to one question."""

    tool: str
    typed: str
    starts: int
    """Number of starts of the training; 0 if a running training is sufficient."""
    answer: str
    """The parts of the output that answer the question, as a regular expression."""
    cannot: str
    """Parts of the question that the answer leaves open."""
    keep: str = ""
    """Regular expression of the lines of the output that are kept; all lines by default."""
    seconds: float = 0.0
    output: str = ""

    def row(self) -> str:
        """Return its row of the table."""
        found = re.findall(self.answer, re.sub(r"[\s│]+", " ", self.output))
        said = "; ".join(found).strip().replace("|", "\\|") or "no answer"
        return f"| {self.tool} | {self.starts} | {self.seconds:.1f} s | {said} | {self.cannot} |"

    def transcript(self) -> str:
        """Return the command and its output."""
        lines = [f"$ {line}" for line in self.typed.splitlines()]
        dropped = 0
        for line in self.output.strip("\n").splitlines():
            if re.search(self.keep, line):
                lines += [*_note(dropped), line.rstrip()]
                dropped = 0
            else:
                dropped += 1
        return "\n".join(["```text", *lines, *_note(dropped), "```"])


def _note(dropped: int) -> list[str]:
    return [f"[… {dropped} line{'s' if dropped > 1 else ''}]"] if dropped else []


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Go to a fresh folder with the scripts, before and after the slow commit; end what still runs there."""
    origin = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work"
        for copy in (work, work / "before", work / "after"):
            copy.mkdir()
            for script in HERE.glob("*.py"):
                shutil.copy(script, copy)
        os.environ |= {"XDG_CONFIG_HOME": f"{folder}/config", "XDG_STATE_HOME": f"{folder}/state"}
        os.chdir(work / "after")
        subprocess.run(["git", "apply", str(HERE / "slow_commit.patch")], check=True)
        os.chdir(work)
        try:
            yield work
        finally:
            os.chdir(origin)
            for process in psutil.Process().children(recursive=True) + list(psutil.process_iter()):
                with contextlib.suppress(psutil.Error):
                    if process.cwd().startswith(str(work)):
                        process.kill()
                        process.wait(5)


@contextlib.contextmanager
def training(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a script that one started some time ago: it trains already."""
    quiet = subprocess.DEVNULL
    with subprocess.Popen(["python", *command], stdout=quiet, stderr=quiet) as script:
        while sum(psutil.Process(script.pid).cpu_times()[:2]) < STARTED_S:
            time.sleep(0.1)
        yield script
        script.kill()


def typed(asked: Answer) -> Answer:
    """Run it in a shell, and return its output, or its errors if it has no other output."""
    with scratch():
        return at_once(asked)


def at_once(asked: Answer) -> Answer:
    """Do that in the folder where we are."""
    began = time.monotonic()
    ran = subprocess.run(
        ["bash", "-c", asked.typed], capture_output=True, text=True, timeout=5 * PATIENCE_S, check=False
    )
    return replace(asked, seconds=time.monotonic() - began, output=ran.stdout or ran.stderr)


def on_screen(asked: Answer, until: str, first: str = "", last: str = "") -> Answer:
    """Return the screen as soon as it shows a regular expression; keys are pressed first and last."""
    began = time.monotonic()
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = ["-c", f"exec {asked.typed}"]
    child = pexpect.spawn("bash", command, dimensions=(ROWS, COLUMNS), timeout=None, env=environment)
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)

    def read(seconds: float, pattern: str) -> bool:
        """Return whether the pattern is on the screen in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(pexpect.TIMEOUT):
                stream.feed(child.read_nonblocking(65_536, 0.1))
            if re.search(pattern, "\n".join(screen.display)):
                return True
        return False

    with contextlib.suppress(pexpect.EOF):
        for key in first:
            read(0.5, "$^")
            child.send(key)
        read(PATIENCE_S, until)
    seconds = time.monotonic() - began
    with contextlib.suppress(pexpect.EOF):
        read(0.5, "$^")  # the rest of the frame
    shown = replace(asked, seconds=seconds, output="\n".join(screen.display))
    with contextlib.suppress(pexpect.EOF):
        for key in last:
            child.send(key)
            read(3.0, "$^")
    child.close(force=True)
    return shown


def xprof(script: str, ranges: str, answer: str, cannot: str, *sides: str) -> Answer:
    """Return the result of XProf for a script on each side, from traces with markers of steps."""
    lines = [f"{side}python {script} --profile {ranges}" for side in sides or ("",)]
    return typed(Answer("XProf", "\n".join([*lines, "python xprof_pages.py logs"]), len(lines), answer, cannot))


BENCHMARK = r"^Benchmark|Time|ran$|times faster|^  *'"
SUMMARY = r"(?<=Summary ).*"
VERDICT = r"\S+ \S+ is [\d.]+× (?:faster|slower) than .*?\)|too close to call.*?\)|no verdict[^.]*"
INPUT = r"Your program is (?:\w+ )?input-bound because (?:only )?[\d.]+% of [^.(]*"


def input_pipeline() -> Iterator[Answer]:
    """Ask whether the input pipeline is the limit."""
    fatal = "FATAL ERROR: [^.]*"
    yield typed(Answer("nvitop", "nvitop --once", 0, fatal, "all: it does not start without NVIDIA's driver"))
    with scratch(), training("slow_generator.py", "--epochs", "99") as script:
        row = rf"{script.pid} python .*?\d\.\d"
        busy = Answer("btop", "btop", 0, row, "whether that is input or steps", r"CPU|C\d|Pid|slow_gen")
        yield on_screen(busy, rf"{script.pid} +python", "23fslow\r", "q")
        command = f"tfmon watch --headless --seconds 5 --pid {script.pid}"
        cannot = "steps, waits and lines: it supposes from CPU time"
        yield at_once(Answer("tfmon, while it runs", command, 0, "supposed.*?\\)", cannot))
    yield xprof("slow_generator.py --epochs 1", "100:160", INPUT, "a line of the script; only the profiled steps")
    command = "python slow_generator.py --epochs 1 --tensorboard\npython xprof_pages.py logs"
    answer, cannot = rf"No step time.*?\.|{INPUT}", "steps: in Keras 3 it marks none"
    yield typed(Answer("XProf, TensorBoard's callback", command, 1, answer, cannot))
    command = "hyperfine -N --runs 2 'python slow_generator.py' 'python slow_generator.py --cached'"
    yield typed(Answer("hyperfine", command, 4, SUMMARY, "what in the input is slow; starts are in it", BENCHMARK))
    yield typed(Answer("TraceML run", "traceml run slow_generator.py", 1, "ERROR: .*", "it knows PyTorch only"))
    command = "traceml watch slow_generator.py 2>/dev/null"
    keep = "Verdict|METRICS|Evidence|CPU|RAM|Next"
    cannot = "whether that is input or steps"
    yield typed(Answer("TraceML watch", command, 1, "SYSTEM METRICS: [^|]*", cannot, keep))
    yield watched("slow_generator.py", r"\.py:\d+, \d+ %", r"input-bound: .*?%\)")


def watched(script: str, until: str, answer: str) -> Answer:
    """Ask tfmon on its screen."""
    with scratch():
        keep = r"\w\.py|examples/s|steps/s|step |time |bound|epoch"
        command = f"tfmon watch -- python {script} --epochs 99"
        asked = Answer("tfmon", command, 1, answer, "operations: `P` profiles them", keep)
        return on_screen(asked, until, "", "qqqq")


def device() -> Iterator[Answer]:
    """Ask which of two devices is faster for a batch size: here one thread and two threads of the CPU."""
    sides = ("env TF_NUM_INTRAOP_THREADS=1 ", "env TF_NUM_INTRAOP_THREADS=2 ")
    cannot = "whether the difference is chance"
    yield xprof("dense_net.py --epochs 2", "70:120", r"step time [\d.]+ ms", cannot, *sides)
    command = "hyperfine -N --runs 2 -L threads 1,2 'env TF_NUM_INTRAOP_THREADS={threads} python dense_net.py'"
    yield typed(Answer("hyperfine", command, 4, SUMMARY, "a step's time: starts are in it; why", BENCHMARK))
    yield raced("dense_net.py", "cpu,threads=1", "cpu,threads=2")


def raced(script: str, *lanes: str) -> Answer:
    """Ask tfmon by a race of a script in two lanes."""
    options = " ".join(f"--lane {lane}" for lane in lanes)
    command = f"tfmon race --headless --until-ci 10% --seconds 30 {options} -- python {script} --epochs 99"
    keep = r"^lane |^cpu.*(?:×|-bound|measured for|step and)|confidence|close|no verdict"
    return typed(Answer("tfmon", command, len(lanes), VERDICT, "which operations: `tfmon profile` does", keep))


def prefetch() -> Iterator[Answer]:
    """Ask whether prefetch helps."""
    waits = rf"{INPUT}|Iterator::Root::[:\w]*Map"
    yield xprof("reads_files.py", "100:160", waits, "how fast it is without the prefetch that tf.data adds")
    command = "hyperfine -N --runs 2 -L batches 0,2 'python reads_files.py --prefetch {batches}'"
    cannot = "that tf.data adds a prefetch where there is none"
    yield typed(Answer("hyperfine", command, 4, SUMMARY, cannot, BENCHMARK))
    yield raced("reads_files.py", "cpu,prefetch=off", "cpu,prefetch=2")


def later_epochs() -> Iterator[Answer]:
    """Ask why it is slow after the first epoch."""
    steps = rf"step time [\d.]+ ms|{INPUT}"
    yield xprof("later_epochs.py", "20:60,800:840", steps, "which epochs, unless one knows which steps to profile")
    command = "hyperfine -N --runs 1 -L epochs 1,3,5 'python later_epochs.py --epochs {epochs}' 2>/dev/null"
    times = r"--epochs \d Time \(abs ≡\): *[\d.]+ s"
    yield typed(Answer("hyperfine", command, 3, times, "why", BENCHMARK))
    yield watched("later_epochs.py", "epochs are slower", "epochs are slower.*?\\)")


def commit() -> Iterator[Answer]:
    """Ask whether a commit slowed training down."""
    sides = [f"env PYTHONPATH={side} python {side}/dense_net.py" for side in ("before", "after")]
    command = "\n".join([*(f"{side} --epochs 2 --profile 70:120" for side in sides), "python xprof_pages.py logs"])
    yield typed(Answer("XProf", command, 2, r"step time [\d.]+ ms", "whether the difference is chance"))
    command = "hyperfine -N --runs 3 'python before/dense_net.py' 'python after/dense_net.py'"
    yield typed(Answer("hyperfine", command, 6, SUMMARY, "a step's time: starts are in it; why", BENCHMARK))
    command = """for n in 1 2 3; do for side in before after; do
(cd $side; tfmon watch --json -- python dense_net.py > $n.json 2>/dev/null); done; done
tfmon diff before after --slower-than 5%"""
    answer = "(?:cannot tell|slower|not slower).*?\\)"
    yield typed(Answer("tfmon", command, 6, answer, "which line of the commit"))


QUESTIONS: dict[str, Callable[[], Iterator[Answer]]] = {
    "input": input_pipeline, "device": device, "prefetch": prefetch, "epochs": later_epochs, "commit": commit,
}  # fmt: skip


def header(began: float) -> str:
    """Return where and when it was measured."""
    git = subprocess.run(["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    names = ("tfmon", "tensorflow", "keras", "xprof", "tensorboard", "traceml-ai", "nvitop")
    versions = [f"{name} {version(name)}" for name in names]
    for tool in ("btop", "hyperfine"):
        printed = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout
        versions.append(re.sub("version: ", "", printed.strip()))
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"Measured on {datetime.now(timezone.utc):%Y-%m-%d}, commit {git.stdout.strip()}, in "
        f"{(time.monotonic() - began) / 60:.0f} minutes: {os.cpu_count()} cores without a GPU, Python "
        f"{platform.python_version()}, load average {load} at the end. {', '.join(versions)}.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default=",".join(QUESTIONS))
    began = time.monotonic()
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "COLUMNS": "120"}
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    KEPT.mkdir(exist_ok=True)
    for name in parser.parse_args().only.split(","):
        answers = []
        for answer in QUESTIONS[name]():
            answers.append(answer)
            print(f"{name}: {answer.row()}", flush=True)
        head = ["| tool | starts | seconds | the answer | what it does not say |", "|---|---|---|---|---|"]
        rows = [*head, *(answer.row() for answer in answers)]
        outputs = [f"\n**{answer.tool}**\n\n{answer.transcript()}" for answer in answers]
        (KEPT / f"{name}.md").write_text("\n".join([*rows, *outputs]) + "\n", "utf-8")
        (KEPT / "header.md").write_text(header(began), "utf-8")


if __name__ == "__main__":
    main()
