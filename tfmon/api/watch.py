"""`tfmon.watch`: observes the training of the calling process like a lane."""

from __future__ import annotations

import ast
import contextlib
import os
import selectors
import shlex
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, TypeAlias

import click

from tfmon.analysis.analysis import Analysis, analyse, speeds
from tfmon.analysis.result import LaneResult
from tfmon.analysis.summarise import lane_result
from tfmon.api.devices import device_of
from tfmon.api.options import RaceOptions
from tfmon.api.run_base import Tell, notebook_display, show_progress
from tfmon.api.settings import settled
from tfmon.api.value_rules import PROGRESS
from tfmon.errors import UsageError
from tfmon.hooks import install
from tfmon.hooks.site.sitecustomize import Finder
from tfmon.lanes.lane_process import MetricLines
from tfmon.lanes.launch import lock_file
from tfmon.model.codec import clean, encode_message
from tfmon.model.event_base import Event
from tfmon.model.events import Interrupted, LaneStarted
from tfmon.model.lane_events import READY, Finished, Hello, LaneFailed, LibrariesLoaded, NotMeasured, PhaseEntered
from tfmon.model.race import Race
from tfmon.model.requests import Run
from tfmon.model.session import Session
from tfmon.model.spec import LaneSpec, name_lanes
from tfmon.probes.base import Probe, Ticker
from tfmon.probes.find_gpus import find_gpus, gpu_probes, with_devices
from tfmon.probes.host_probe import HostProbe
from tfmon.probes.machine import read_machine
from tfmon.reports.html.panel import panel
from tfmon.reports.race_report import to_text
from tfmon.reports.steps import share_lines
from tfmon.system.lane_pipes import ANY, VARIABLE, LanePipes
from tfmon.system.threads import start_thread

EVERY_S = 1.0
CHUNK_BYTES = 65_536
END_S = 2.0
LONGEST_ERROR = 200
OUTSIDE = "tfmon runs this script, and measures it from outside"
UNSEEN = "no training step was seen: define a tf.function that trains in the block, or use tfmon.report"
Show: TypeAlias = Callable[[Analysis, bool], object]
"""Shows the progress, or with True the result."""


