"""Long recordings: with fewer samples once they are old, and true to the digit at their end."""

import json
import random
import zlib
from collections import Counter
from pathlib import Path

import pytest
from support import long_race

from tfmon.model import windows
from tfmon.model.events import LanePrinted
from tfmon.model.lane_events import Progressed, Window
from tfmon.model.readings import HostSample, TreeSample
from tfmon.model.session import Session
from tfmon.recordings import library, writer
from tfmon.recordings.header_lines import RecordingError
from tfmon.recordings.player import Player, play_all
from tfmon.recordings.reader import Recording

SECONDS = 420


@pytest.fixture(scope="module", autouse=True)
def hurry():
    """Write a snapshot every half minute, and a sample of ten seconds after three minutes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "SNAPSHOT_S", 30.0)
        patch.setattr(writer, "RARE_S", 180.0)
        patch.setattr(windows, "MOST_RECENT", 500)
        yield


@pytest.fixture(scope="module")
def written(hurry, tmp_path_factory):
    """Return a long recording that tests only read, the state at its end, and the state after each second."""
    path, known = tmp_path_factory.mktemp("long") / "race.jsonl.gz", {}
    end = long_race.write(path, SECONDS, lambda _, one: known.update({round(one.host.at_ns): one}))
    return path, end, known


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "race.jsonl.gz"


def test_an_old_recording_has_all_windows_and_fewer_samples(written):
    path, end, _ = written
    every = list(long_race.events_of(SECONDS))
    with Recording(path) as opened:
        kept = list(opened.events())
        session = Session(opened.header.machine, lambda: 0)
        for event in kept:  # without the states on the way
            session.accept(event)
    assert [one for one in kept if isinstance(one, Window)] == [one for one in every if isinstance(one, Window)]
    for kind in (HostSample, TreeSample, Progressed):
        times = Counter(one.at_ns // 30_000_000_000 for one in kept if isinstance(one, kind))
        assert (times[2], times[10]) == (30, 3), kind
    lane, raced = session.snapshot().lanes[0], end.lanes[0]
    for name in ("recent", "old", "steady", "discarded", "discarded_ns"):
        assert getattr(lane.measurements, name) == getattr(raced.measurements, name)
    assert lane.totals == raced.totals


def test_an_old_recording_keeps_the_last_lines_that_a_lane_prints(path):
    writer_ = writer.Writer(path, library.create_file(path))
    for number in range(4):
        writer_.add(LanePrinted(lane="cpu", at_ns=200_000_000_000 + number, lines=("line",) * 20))
    writer_.flush()
    lines = [json.loads(line) for line in zlib.decompressobj(31).decompress(path.read_bytes()).splitlines()]
    writer_.abandon()
    kept = [(len(one["lines"]), one.get("dropped_bytes", 0)) for one in lines]
    assert kept == [(20, 0), (20, 0), (10, 50), (0, 100)]


def test_a_replay_knows_at_the_begin_of_a_block_what_the_race_knew(written):
    path, _, raced = written
    with Recording(path) as opened:
        player = Player(opened)
        for second in (90, 390):
            block = opened.last_known(opened.position_at(second * 10**9 + 5))
            player.go_to(opened.times_ns[block - 1])
            known = player.session.snapshot()
            assert known.lanes == raced[known.host.at_ns].lanes


def test_a_kill_at_any_time_loses_only_what_was_not_flushed(path, tmp_path):
    chance, cut = random.Random(3), tmp_path / "cut.jsonl.gz"

    def kill(path: Path, known) -> None:
        if chance.random() < 0.03:
            cut.write_bytes(path.read_bytes())
            opened, again = play_all(cut)
            assert opened.closed is None
            assert known.lanes[0].totals.trained_ns == again.lanes[0].totals.trained_ns

    long_race.write(path, 200, kill)
    whole = path.read_bytes()
    for _ in range(6):
        cut.write_bytes(whole[: chance.randrange(2_000, len(whole))])
        assert len(play_all(cut)[0])


def test_what_cannot_have_been_known_makes_one_clear_error(path):
    path = path.with_name("race.jsonl")
    long_race.write(path, 10)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:-1], b'{"type":"Known","known":{"type":"Snapshot"}}\n', lines[-1]]))
    with pytest.raises(RecordingError, match=r"after event \d+: Known.known: Snapshot without at_ns"):
        play_all(path)
