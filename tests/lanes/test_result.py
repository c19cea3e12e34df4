"""A measured result: no request changes it once the lanes have ended, and a new race leaves it recorded."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.lanes import RacingGroup
from support.waiting import wait_for

from tfmon.analysis.analysis import analyse
from tfmon.model.lane_state import DONE
from tfmon.model.race import CONCURRENT, TURNS
from tfmon.model.session import Session
from tfmon.recordings.player import play_all
from tfmon.recordings.recorder import Recorder
from tfmon.reports.race_json import to_json

pytestmark = pytest.mark.process

LANES = ("cpu batch_size=16", "cpu batch_size=64")
CONTROLS = st.one_of(
    st.tuples(st.just("set_mode"), st.sampled_from([(TURNS,), (CONCURRENT,)])),
    st.tuples(st.just("set_exclusive"), st.sampled_from([("",), *((lane,) for lane in LANES)])),
    st.tuples(st.sampled_from(["pause", "resume"]), st.sampled_from([(LANES,), (LANES[:1],)])),
    st.tuples(st.sampled_from(["kill", "ask_stack"]), st.sampled_from([(lane,) for lane in LANES])),
    st.tuples(
        st.just("set_knob"),
        st.tuples(st.sampled_from(LANES), st.sampled_from(["batch_size", "prefetch", "width"]), st.just(8)),
    ),
)


def result(session: Session) -> str:
    return json.dumps(to_json(analyse(session.snapshot())), indent=2)


def raced(group: RacingGroup, mode: str) -> str:
    """Race to the end, and return the result."""
    group.begin(group.plan("cpu,batch_size=16", "cpu,batch_size=64", mode=mode, steps=600))
    group.wait_for(DONE, *LANES)
    wait_for(lambda: group.running.all_over, what="every process has ended")
    told = result(group.session)
    assert all(lane["examples_per_s"] for lane in json.loads(told)["lanes"])
    assert mode == CONCURRENT or json.loads(told)["verdict"]["ratio"]
    return told


@pytest.mark.parametrize("mode", [TURNS, CONCURRENT])
def test_no_request_after_the_end_changes_a_byte_of_the_result(tmp_path_factory, mode):
    group = RacingGroup(tmp_path_factory.mktemp("logs"))
    try:
        told = raced(group, mode)

        @settings(max_examples=40, suppress_health_check=list(HealthCheck))
        @given(st.lists(CONTROLS, max_size=6))
        def unchanged(requests) -> None:
            for name, arguments in requests:
                getattr(group, name)(*arguments)
            group.finish()
            assert result(group.session) == told
            assert group.running.all_over

        unchanged()
    finally:
        group.stop()
    assert result(group.session) == told


def test_racing_again_begins_a_new_race_with_the_same_settings_and_the_result_stays_recorded(group, tmp_path):
    recorder = Recorder(group.session, Path(sys.executable), tmp_path / "race.jsonl")
    try:
        told = json.loads(raced(group, TURNS))
        group.restart([LANES[0]])
        wait_for(lambda: group.session.snapshot().race.number == 2, what="a new race begins")
        group.wait_for(DONE, *LANES)
        again = group.session.snapshot()
        assert [lane.settings["batch_size"] for lane in again.lanes] == [16, 64]
        assert again.race.mode == TURNS and all(lane.steady.windows for lane in again.lanes)
    finally:
        group.stop()
        recorder.close()
    kept = to_json(analyse(play_all(tmp_path / "race.jsonl")[1]))
    assert (kept["verdict"], kept["lanes"]) == (told["verdict"], told["lanes"])
    assert (tmp_path / "race-2.jsonl").is_file()