class Watch:
    """The training in a `with` block. Thread: the block's; `result` any."""

    _pipes: ClassVar[str] = ""

    def __init__(self, progress: bool | Tell) -> None:
        self._undo = contextlib.ExitStack()
        self._show: Show | None = None
        self._progress = PROGRESS.argument("progress", progress)
        self._session = Session(read_machine(), time.monotonic_ns)
        self._analysis: Analysis | None = None
        self._hello: Hello | None = None

    @property
    def result(self) -> LaneResult:
        """The result of the latest block so far."""
        analysis = self._look()
        return lane_result(analysis.snapshot, analysis.lanes[0])

    def __str__(self) -> str:
        return _text(self._look())

    def _repr_html_(self) -> str:
        analysis = self._look()
        return panel(analysis, line(analysis))

    def _look(self) -> Analysis:
        snapshot = self._session.snapshot()
        if not snapshot.lanes:
            raise UsageError("nothing was watched yet", "with tfmon.watch() as w: model.fit(…)")
        self._analysis = analyse(snapshot, self._analysis)
        return self._analysis

    def __enter__(self) -> Watch:
        """Begin to watch, except in a lane. Raises UsageError if this process is watched."""
        pipes = os.environ.get(VARIABLE)
        if pipes and pipes == Watch._pipes:
            raise UsageError("this process is watched already, and cannot be twice", "leave the other block first")
        self._analysis = self._hello = None
        self._begin(LaneSpec("cpu"))
        if pipes:
            self._cannot_know(OUTSIDE)
            return self
        with contextlib.ExitStack() as undo:
            self._show = _show_for(self._progress)
            read_fd, metrics_fd = os.pipe()
            self._requests, requests = socket.socketpair()
            lock_fd, token = lock_file()
            undo.callback(os.close, metrics_fd)
            undo.callback(os.close, lock_fd)
            undo.enter_context(requests)
            os.set_blocking(read_fd, False)
            thread = start_thread("tfmon-watch", lambda: self._follow(read_fd), self._thread_failed)
            undo.callback(thread.join, END_S)
            undo.callback(self._requests.shutdown, socket.SHUT_RDWR)
            self._probes = undo.enter_context(contextlib.ExitStack())
            self._tick(HostProbe(lambda: {self._lane: os.getpid()}))
            Watch._pipes = LanePipes(metrics_fd, requests.fileno(), lock_fd, token, ANY).text()
            os.environ[VARIABLE] = Watch._pipes
            undo.callback(os.environ.pop, VARIABLE, None)
            undo.callback(install.end)
            install.begin(Finder())
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        try:
            self._undo.close()
        except Exception as mistake:  # noqa: BLE001 - the script must go on
            error = error or mistake
        at_ns, lane = time.monotonic_ns(), self._session.snapshot().lanes[0]
        if not lane.totals.steps and "steps" not in lane.script.not_measured:
            self._cannot_know(UNSEEN)
        if isinstance(error, Exception) and lane.trouble is None:
            message = clean(f"{type(error).__name__}: {error}", LONGEST_ERROR)
            self._session.accept(LaneFailed(lane=self._lane, at_ns=at_ns, kind="error", message=message))
        elif error is not None and lane.trouble is None:
            self._session.accept(Interrupted(at_ns=at_ns, reason=f"interrupted by {type(error).__name__}"))
        self._session.accept(Finished(lane=self._lane, at_ns=at_ns, steps=lane.totals.steps))
        self._show_now(over=True)

    def _begin(self, spec: LaneSpec) -> None:
        (spec,) = name_lanes([spec])
        self._lane = spec.name
        name, pid = Path(sys.argv[0]).name or "python", os.getpid()
        ignored = settled(RaceOptions(), "watch").ignored_causes
        race = Race(scenario=name, title="watched in its own process", ignored_causes=ignored)
        self._session.begin(race, [spec])
        at_ns, command = time.monotonic_ns(), shlex.join(sys.argv) or name
        self._session.accept(LaneStarted(lane=self._lane, at_ns=at_ns, pid=pid, settings={}, command=command))

    def _follow(self, fd: int) -> None:
        """Read the hooks' events until the end, and close both pipes."""
        lines, due_s, over = MetricLines("", self._take), time.monotonic(), False
        with os.fdopen(fd, "rb", 0) as metrics, self._requests, selectors.DefaultSelector() as selector:
            selector.register(metrics, selectors.EVENT_READ)
            selector.register(self._requests, selectors.EVENT_READ)  # readable once it is shut down
            while not over:
                ready = selector.select(max(0.0, due_s - time.monotonic()))
                over = any(key.fileobj is self._requests for key, _ in ready)
                while chunk := metrics.read(CHUNK_BYTES):
                    lines.take(chunk)
                if not over and time.monotonic() >= due_s:
                    self._show_now()
                    due_s = time.monotonic() + EVERY_S

    def _take(self, event: Event) -> None:
        """Accept an event. The lane trains as soon as it is ready."""
        if isinstance(event, Hello):
            self._hello = event
        if isinstance(event, LibrariesLoaded) and event.device_name:
            self._use_gpus(event)
        self._session.accept(replace(event, lane=self._lane))
        if isinstance(event, PhaseEntered) and event.phase == READY:
            self._session.start_clock(time.monotonic_ns())
            self._requests.send(encode_message(Run()))

    def _use_gpus(self, event: LibrariesLoaded) -> None:
        search = find_gpus()
        gpus = [gpu for gpu in search.usable if gpu.uuid in event.gpu_uuids] or search.usable[:1]
        self._session.set_machine(with_devices(self._session.snapshot().machine, search, None))
        self._begin(LaneSpec(device_of(gpus, search) if gpus else "gpu:0"))
        if self._hello is not None:
            self._session.accept(replace(self._hello, lane=self._lane))
        for probe in gpu_probes(gpus):
            self._tick(probe)

    def _tick(self, probe: Probe) -> None:
        ticker = Ticker(probe, self._session.accept, interval_s=EVERY_S)
        self._probes.callback(ticker.close)
        ticker.start()

    def _cannot_know(self, reason: str) -> None:
        self._session.accept(NotMeasured(lane=self._lane, what="steps", reason=reason))

    def _thread_failed(self, reason: str) -> None:
        self._session.accept(LaneFailed(lane=self._lane, kind="error", message=reason))

    def _show_now(self, *, over: bool = False) -> None:
        try:
            if self._show is not None:
                self._show(self._look(), over)
        except Exception:  # noqa: BLE001 - the training must go on, and its figures are in `result`
            self._show = None


