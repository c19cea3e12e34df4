"""Playing: the state at a moment of the race does not depend on how the player got there."""

import random

import pytest
from support.recordings import RECORDED, record

from tfmon.recordings import player as playing
from tfmon.recordings.player import SPEEDS, Player
from tfmon.recordings.reader import Recording


@pytest.fixture
def opened():
    with Recording(RECORDED) as recording:
        yield recording


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """On a busy machine as well, a tick ends with its last event."""
    monkeypatch.setattr(playing, "TICK_S", 120.0)


@pytest.fixture
def player(opened, monkeypatch):
    monkeypatch.setattr(playing, "KEEP_EVERY", 20)
    return Player(opened)


def at(player: Player) -> float:
    state = player.state()
    return (state.at_ns - state.from_ns) / 1e9


def test_a_moment_is_the_same_from_wherever_the_player_comes(opened, player):
    known = {}
    straight = Player(opened)
    straight.step(-1)
    while not straight.state().at_end:
        known[straight.state().event] = straight.session.snapshot()
        straight.step(1)
    places = random.Random(7)
    for _ in range(60):
        player.go_to(places.randrange(opened.times_ns[0], opened.times_ns[-1]))
        event = player.state().event
        now = player.session.snapshot()
        assert now.lanes == known[event].lanes
        assert (now.race, now.hosts) == (known[event].race, known[event].hosts)


def test_speeds_go_to_100_and_play_at_the_end_begins_again(player):
    for _ in SPEEDS:
        player.change_speed(1)
    player.tick(0.05)
    assert (player.state().speed, at(player)) == (100, 5)
    player.tick(1_000)
    player.toggle()
    assert (at(player), player.state().playing) == (0, True)


def test_on_a_slow_machine_the_clock_lags_and_no_event_is_lost(player, opened, monkeypatch):
    monkeypatch.setattr(playing, "TICK_S", -1.0)
    player.tick(1_000)
    state = player.state()
    assert (state.event, state.playing) == (opened.position_at(opened.times_ns[0]) + 1, True)
    assert state.at_ns == opened.times_ns[state.event - 1]


def test_knobs_are_marked_and_the_player_goes_to_marks(tmp_path, monkeypatch):
    _, end = record(tmp_path / "race.jsonl")
    with Recording(tmp_path / "race.jsonl") as opened:
        player = Player(opened)
        marks = player.state().marks
        assert [mark.text for mark in marks] == ["batch_size 20 (cpu)", "batch_size 20 (gpu:0)"]
        assert {mark.kind for mark in marks} == {"knob"}
        player.go_to_mark(1)
        assert player.state().at_ns == marks[0].at_ns
        assert player.session.snapshot().lane("cpu").settings["batch_size"] == 20, "the mark has happened"
        player.go_to(player.state().to_ns)
        assert player.session.snapshot().lanes == end.lanes
        player.go_to_mark(-1)
        assert player.state().at_ns == marks[-1].at_ns


def test_a_bad_event_stops_the_replay_and_is_named(tmp_path):
    lines = RECORDED.read_bytes().splitlines(keepends=True)
    lines[60] = b'{"type":"Finished","at_ns":%d,"steps":"all"}\n' % Recording(RECORDED).times_ns[58]
    path = tmp_path / "race.jsonl"
    path.write_bytes(b"".join(lines))
    with Recording(path) as opened:
        player = Player(opened)
        player.tick(1_000)
        state = player.state()
        assert (state.event, state.playing) == (59, False)
        assert "event 60: Finished.steps" in state.note
        player.toggle()
        assert not player.state().playing
        player.skip(-1)
        assert player.state().note == ""
