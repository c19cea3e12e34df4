"""Where step time goes: on sums that are known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.measured_lanes import measured_lane as lane

from tfmon.analysis.bottleneck import HIDDEN, NO_COPY, NOT_SAMPLED, NOT_SPLIT, shares_of
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import Missing, known
from tfmon.model.spec import LaneSpec


class TestSharesOnTheHost:
    def test_the_clocks_and_the_split_of_the_call_say_everything(self):
        shares = shares_of(lane(computing=0.75, input_ns=300, call_ns=600, sync_ns=10, report_ns=20))
        assert (shares.input_pct, shares.step_pct, shares.sync_pct, shares.report_pct) == (30, 60, 1, 2)
        assert (shares.dispatch_pct, shares.device_pct, shares.other_pct) == (15, 45, pytest.approx(7))
        assert shares.copy_pct == NO_COPY and not shares.asynchronous

    def test_without_a_split_dispatch_and_compute_are_not_told_apart(self):
        shares = shares_of(lane(call_ns=900))
        assert (shares.dispatch_pct, shares.device_pct, shares.step_pct) == (NOT_SPLIT, NOT_SPLIT, 90)

    def test_tracing_is_neither_dispatch_nor_compute(self):
        shares = shares_of(lane(computing=0.1, call_ns=900, traced_steps=500, traced_ns=700))
        assert (shares.retrace_pct, shares.dispatch_pct, shares.device_pct) == (70, 11, 9)
        assert shares_of(lane(computing=0.1, call_ns=900, traced_ns=900)).retrace_pct == 81

    def test_before_the_first_steady_step_there_are_none(self):
        assert shares_of(LaneState(spec=LaneSpec("cpu"))) is None


class TestSharesOnADevice:
    def test_a_device_that_works_all_the_time_hides_what_the_host_waits_for(self):
        state = lane("gpu:0", input_ns=960, call_ns=30, sampled=2, sampled_call_ns=0.2, sampled_tail_ns=1.8)
        shares = shares_of(state)
        assert (shares.device_pct, shares.input_pct) == (100, 0) and shares.asynchronous

    def test_what_the_device_leaves_goes_by_what_the_host_did(self):
        state = lane(
            "gpu:0",
            input_ns=800,
            call_ns=200,
            sampled=1,
            sampled_call_ns=0.1,
            sampled_tail_ns=0.3,
            sampled_copy_ns=0,
        )
        shares = shares_of(state)
        assert (shares.device_pct, shares.input_pct, shares.dispatch_pct) == tuple(
            pytest.approx(value) for value in (40, 48, 12)
        )

    def test_a_device_that_keeps_up_with_the_launches_hides_behind_them(self):
        state = lane("gpu:0", input_ns=100, call_ns=850, sampled=1, sampled_call_ns=0.9, sampled_tail_ns=0.01)
        shares = shares_of(state)
        assert shares.device_pct == HIDDEN and shares.dispatch_pct == pytest.approx(85)

    def test_while_the_loop_waits_to_read_the_loss_the_device_works(self):
        sums = {"sampled": 1, "sampled_call_ns": 0.1, "sampled_tail_ns": 0.4}
        shares = shares_of(lane("gpu:0", input_ns=400, call_ns=100, sync_ns=500, **sums))
        assert (shares.device_pct, shares.sync_pct, shares.reading_pct) == (pytest.approx(50), 0, 50)
        assert shares.input_pct == pytest.approx(40)

    def test_before_a_step_was_sampled_the_device_is_not_known(self):
        assert shares_of(lane("gpu:0", call_ns=500)).device_pct == NOT_SAMPLED

    def test_a_cpu_that_runs_behind_is_one_as_well(self):
        state = lane("cpu", input_ns=900, call_ns=50, sampled=1, sampled_call_ns=0.1, sampled_tail_ns=0.8)
        assert shares_of(state).asynchronous

    @given(
        st.tuples(*[st.integers(0, 250)] * 4),
        st.floats(0, 1),
        st.integers(0, 3),
        st.tuples(*[st.floats(0, 3)] * 3),
        st.sampled_from(["cpu", "gpu:0"]),
        st.one_of(st.none(), st.floats(0, 1)),
    )
    def test_the_known_shares_always_add_up_to_100(self, sums, traced, sampled, times, device, computing):
        host = dict(zip(("input_ns", "call_ns", "sync_ns", "report_ns"), sums, strict=True))
        host["traced_ns"] = host["call_ns"] * traced
        call, tail, copy = (sampled * value for value in times)
        state = lane(
            device,
            computing,
            sampled=sampled,
            sampled_call_ns=call,
            sampled_tail_ns=tail,
            sampled_copy_ns=copy,
            **host,
        )
        shares = shares_of(state)
        parts = [shares.input_pct, shares.sync_pct, shares.report_pct, shares.other_pct, shares.retrace_pct]
        parts += [known(part) or 0.0 for part in (shares.copy_pct, shares.dispatch_pct, shares.device_pct)]
        if isinstance(shares.dispatch_pct, Missing) and isinstance(shares.device_pct, Missing):
            parts.append(shares.step_pct)
        assert sum(parts) == pytest.approx(100, abs=0.01)
        assert all(part >= -1e-9 for part in parts)
