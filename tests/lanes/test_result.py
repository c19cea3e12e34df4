"""The end of a race: no child is left, no request changes its result, and a new race leaves it recorded."""

import json
import time

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.lanes import CHILDREN, RacingGroup
from support.processes import gone
from support.results import to_json
from support.waiting import PATIENCE_S, wait_for

from tfmon.analysis.analysis import analyse
from tfmon.lanes.launch import ASK_S, KILL_S, TERM_S
from tfmon.model.lane_state import DONE
from tfmon.model.race import CONCURRENT, TURNS
from tfmon.model.session import Session

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


@pytest.mark.parametrize("mode", [TURNS, CONCURRENT])
def test_no_request_after_the_end_changes_a_byte_of_the_result(tmp_path_factory, mode):
    group = RacingGroup(tmp_path_factory.mktemp("logs"))
    try:
        group.begin(group.plan("cpu,batch_size=16", "cpu,batch_size=64", mode=mode, steps=600))
        group.wait_for(DONE, *LANES)
        wait_for(lambda: group.all_over, what="every process has ended")
        told = result(group.session)
        assert all(lane["examples_per_s"] for lane in json.loads(told)["lanes"])
        assert mode == CONCURRENT or json.loads(told)["verdict"]["ratio"]

        @settings(max_examples=20, suppress_health_check=list(HealthCheck))
        @given(st.lists(CONTROLS, max_size=6))
        def unchanged(requests) -> None:
            for name, arguments in requests:
                getattr(group, name)(*arguments)
            group.finish()
            assert result(group.session) == told
            assert group.all_over

        unchanged()
    finally:
        group.stop()
    assert result(group.session) == told


def test_stop_leaves_no_child(group):
    group.begin(group.plan("cpu", "gpu", "cpu,batch_size=64", mode=TURNS))
    group.wait_for_steps("gpu:0")
    pids = list(group.pids().values())
    began = time.monotonic()
    group.stop()
    assert time.monotonic() - began < PATIENCE_S / 2, "it waited longer than they needed to end by themselves"
    assert len(pids) == 3
    assert all(gone(pid) for pid in pids)
    assert group.all_over
    assert [lane.end.event.exit_code for lane in group.session.snapshot().lanes] == [0, 0, 0]


def test_stop_takes_children_along_that_a_restart_has_just_told_to_end(group):
    group.begin(group.plan("cpu", "gpu"))
    group.wait_for_steps("cpu")
    pids = list(group.pids().values())
    group.restart(["cpu", "gpu:0"])
    group.stop()
    wait_for(lambda: all(gone(pid) for pid in pids), what="both are gone")
    assert not psutil.Process().children()


def test_a_child_that_ignores_stop_and_sigterm_is_gone_within_three_seconds(tmp_path, monkeypatch):
    monkeypatch.setenv("SAYS", "defiance")
    group = RacingGroup(tmp_path, CHILDREN / "speaker.py")
    group.begin(group.plan("cpu"))
    child = group.pid("cpu")
    # Its hello has the pid of its grandchild, which ignores the signals, too.
    wait_for(lambda: group.lane("cpu").process.pid != child, what="a hello")
    grandchild = group.lane("cpu").process.pid
    assert ASK_S + TERM_S + KILL_S <= 3
    group.stop()
    assert gone(child)
    wait_for(lambda: gone(grandchild), what="the grandchild is gone")
    assert group.lane("cpu").end.event.signal == "SIGKILL"


def test_groups_leave_no_descriptor_no_thread_and_no_zombie(tmp_path):
    def round_trip() -> None:
        group = RacingGroup(tmp_path)
        group.begin(group.plan("cpu"))
        group.wait_for_steps("cpu")
        group.stop()

    here = psutil.Process()
    round_trip()
    files, threads = here.num_fds(), here.num_threads()
    for _ in range(3):
        round_trip()
    wait_for(lambda: here.num_fds() <= files and here.num_threads() <= threads, what="all is given back")
    assert here.children() == []
