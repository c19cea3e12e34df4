"""How a call splits: which settings need a profile, and what is made of a trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfmon.trainer import split
from tfmon.trainer.split import Splits, computing_share

DATA = Path(__file__).parents[1] / "profile" / "data"
TRACES = sorted(DATA.glob("*.xplane.pb"))


def test_settings_need_one_once_and_a_gpu_none():
    splits = Splits("cpu")
    assert splits.wanted({"batch_size": 10}) and splits.of({"batch_size": 10}) is None
    splits.note({"batch_size": 10}, TRACES[0])
    assert not splits.wanted({"batch_size": 10}) and splits.wanted({"batch_size": 20})
    assert splits.of({"batch_size": 10}) == computing_share(TRACES[0])
    splits.note({"batch_size": 20}, None)
    assert not splits.wanted({"batch_size": 20}) and splits.of({"batch_size": 20}) is None
    assert not Splits("gpu").wanted({"batch_size": 10})


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.stem)
def test_a_small_dense_net_is_mostly_dispatch(trace):
    share = computing_share(trace)
    assert share is not None and 0.02 < share < 0.5


def test_what_cannot_be_read_is_not_known(tmp_path, monkeypatch):
    (tmp_path / "damaged").write_bytes(TRACES[0].read_bytes()[:-100])
    assert computing_share(tmp_path / "damaged") is None
    assert computing_share(tmp_path / "nowhere") is None
    monkeypatch.setattr(split, "MOST_BYTES", 1_000)
    assert computing_share(TRACES[0]) is None
