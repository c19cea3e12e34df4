"""Observes a training that tfmon did not start. Source: psutil, drivers, py-spy."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from statistics import fmean

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from tfmon import units
from tfmon.errors import TfmonError, UsageError
from tfmon.model.codec import clean
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.readings import Missing, Reading, TreeSample, known
from tfmon.probes.base import CounterRate
from tfmon.probes.find_gpus import find_gpus, gpu_probes, read_visibility
from tfmon.probes.host_probe import HostProbe
from tfmon.probes.machine import need_psutil, read_usable_cores

EVERY_S = 1.0
LOOKS = 5
LEAST_LOOKS = 3
STACK_EVERY = 5
STACK_TIMEOUT_S = 5.0
BUSY, HALF, IDLE = 80.0, 50.0, 20.0
LONGEST_COMMAND = 200
NOT_ALLOWED = Missing("not allowed for this user")


@dataclass(frozen=True, slots=True)
class ProcessLook:
    """The activity since the previous look."""

    tree: TreeSample
    threads: int
    main_pct: Reading
    read_bytes_per_s: Reading
    written_bytes_per_s: Reading
    gpus: tuple[GpuSample, ...] = ()
    stack: str = ""

    @property
    def gpu_pct(self) -> float | None:
        """Share of the most used GPU's time."""
        shares = [known(_share(gpu, self.tree.pids)) for gpu in self.gpus]
        return max((share for share in shares if share is not None), default=None)


def _share(gpu: GpuSample, pids: tuple[int, ...]) -> Reading:
    shares = [gpu.processes.shares[pid] for pid in pids if pid in gpu.processes.shares]
    return sum(shares) if shares else gpu.load.busy_pct


class RunningProcess:
    """A running process. Thread: a single one."""

    def __init__(self, pid: int) -> None:
        psutil = need_psutil()
        self.pid = pid
        try:
            self._process = psutil.Process(pid)
            self.command = clean(shlex.join(self._process.cmdline()), LONGEST_COMMAND)
            self.user = str(self._process.username())
        except (psutil.Error, OverflowError, ValueError):
            hint = "pgrep -af python shows some"
            raise UsageError(f"there is no process {pid} that can be read", hint) from None
        if not self.command:
            raise UsageError(f"process {pid} is one of the system, or has ended", "name one that trains")
        self._no_process = psutil.NoSuchProcess
        self._facts = [name for name in ("num_threads", "threads", "io_counters") if hasattr(psutil.Process, name)]
        self._tree = HostProbe(lambda: {"it": pid})
        self._gpus = gpu_probes(read_visibility().physical_gpus or find_gpus().sampled)
        self.cores = read_usable_cores(os.cpu_count() or 1)
        self.looks: deque[ProcessLook] = deque(maxlen=LOOKS)
        self._rates = CounterRate(), CounterRate(), CounterRate()
        self._stack, self._count = "", 0
        self.look()
        self.looks.clear()

    def look(self) -> None:
        """Add a look; raises TfmonError."""
        try:
            if not self._process.is_running() or self._process.status() == "zombie":
                raise self._no_process(self.pid)
            self.looks.append(self._look())
        except self._no_process:
            raise TfmonError(f"process {self.pid} has ended") from None

    def _look(self) -> ProcessLook:
        tree = next((sample for sample in self._tree.sample() if isinstance(sample, TreeSample)), None)
        if tree is None:
            raise self._no_process(self.pid)
        facts = self._process.as_dict(self._facts)  # `None` if not allowed
        threads, io = facts["threads"] or (), facts.get("io_counters")
        main = next((thread for thread in threads if thread.id == self.pid), None)
        main_pct = None if main is None else 100 * (main.user_time + main.system_time)
        counters = (main_pct, io.read_bytes, io.write_bytes) if io else (main_pct, None, None)
        main_rate, read, written = (
            NOT_ALLOWED if count is None else rate.per_s(count, time.monotonic_ns())
            for rate, count in zip(self._rates, counters, strict=True)
        )
        samples = [sample for probe in self._gpus for sample in probe.sample() if isinstance(sample, GpuSample)]
        gpus = tuple(sample for sample in samples if {*tree.pids}.intersection(sample.processes.pids()))
        if self._count % STACK_EVERY == 0:
            self._stack = stack_of(self.pid)
        self._count += 1
        return ProcessLook(tree, facts["num_threads"], main_rate, read, written, gpus, self._stack)

    def lines(self) -> Iterator[str]:
        """Yield lines about the process."""
        last = self.looks[-1]
        since_s = time.time() - self._process.create_time()
        parts = f"{units.several(last.tree.processes, 'process')}, {units.several(last.threads, 'thread')}"
        yield self.command
        yield f"PID {self.pid} of {self.user}, for {units.clock(since_s)}; {parts}"
        yield ""
        cpu = units.reading(last.tree.cpu_pct, lambda value: f"{value:.0f} % of {100 * self.cores:.0f}")
        yield f"cpu      {cpu}; main thread {units.reading(last.main_pct, lambda value: f'{value:.0f} %')}"
        yield f"memory   {units.reading(last.tree.private_bytes, units.memory)} that no other process shares"
        rates = last.read_bytes_per_s, last.written_bytes_per_s
        speed = [units.reading(rate, lambda value: f"{units.memory(value)}/s") for rate in rates]
        yield f"disk     reads {speed[0]}, writes {speed[1]}"
        for gpu in last.gpus:
            used = [gpu.processes.used_by_pid.get(pid) for pid in last.tree.pids]
            memory = units.memory(sum(filter(None, used))) if any(used) else "–"
            busy = units.reading(_share(gpu, last.tree.pids), lambda value: f"{value:.0f} % of its time")
            total = units.reading(gpu.memory.total_bytes, units.memory)
            yield f"gpu {gpu.index}    {gpu.name}: {busy}, {memory} of {total}"
        if not last.gpus:
            yield "gpu      none on which it has memory"
        if last.stack:
            yield f"stands   {last.stack}"
        yield ""
        yield f"supposed, from CPU and GPU alone: {supposed(list(self.looks), self.cores)}"
        yield f"steps, input wait and loss are seen from the next start on: tfmon watch -- {self.command}"


