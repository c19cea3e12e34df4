"""The computing share of a call: which settings need a profile, and the share read from a trace."""

from pathlib import Path

import pytest

from tfmon.trainer import capture
from tfmon.trainer.capture import LEAST_STEPS, MOST_EVENTS, UNKNOWN, WINDOWS, ComputingShares, ShortProfile, read

DATA = Path(__file__).parents[1] / "profile" / "data"
TRACES = sorted(DATA.glob("*.xplane.pb"))


@pytest.mark.tensorflow
def test_settings_need_one_once_and_a_gpu_none_and_unreadable_ones_are_unknown(tmp_path, monkeypatch):
    shares = ComputingShares("cpu")
    assert shares.needed({"batch_size": 10}) and shares.share({"batch_size": 10}) is None
    shares.record({"batch_size": 10}, TRACES[0], 20)
    assert not shares.needed({"batch_size": 10}) and shares.needed({"batch_size": 20})
    assert shares.share({"batch_size": 10}) == read(TRACES[0], 20).computing_share
    shares.record({"batch_size": 20}, None, 0)
    assert not shares.needed({"batch_size": 20}) and shares.share({"batch_size": 20}) is None
    assert not ComputingShares("gpu").needed({"batch_size": 10})
    (tmp_path / "damaged").write_bytes(TRACES[0].read_bytes()[:-100])
    assert read(tmp_path / "damaged", 20) == read(tmp_path / "nowhere", 20) == UNKNOWN
    monkeypatch.setattr(capture, "MOST_BYTES", 1_000)
    found = read(TRACES[0], 20)
    assert found.computing_share is None and found.step_events > 0, "its size shows the number of events"


def recorded(monkeypatch, *profiles: ShortProfile) -> ComputingShares:
    shares, told = ComputingShares("cpu"), iter(profiles)
    monkeypatch.setattr(capture, "read", lambda trace, steps: next(told))
    for _ in profiles:
        shares.record({}, TRACES[0], 20)
    return shares


@pytest.mark.parametrize(
    ("profiles_ns", "call_ns", "again"),
    [
        ([1_000], 1_000, False),
        ([1_000], 1_490, False),
        ([1_000], 1_510, True),
        ([1_000], 600, True),
        ([1_000, 2_000], 9_000, True),
        ([1_000, 2_000, 4_000], 9_000, False),
    ],
)
def test_calls_unlike_those_of_the_profile_need_another_one_up_to_some(monkeypatch, profiles_ns, call_ns, again):
    shares = recorded(monkeypatch, *[ShortProfile(0.5, 100, profile_ns) for profile_ns in profiles_ns])
    assert shares.needed({}, [call_ns] * WINDOWS) is again


@pytest.mark.parametrize(
    ("events", "steps", "shorter", "why"),
    [
        (MOST_EVENTS / 20, 20, 20, ""),
        (0.0, 20, 20, ""),
        (MOST_EVENTS / 10, 20, 10, "Only 10 steps and not 20, for each leaves about 20,000 events in the trace."),
        (MOST_EVENTS, 20, LEAST_STEPS, "Only"),
        (MOST_EVENTS, 2, 2, ""),
    ],
)
def test_a_large_trace_has_fewer_steps_and_says_why(monkeypatch, events, steps, shorter, why):
    shares = recorded(monkeypatch, ShortProfile(0.5, events))
    taken, said = shares.shorten({}, steps)
    assert (taken, bool(said)) == (shorter, bool(why)) and said.startswith(why)
