"""Long recordings: small while they are written, thinned where they are old, true to the digit at their end."""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from support import long_race

from tfmon.model.lane_events import Window
from tfmon.model.session import Session
from tfmon.recordings import library, writer
from tfmon.recordings.header import RecordingError
from tfmon.recordings.player import Player, play_all
from tfmon.recordings.reader import Recording, peek

SECONDS = 420


def hurry(patch: pytest.MonkeyPatch) -> None:
    """Make blocks of half a minute, thinned to seconds after as long, and to ten seconds after three minutes."""
    patch.setattr(writer, "BLOCK_S", 30.0)
    patch.setattr(writer, "STAGES", ((30.0, 1.0), (180.0, 10.0)))
    patch.setattr(writer, "JOINED_S", 183.0)


@pytest.fixture
def soon(monkeypatch):
    hurry(monkeypatch)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return a long recording that tests only read, what was known at its end, and after each second."""
    path, known = tmp_path_factory.mktemp("long") / "race.jsonl.gz", {}
    with pytest.MonkeyPatch.context() as patch:
        hurry(patch)
        end = long_race.write(path, SECONDS, lambda _, one: known.update({round(one.host.at_ns): one}))
    return path, end, known


@pytest.fixture
def path(tmp_path, soon) -> Path:
    return tmp_path / "race.jsonl.gz"


def windows_of(path: Path) -> list[Window]:
    with Recording(path) as opened:
        return [event for event in opened.events() if isinstance(event, Window)]


def test_a_long_recording_ends_with_the_figures_of_the_race_to_the_digit(written, soon):
    path, end, _ = written
    opened, again = play_all(path)
    assert replace(again, at_ns=end.at_ns, recording=None) == end
    assert (opened.torn, peek(path)[1]) == (False, opened.closed)
    assert opened.closed is not None
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_old_windows_are_added_up_to_seconds_and_then_to_more_and_their_sums_stay(written, soon):
    path, end, _ = written
    windows, every = windows_of(path), [one for one in long_race.events_of(SECONDS) if isinstance(one, Window)]
    times = Counter(one.at_ns // 30_000_000_000 for one in windows)
    assert times[2] <= 5, "of ten seconds, and where blocks meet"
    assert times[10] <= 32
    assert times[13] == 30 * long_race.WINDOWS
    for name in ("windows", "steps", "examples", "span_ns", "input_ns", "call_ns", "sync_ns", "report_ns"):
        assert sum(getattr(one, name) for one in windows) == sum(getattr(one, name) for one in every)
    assert max(one.longest_ns for one in windows) == max(one.longest_ns for one in every)
    with Recording(path) as opened:  # without what was known on the way
        session = Session(opened.header.machine, lambda: 0)
        for event in opened.events():
            session.accept(event)
    lane, raced = session.snapshot().lanes[0], end.lanes[0]
    assert (lane.totals.steps, lane.totals.examples, lane.totals.trained_ns) == (
        raced.totals.steps,
        raced.totals.examples,
        raced.totals.trained_ns,
    )
    assert lane.steady == raced.steady, "histograms, too"
    assert lane.measurements.discarded == raced.measurements.discarded


def test_a_replay_knows_at_the_begin_of_a_block_what_the_race_knew(written, soon):
    path, _, raced = written
    with Recording(path) as opened:
        player = Player(opened)
        for second in (180, 390):  # the first is long ago
            block = opened.last_known(opened.place_at(second * 10**9 + 5))
            player.go_to(opened.times_ns[block - 1])
            known = player.session.snapshot()
            assert known.lanes == raced[known.host.at_ns].lanes


def test_a_kill_at_any_time_loses_only_what_was_not_flushed(path, tmp_path):
    chance, cut = random.Random(3), tmp_path / "cut.jsonl.gz"

    def kill(path: Path, known) -> None:
        if chance.random() < 0.05:
            cut.write_bytes(path.read_bytes())
            opened, again = play_all(cut)
            assert opened.torn
            assert again.lanes == known.lanes

    long_race.write(path, SECONDS, kill)
    whole = path.read_bytes()
    for _ in range(20):
        cut.write_bytes(whole[: chance.randrange(2_000, len(whole))])
        assert len(play_all(cut)[0])


def test_a_disk_that_is_full_when_old_events_are_thinned_leaves_all_as_it_was(path, monkeypatch):
    made = library.create_file

    def full(path: Path) -> int:
        if path.name.endswith(library.PART):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return made(path)

    monkeypatch.setattr(library, "create_file", full)
    end = long_race.write(path, SECONDS)
    assert len(windows_of(path)) == SECONDS * long_race.WINDOWS
    assert replace(play_all(path)[1], at_ns=end.at_ns, recording=None) == end


def test_a_file_with_plain_lines_has_all_events_as_they_came(tmp_path, soon):
    path = tmp_path / "race.jsonl"
    end = long_race.write(path, 100)
    assert len(windows_of(path)) == 100 * long_race.WINDOWS
    assert replace(play_all(path)[1], at_ns=end.at_ns, recording=None) == end


def test_what_cannot_have_been_known_makes_one_clear_error(path):
    path = path.with_name("race.jsonl")
    long_race.write(path, 10)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:-1], b'{"type":"Known","known":{"type":"Snapshot"}}\n', lines[-1]]))
    with pytest.raises(RecordingError, match=r"after event \d+: Known.known: Snapshot without at_ns"):
        play_all(path)
