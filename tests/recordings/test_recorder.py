"""Recording: every event in its order, private to the user, and a disk that fails never stops the race."""

import errno
import fcntl
import gzip
import os
import stat
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.recordings import record
from support.ui import CPU_MACHINE, Demo, racing_demo
from support.waiting import wait_for

from tfmon.analysis.verdict import find_verdict
from tfmon.model.events import HostConnected, HostConnecting, LinkMeasured, MachineKnown, RecordingChanged
from tfmon.model.lane_events import Finished
from tfmon.model.ports import NOT_CLOSED
from tfmon.model.race import Machine, Race
from tfmon.model.session import Session
from tfmon.model.spec import LaneSpec, name_lanes
from tfmon.recordings import header_lines, library, recorder, writer
from tfmon.recordings.header_lines import RecordingError
from tfmon.recordings.player import play_all
from tfmon.recordings.reader import Recording, peek
from tfmon.recordings.recorder import Recorder
from tfmon.ui.render.bars import status_row
from tfmon.ui.source import Display

LANES = name_lanes([LaneSpec("cpu")])


@pytest.fixture
def session():
    return Session(Machine(hostname="here"), iter(range(10**9)).__next__)


@pytest.fixture
def keep(session):
    """Record the session. Recorders are closed at the end of the test."""
    kept: list[Recorder] = []

    def start(path: Path | None = None) -> Recorder:
        kept.append(Recorder(session, Path(sys.executable), path))
        return kept[-1]

    yield start
    for one in kept:
        one.close()


def recording_of(session: Session):
    return session.snapshot().recording


def finish(session: Session, steps: int) -> None:
    session.accept(Finished(lane="cpu", at_ns=steps, steps=steps))


def steps_of(session: Session) -> list[int]:
    try:
        with Recording(Path(recording_of(session).path)) as opened:
            return [event.steps for event in opened.events() if isinstance(event, Finished)]
    except RecordingError:
        return []  # not even the header yet


def test_a_replay_knows_at_the_end_what_the_race_knew_and_a_list_its_ratio(folder):
    _, end = record(None)
    [path] = folder.iterdir()
    _, again = play_all(path)
    assert replace(again, at_ns=end.at_ns, recording=end.recording) == end
    assert peek(path)[1].ratio == find_verdict(end).ratio is not None