def supposed(looks: list[ProcessLook], cores: float) -> str:
    """Return the likely bottleneck and the certainty."""
    gpus = [look.gpu_pct for look in looks if look.gpu_pct is not None]
    mains = [value for look in looks if (value := known(look.main_pct)) is not None]
    trees = [value for look in looks if (value := known(look.tree.cpu_pct)) is not None]
    main, tree = fmean(mains) if mains else None, fmean(trees) if trees else None
    if gpus and (gpu := fmean(gpus)) >= BUSY:
        return f"the GPU limits it: it is busy {gpu:.0f} % of the time (fairly sure)"
    if main is None or tree is None:
        return "not enough can be read to say what limits it"
    waits = f" while the GPU is busy {fmean(gpus):.0f} % of the time" if gpus else ""
    if gpus and fmean(gpus) >= HALF:
        return f"no single part{waits}, and the main thread computes {main:.0f} % (not sure)"
    if tree >= 0.9 * 100 * cores:
        subject = "the input or other work of the CPU limits it" if gpus else "the CPU limits it"
        return f"{subject}: all cores are used{waits} ({'not sure' if gpus else 'fairly sure'})"
    if main >= BUSY:
        return f"its main thread limits it, by Python or by starting operations: it never waits{waits} (not sure)"
    if main <= IDLE and tree >= HALF:
        return f"other threads or processes limit it, such as the input: its main thread waits{waits} (not sure)"
    if tree <= IDLE:
        return f"it waits{waits}: for a disk, the network, a lock or another process (fairly sure)"
    return f"no single part{waits} (not sure)"


def stack_of(pid: int) -> str:
    """Return the main thread's position, by py-spy."""
    program = shutil.which("py-spy")
    if program is None:
        return ""
    command = [program, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=STACK_TIMEOUT_S, check=True)
        threads = json.loads(done.stdout)
        frames = next(thread["frames"] for thread in threads if thread.get("thread_name") == "MainThread")
        libraries = "site-packages", "/lib/python"
        user_frames = [frame for frame in frames if not any(part in frame["filename"] for part in libraries)]
        return " ← ".join(
            clean(f"{frame['short_filename']}:{frame['line']} {frame['name']}", 80) for frame in user_frames[:3]
        )
    except (OSError, ValueError, KeyError, TypeError, StopIteration, subprocess.SubprocessError):
        return ""


def show(pid: int, *, live: bool) -> None:
    """Show or print a process; raises TfmonError."""
    process = RunningProcess(pid)
    with contextlib.ExitStack() as shown, contextlib.suppress(KeyboardInterrupt):
        screen = shown.enter_context(Live(auto_refresh=False, console=Console(highlight=False))) if live else None
        while screen is not None or len(process.looks) < LEAST_LOOKS:
            time.sleep(EVERY_S)
            try:
                process.look()
            except TfmonError:
                if screen is None or not process.looks:
                    raise
                break
            if screen is not None:
                screen.update(Text("\n".join(process.lines())), refresh=True)
    if not live:
        click.echo("\n".join(process.lines()))