def watch(*, progress: bool | Tell = True) -> Watch:
    """Watch the training of this process in a `with` block, as `tfmon watch` does for a script.

    ::

        with tfmon.watch() as w:
            model.fit(dataset, epochs=3)
        print(w.result.bottleneck_text)

    Keras' `fit`, loops of TensorFlow and calls of `tfmon.report` are recognised. Weights and losses do not change.
    At the end of the block TensorFlow, Keras and Python are restored. After an error, `result` has the figures so
    far.

    Args:
        progress: Whether to show figures in a notebook or on a terminal, or a function that receives them.

    Raises:
        UsageError: `progress` has another type, or, at the start of the block, this process is watched.
    """
    return Watch(progress)


def line(analysis: Analysis) -> str:
    """Return progress, speed and bottleneck."""
    lane, parts = analysis.lanes[0], []
    if (progress := lane.lane.script.progress) is not None and progress.epoch:
        parts.append(f"epoch {progress.epoch}" + (f"/{progress.epochs}" if progress.epochs else ""))
    parts.append(speeds(analysis.snapshot))
    if lane.bottleneck is not None:
        parts.append(lane.bottleneck.text)
    return " · ".join(parts)


def _text(analysis: Analysis) -> str:
    return "\n\n".join([*share_lines(analysis), to_text(analysis)])


def _show_for(progress: bool | Tell) -> Show | None:
    if callable(progress):
        return lambda analysis, over: progress(line(analysis))
    display = notebook_display() if progress else None
    if display is not None:
        begins = "watching …"
        handle = display({"text/html": begins, "text/plain": begins}, raw=True, display_id=True)
        return lambda analysis, over: handle.update(
            {"text/html": panel(analysis, line(analysis)), "text/plain": _text(analysis)}, raw=True
        )
    return _show_on_terminal if progress and sys.stderr is not None and sys.stderr.isatty() else None


def _show_on_terminal(analysis: Analysis, over: bool) -> None:
    show_progress("" if over else line(analysis))
    if over:
        click.echo(_text(analysis), err=True)


def add_magic(shell: Any) -> None:  # noqa: ANN401 - IPython need not be there
    """Add the cell magic `%%tfmon` to IPython."""

    def run(name: str, cell: str) -> Any:  # noqa: ANN401 - whatever the cell's last line is
        """Watch a cell's training; `%%tfmon NAME` stores the result under that name."""
        from IPython.core.error import UsageError as MagicError

        name = name.strip()
        if name and not name.isidentifier():
            raise MagicError(
                f"%%tfmon {name} is not possible; it takes a name for what is seen, such as %%tfmon w"
            )
        source = shell.transform_cell(cell)
        file = shell.compile.cache(source, shell.execution_count, raw_code=cell)
        tree = shell.compile.ast_parse(source, filename=file)
        last = tree.body.pop().value if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        with watch() as watched:
            if name:
                shell.user_ns[name] = watched
            shell.ex(shell.compile(tree, file, "exec"))
            return None if last is None else shell.ev(shell.compile(ast.Expression(last), file, "eval"))

    shell.register_magic_function(run, "cell", "tfmon")