def test_recordings_are_private_and_hold_only_the_listed_environment(folder, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_autotune_level=0")
    before = os.umask(0)
    try:
        record(None, Demo)
    finally:
        os.umask(before)
    [path] = folder.iterdir()
    assert (stat.S_IMODE(folder.stat().st_mode), stat.S_IMODE(path.stat().st_mode)) == (0o700, 0o600)
    assert b"hunter2" not in gzip.decompress(path.read_bytes())
    with Recording(path) as opened:
        assert opened.header.environment["XLA_FLAGS"] == "--xla_gpu_autotune_level=0"
        assert set(opened.header.environment) <= set(header_lines.ENVIRONMENT)


def test_the_second_race_on_hosts_knows_them_and_their_connections_from_its_start(folder, session, keep):
    one = keep()
    there = Machine(hostname="node", boot="b", cores=16)
    session.accept(HostConnecting(at_ns=1, host="gpu2"))
    session.accept(HostConnected(at_ns=2, host="gpu2", machine=replace(there, cores=0)))
    session.accept(MachineKnown(at_ns=3, machine=there, host="gpu2"))
    for offset_ns in (5, 6):
        link = {"round_trip_ns": 9, "offset_ns": offset_ns, "error_ns": 4}
        session.accept(LinkMeasured(at_ns=offset_ns, host="gpu2", **link))
    for name in ("first", "second"):
        session.begin(Race(name), name_lanes([LaneSpec("cpu", host="gpu2")]))
        session.accept(Finished(lane="gpu2/cpu", at_ns=40, steps=1))
    known = session.snapshot()
    one.close()
    files = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    assert len(files) == 2
    for path in files:
        opened, again = play_all(path)
        assert opened.header.hosts == {"gpu2": there}
        assert again.hosts["gpu2"] == known.hosts["gpu2"]
        assert (again.hosts["gpu2"].link.offset_ns, again.machine_of(again.lanes[0])) == (6, there)


def fill(monkeypatch, room: int) -> SimpleNamespace:
    """Replace the disk by one that takes this number of bytes and is then full, in the middle of a line."""
    disk = SimpleNamespace(room=room)

    def write(fd: int, data: memoryview) -> int:
        if disk.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = os.write(fd, data[: disk.room])
        disk.room -= done
        return done

    monkeypatch.setattr(writer, "os", SimpleNamespace(**{**vars(os), "write": write}))
    return disk


def reason_after(session: Session, events: int) -> str:
    """Race until the recording has stopped, and return the reason."""
    session.begin(Race("mine"), LANES)
    for steps in range(events):
        finish(session, steps)
    wait_for(lambda: recording_of(session) and recording_of(session).reason)
    return recording_of(session).reason


def test_a_full_disk_stops_the_recording_and_neither_the_race_nor_the_next_recording(
    folder, session, keep, monkeypatch
):
    disk = fill(monkeypatch, 1_200)
    one = keep()
    session.begin(Race("mine"), LANES)
    finish(session, 0)
    wait_for(lambda: recording_of(session) and steps_of(session) == [0])
    for steps in range(1, 2_000):
        finish(session, steps)
    wait_for(lambda: recording_of(session).reason)
    stopped = recording_of(session)
    assert stopped.reason == f"{folder}: No space left on device" and stopped.stopped_ns is not None
    assert session.snapshot().lanes[0].phase == "done"
    kept = steps_of(session)
    assert kept == list(range(len(kept)))
    assert 0 < len(kept) < 2_000
    (run,) = library.runs()
    assert run.outcome == "still running", "it was not killed"
    disk.room = 10**9
    session.begin(Race("second"), LANES)
    finish(session, 2)
    one.close()
    assert recording_of(session).reason == "", "the next race is recorded again"
    assert steps_of(session) == [2]
    assert library.runs()[0].outcome == NOT_CLOSED


def test_a_disk_without_any_room_is_reported_and_no_empty_file_is_left(folder, session, keep, monkeypatch):
    fill(monkeypatch, 0)
    keep()
    assert reason_after(session, 3) == f"{folder}: No space left on device"
    assert recording_of(session).path == ""
    assert list(folder.iterdir()) == []


def test_the_screen_says_since_when_nothing_is_recorded():
    demo = racing_demo(CPU_MACHINE)
    started_ns = demo.session.snapshot().race.started_ns
    for path, words in (("x.jsonl", "recording stopped at 0:12: disk full"), ("", "not recorded: disk full")):
        told = recorder.RecordingState(path, started_ns + 12 * 10**9, "disk full")
        demo.session.accept(RecordingChanged(at_ns=1, recording=told))
        row = status_row(demo.session.snapshot(), Display(), 2, 120)
        assert words in "".join(text for text, _ in row)


def test_no_file_is_overwritten_or_left_behind_by_a_race_that_never_began(tmp_path, session, keep):
    path = tmp_path / "mine.jsonl"
    path.write_text("precious")
    with pytest.raises(RecordingError, match="is there already"):
        Recorder(session, Path(sys.executable), path)
    assert path.read_text() == "precious"
    with pytest.raises(RecordingError, match="No such file or directory"):
        Recorder(session, Path(sys.executable), tmp_path / "none" / "mine.jsonl")
    keep(tmp_path / "another.jsonl").close()
    assert list(tmp_path.iterdir()) == [path]


def test_a_slow_disk_costs_bounded_memory(folder, session, monkeypatch, keep):
    monkeypatch.setattr(recorder, "MOST_PENDING", 10)
    monkeypatch.setattr(recorder, "FLUSH_S", 0.2)
    keep()
    assert reason_after(session, 1_000) == "the disk does not keep up"


def test_the_oldest_are_dropped_first_and_never_one_that_is_being_written(folder):
    folder.mkdir(parents=True)
    oldest, old, young, own = paths = [folder / name for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl", "d.jsonl")]
    for age_s, path in enumerate(paths):
        path.write_bytes(b"x" * 1_000)
        os.utime(path, (age_s, age_s))
    (folder / "notes.txt").write_text("mine")
    with oldest.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # another tfmon writes it
        assert library.make_room(own, 3_000)
        assert sorted(path.name for path in folder.iterdir()) == ["a.jsonl", "c.jsonl", "d.jsonl", "notes.txt"]
        assert not library.make_room(own, 500)
    assert sorted(path.name for path in folder.iterdir()) == ["a.jsonl", "d.jsonl", "notes.txt"]
    assert (old.exists(), young.exists()) == (False, False)


def test_a_race_that_takes_all_the_room_is_no_longer_recorded(folder, session, keep, monkeypatch):
    monkeypatch.setattr(library, "LIMIT_BYTES", 500)
    monkeypatch.setattr(recorder, "CHECK_BYTES", 200)
    monkeypatch.setattr(library.make_room, "__defaults__", (500,))
    keep()
    assert "all recordings may take" in reason_after(session, 100)
