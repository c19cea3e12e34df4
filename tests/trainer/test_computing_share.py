"""The computing share of a call: which settings need a profile, and the share read from a trace."""

from pathlib import Path

import pytest

from tfmon.trainer import capture
from tfmon.trainer.capture import LEAST_STEPS, MOST_EVENTS, UNKNOWN, WINDOWS, ComputingShares, ShortProfile, read

DATA = Path(__file__).parents[1] / "profile" / "data"
TRACES = sorted(DATA.glob("*.xplane.pb"))


@pytest.mark.tensorflow
def test_settings_need_one_once_and_a_gpu_none():
    shares = ComputingShares("cpu")
    assert shares.needed({"batch_size": 10}) and shares.of({"batch_size": 10}) is None
    shares.record({"batch_size": 10}, TRACES[0], 20)
    assert not shares.needed({"batch_size": 10}) and shares.needed({"batch_size": 20})
    assert shares.of({"batch_size": 10}) == read(TRACES[0], 20).computing_share
    shares.record({"batch_size": 20}, None, 0)
    assert not shares.needed({"batch_size": 20}) and shares.of({"batch_size": 20}) is None
    assert not ComputingShares("gpu").needed({"batch_size": 10})


class TestAgain:
    def shares(self, monkeypatch, *calls_ns: float) -> ComputingShares:
        shares, told = ComputingShares("cpu"), iter(calls_ns)
        monkeypatch.setattr(capture, "read", lambda trace, steps: ShortProfile(0.5, 100, next(told)))
        for _ in calls_ns:
            shares.record({}, TRACES[0], 20)
        return shares

    @pytest.mark.parametrize(("call_ns", "again"), [(1_000, False), (1_490, False), (1_510, True), (600, True)])
    def test_calls_unlike_those_of_the_profile_need_another_one(self, monkeypatch, call_ns, again):
        assert self.shares(monkeypatch, 1_000).needed({}, [call_ns] * WINDOWS) is again

    def test_where_calls_never_settle_it_is_enough_after_some(self, monkeypatch):
        assert self.shares(monkeypatch, 1_000, 2_000).needed({}, [9_000] * WINDOWS)
        assert not self.shares(monkeypatch, 1_000, 2_000, 4_000).needed({}, [9_000] * WINDOWS)


@pytest.mark.tensorflow
def test_what_cannot_be_read_is_not_known(tmp_path, monkeypatch):
    (tmp_path / "damaged").write_bytes(TRACES[0].read_bytes()[:-100])
    assert read(tmp_path / "damaged", 20) == UNKNOWN
    assert read(tmp_path / "nowhere", 20) == UNKNOWN
    monkeypatch.setattr(capture, "MOST_BYTES", 1_000)
    found = read(TRACES[0], 20)
    assert found.computing_share is None and found.step_events > 0, (
        "its size tells at least how many events it has"
    )


class TestShorten:
    def shortened(self, monkeypatch, events: float, steps: int = 20) -> tuple[int, str]:
        shares = ComputingShares("cpu")
        monkeypatch.setattr(capture, "read", lambda trace, steps: ShortProfile(0.5, events))
        shares.record({}, TRACES[0], 20)
        return shares.shorten({}, steps)

    def test_a_trace_of_usual_size_has_all_steps(self, monkeypatch):
        assert self.shortened(monkeypatch, MOST_EVENTS / 20) == (20, "")
        assert self.shortened(monkeypatch, 0.0) == (20, "")
        assert ComputingShares("cpu").shorten({}, 20) == (20, ""), "nothing is known"

    def test_of_a_large_one_there_are_fewer_and_it_says_why(self, monkeypatch):
        assert self.shortened(monkeypatch, MOST_EVENTS / 10) == (
            10,
            "Only 10 steps and not 20, for each leaves about 20,000 events in the trace.",
        )
        assert self.shortened(monkeypatch, MOST_EVENTS)[0] == LEAST_STEPS
        assert self.shortened(monkeypatch, MOST_EVENTS, steps=2) == (2, "")
