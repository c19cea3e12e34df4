"""Records each race of a session in its own thread, so that the race never waits."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from tfmon.analysis.analysis import analyse
from tfmon.model.event_base import Event
from tfmon.model.events import HostEvent, LinkMeasured, MachineKnown, RaceBegan, RecordingChanged
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.header import Closed, Header
from tfmon.model.host_states import HISTORY_SAMPLES
from tfmon.model.lane_state import ABSENT, FAILED
from tfmon.model.race import RecordingState
from tfmon.model.readings import HostSample
from tfmon.model.session import Session, Snapshot
from tfmon.recordings import library
from tfmon.recordings.header_lines import RecordingError, header_of
from tfmon.recordings.writer import Writer
from tfmon.system.threads import start_thread

FLUSH_S = 1.0
"""This much is lost if tfmon is killed."""
MOST_PENDING = 50_000
CHECK_BYTES = 2 * 2**20
"""Growth between checks of the size of all recordings."""
SETTLED_S = 2.0
"""A finished race is closed later, because processes end later."""
PATIENCE_S = 10.0


@dataclass(slots=True)
class _Entry:
    event: Event
    known: Snapshot | None
    """Only for the first and last event: it takes 12 kB."""


class Recorder:
    """Writes the journal of a session; the race continues after a failure.

    Thread: its own; `_take` runs with the session locked.
    """

    def __init__(self, session: Session, python: Path, file: Path | None = None) -> None:
        """Record into the user's folder or a file; raises RecordingError."""
        self._session = session
        self._python = python
        self._file = None if file is None else file.absolute()
        self._first_fd: int | None = None if file is None else _open(file)
        self.header: Header | None = None
        self._entries: deque[_Entry] = deque()
        self._waiting = threading.Lock()
        self._overrun = False
        self._closing = threading.Event()
        self._writer: Writer | None = None
        self._stopped: Writer | None = None
        """Its file stays locked, so that it does not look killed."""
        self._checked_bytes = 0
        self._races = 0
        self._last: _Entry | None = None
        self._changed_s = 0.0
        self._samples: dict[tuple[str, str], deque[Event]] = {}
        self._thread = start_thread("tfmon-recorder", self._run, self._fail)
        session.keep_journal(self._take)

    def close(self) -> None:
        """Write the rest and close the file. May be repeated."""
        with self._waiting:
            self._closing.set()
        self._thread.join(PATIENCE_S)

    def _take(self, event: Event, known: Snapshot) -> None:
        with self._waiting:
            if isinstance(event, RecordingChanged) or self._closing.is_set():
                return
            if len(self._entries) >= MOST_PENDING:
                self._overrun = True
                return
            if self._entries and not isinstance(event, RaceBegan):
                before = self._entries[-1]
                if not isinstance(before.event, RaceBegan):
                    before.known = None
            self._entries.append(_Entry(event, known))

    def _run(self) -> None:
        while not self._closing.wait(FLUSH_S):
            self._work()
        self._work()
        self._end_race()
        if self._first_fd is not None and self._file is not None:  # no race began
            Writer(self._file, self._first_fd).abandon()
            with contextlib.suppress(OSError):
                self._file.unlink()

    def _work(self) -> None:
        try:
            while self._entries:
                with self._waiting:
                    entry = self._entries.popleft()
                self._record(entry)
            known = self._last.known if self._last is not None else None
            if self._writer is not None:
                self._writer.flush()
                if known is not None:
                    self._writer.keep(known)
                if self._file is None and self._writer.written_bytes >= self._checked_bytes + CHECK_BYTES:
                    self._checked_bytes = self._writer.written_bytes
                    if not library.make_room(self._writer.path):
                        most = f"{library.LIMIT_BYTES >> 20} MiB"
                        raise OSError(f"it reached the {most} that all recordings may take")
            if self._overrun:
                raise OSError("the disk does not keep up")
            # Without a result, the user may restart its lanes.
            settled = known is not None and known.over and known.has_result
            if settled and time.monotonic() - self._changed_s >= SETTLED_S:
                self._end_race()
        except Exception as error:  # noqa: BLE001 - a thread's top frame: the race goes on, and the screen says it
            self._stop(self._reason(error))

    def _record(self, entry: _Entry) -> None:
        event = entry.event
        if isinstance(event, RaceBegan):
            self._end_race()
            if event.specs and entry.known is not None:
                self._begin_race(event, entry.known)
        elif isinstance(event, GpuSample | HostSample):
            key = event.key if isinstance(event, GpuSample) else ""
            self._samples.setdefault((key, event.host), deque(maxlen=HISTORY_SAMPLES)).append(event)
        elif isinstance(event, HostEvent) or (isinstance(event, MachineKnown) and event.host):
            self._samples.setdefault((type(event).__name__, event.host), deque(maxlen=1)).append(event)
        if not isinstance(event, GpuSample | HostSample | LinkMeasured):
            self._changed_s = time.monotonic()
        self._last = entry
        if self._writer is not None:
            self._writer.add(event)

    def _begin_race(self, event: RaceBegan, known: Snapshot) -> None:
        self._races += 1
        path, fd = self._next_file(event.race.scenario)
        self._writer = Writer(path, fd)
        self._checked_bytes = 0
        self._report(RecordingState(str(path)))
        self.header = header_of(event, known, self._python)
        self._writer.begin(self.header)
        samples = [sample for kept in self._samples.values() for sample in kept]
        for sample in sorted(samples, key=lambda sample: sample.at_ns):
            self._writer.add(sample)

    def _next_file(self, scenario: str) -> tuple[Path, int]:
        if self._file is None:
            path, fd = library.create(scenario)
            library.make_room(path)
            return path, fd
        if self._first_fd is not None:
            fd, self._first_fd = self._first_fd, None
            return self._file, fd
        name, dot, suffixes = self._file.name.partition(".")
        path = self._file.with_name(f"{name}-{self._races}{dot}{suffixes}")
        return path, library.create_file(path)

    def _end_race(self) -> None:
        if self._stopped is not None:
            self._stopped.abandon()
            self._stopped = None
        writer, self._writer = self._writer, None
        if writer is None or self._last is None or self._last.known is None:
            return
        known = self._last.known
        try:
            writer.close(closed_of(known, self._last.event.at_ns, writer.events), known)
        except Exception as error:  # noqa: BLE001 - as in `_work`
            self._report(RecordingState(str(writer.path), time.monotonic_ns(), self._reason(error)))

    def _stop(self, reason: str) -> None:
        writer, self._writer = self._writer, None
        path = ""
        if writer is not None and writer.events_written:
            path, self._stopped = str(writer.path), writer
        elif writer is not None:
            writer.abandon()
            with contextlib.suppress(OSError):
                writer.path.unlink()
        self._overrun = False
        self._report(RecordingState(path, time.monotonic_ns(), reason))

    def _fail(self, reason: str) -> None:
        self._closing.set()
        self._stop(reason)

    def _reason(self, error: Exception) -> str:
        if not isinstance(error, OSError):
            return f"{type(error).__name__}: {error}"
        folder = library.folder() if self._file is None else self._file.parent
        return f"{folder}: {error.strerror}" if error.strerror else str(error)

    def _report(self, recording: RecordingState) -> None:
        self._session.accept(RecordingChanged(recording=recording))


RECORD = ("record",)


def _open(file: Path) -> int:
    try:
        return library.create_file(file)
    except FileExistsError:
        reason, hint = "the file is there already", "name one that is not"
    except OSError as error:
        reason, hint = str(error.strerror or error), "name a file in a folder of yours"
    raise RecordingError(f"--record {file}: {reason}", hint, options=RECORD)


def closed_of(known: Snapshot, at_ns: int, events: int) -> Closed:
    """Return the last line of a race."""
    result = analyse(known)
    versions = filter(None, (lane.process.versions["tensorflow"] for lane in known.lanes))
    return Closed(
        at_ns=at_ns,
        events=events,
        seconds=known.raced_s,
        verdict=result.outcome,
        ratio=result.verdict.ratio,
        tensorflow=next(versions, None),
        lanes=tuple(lane.title for lane in known.lanes),
        failure="; ".join(_failures(known)),
    )


def _failures(known: Snapshot) -> Iterator[str]:
    for lane in known.lanes:
        if lane.phase not in (FAILED, ABSENT) or lane.trouble is None:
            continue
        end = lane.end.event if lane.script.command else None
        output = end.output_tail if end is not None and end.exit_code else ()
        why = (output[-1].strip() if output else "") or lane.trouble.message
        yield f"{lane.phase}: {why}" if len(known.lanes) == 1 else f"{lane.spec.id} {lane.phase}: {why}"
