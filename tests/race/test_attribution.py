"""Where step time goes, and what bounds a lane: on sums that are known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfmon.model.disturbances import (
    GPU_THROTTLED,
    STOLEN,
    SWAPPING,
    THROTTLED,
    gpu_disturbances,
    host_disturbances,
)
from tfmon.model.events import ClockReason, GpuSample, HostSample
from tfmon.model.knobs import COMMON, Knob
from tfmon.model.lane_state import RACING, LaneState
from tfmon.model.measured import Measured
from tfmon.model.measures import Tally
from tfmon.model.readings import Missing, known
from tfmon.model.session import Machine, Race, Snapshot
from tfmon.model.spec import LaneSpec
from tfmon.race.advice import Advice, advice_for, code_for
from tfmon.race.attribution import EAGER, HIDDEN, NO_COPY, NOT_SAMPLED, shares_of
from tfmon.race.diagnosis import diagnose

MS = 1_000_000
KNOBS = (*COMMON, Knob("variant", "slow", "", choices=("slow", "fast")))
SETTINGS = {
    "batch_size": 32,
    "prefetch": "off",
    "parallel_calls": "off",
    "cache": False,
    "graph": True,
    "xla": False,
}


def lane(device: str = "cpu", floor_ns: int | None = None, settings=None, traced: str = "", **sums) -> LaneState:
    """Make a lane that did 1,000 steps of 1 ms, of which the given sums, in ms, are known."""
    counts = {name: sums.pop(name) for name in ("traced_steps", "sampled") if name in sums}
    tally = Tally(
        windows=5,
        steps=1_000,
        examples=32_000,
        span_ns=1_000 * MS,
        **counts,
        **{k: v * MS for k, v in sums.items()},
    )
    return LaneState(
        spec=LaneSpec(device, name=device),
        phase=RACING,
        settings={**SETTINGS, **(settings or {})},
        data_examples=1_000,
        floor_ns=floor_ns,
        traced=traced,
        measured=Measured(steady=tally),
    )


def kind_of(state: LaneState, **more):
    snapshot = Snapshot(0, Machine(usable_cores=4), Race(knobs=KNOBS), (state,), **more)
    return diagnose(snapshot, state)


class TestSharesOnTheHost:
    def test_the_clocks_on_the_steps_say_everything(self):
        shares = shares_of(lane(floor_ns=200_000, input_ns=300, call_ns=600, sync_ns=10, report_ns=20))
        assert (shares.input_pct, shares.step_pct, shares.sync_pct, shares.report_pct) == (30, 60, 1, 2)
        assert (shares.dispatch_pct, shares.device_pct, shares.other_pct) == (20, 40, pytest.approx(7))
        assert shares.copy_pct == NO_COPY and not shares.asynchronous

    def test_dispatch_is_never_more_than_the_call(self):
        shares = shares_of(lane(floor_ns=900_000, input_ns=500, call_ns=400))
        assert (shares.dispatch_pct, shares.device_pct) == (40, 0)

    def test_eagerly_dispatch_and_compute_are_not_told_apart(self):
        shares = shares_of(lane(call_ns=900))
        assert (shares.dispatch_pct, shares.device_pct, shares.step_pct) == (EAGER, EAGER, 90)

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

    def test_before_a_step_was_sampled_the_device_is_not_known(self):
        assert shares_of(lane("gpu:0", call_ns=500)).device_pct == NOT_SAMPLED

    def test_a_cpu_that_runs_behind_is_one_as_well(self):
        state = lane("cpu", input_ns=900, call_ns=50, sampled=1, sampled_call_ns=0.1, sampled_tail_ns=0.8)
        assert shares_of(state).asynchronous

    @given(
        st.tuples(*[st.integers(0, 250)] * 4),
        st.integers(0, 3),
        st.tuples(*[st.floats(0, 3)] * 3),
        st.sampled_from(["cpu", "gpu:0"]),
        st.one_of(st.none(), st.integers(0, 2 * MS)),
    )
    def test_the_known_shares_always_add_up_to_100(self, sums, sampled, times, device, floor_ns):
        host = dict(zip(("input_ns", "call_ns", "sync_ns", "report_ns"), sums, strict=True))
        call, tail, copy = (sampled * value for value in times)
        state = lane(
            device,
            floor_ns,
            sampled=sampled,
            sampled_call_ns=call,
            sampled_tail_ns=tail,
            sampled_copy_ns=copy,
            **host,
        )
        shares = shares_of(state)
        parts = [shares.input_pct, shares.sync_pct, shares.report_pct, shares.other_pct]
        parts += [known(part) or 0.0 for part in (shares.copy_pct, shares.dispatch_pct, shares.device_pct)]
        if isinstance(shares.dispatch_pct, Missing) and isinstance(shares.device_pct, Missing):
            parts.append(shares.step_pct)
        assert sum(parts) == pytest.approx(100, abs=0.01)
        assert all(part >= -1e-9 for part in parts)


CASES = {
    "retracing": lane(call_ns=900, traced_steps=1_000, traced_ns=850, traced="train: argument 3 was 1, then 2"),
    "compute": lane(floor_ns=20_000, call_ns=950, input_ns=20),
    "input": lane(floor_ns=20_000, input_ns=700, call_ns=250),
    "eager": lane(call_ns=900, settings={"graph": False}),
    "dispatch": lane(floor_ns=400_000, input_ns=100, call_ns=800),
    "other": lane(floor_ns=20_000, call_ns=300, input_ns=100),
    "sync": lane(
        "gpu:0", call_ns=100, sync_ns=850, settings={"sync_every_step": True},
        sampled=1, sampled_call_ns=0.05, sampled_tail_ns=0.1,
    ),
    "transfer": lane(
        "gpu:0", call_ns=600, input_ns=300,
        sampled=1, sampled_call_ns=0.1, sampled_tail_ns=0.2, sampled_copy_ns=0.45,
    ),
}  # fmt: skip


class TestDiagnosis:
    @pytest.mark.parametrize("kind", CASES)
    def test_each_bound_is_named_with_the_number_behind_it(self, kind):
        found = kind_of(CASES[kind])
        assert found.kind == kind
        assert any(character.isdigit() for character in found.text)

    def test_a_saturated_device_comes_before_a_host_that_waits(self):
        state = lane("gpu:0", input_ns=960, call_ns=30, sampled=1, sampled_call_ns=0.1, sampled_tail_ns=0.9)
        assert kind_of(state).kind == "compute"

    def test_a_gpu_that_waits_for_launches_is_dispatch_bound(self):
        sampled = {"sampled": 1, "sampled_call_ns": 0.9, "sampled_tail_ns": 0.01}
        state = lane("gpu:0", 50_000, input_ns=100, call_ns=850, **sampled)
        assert kind_of(state).kind == "dispatch"

    def test_two_that_are_close_are_called_mixed(self):
        found = kind_of(lane(floor_ns=20_000, input_ns=480, call_ns=450))
        assert found.kind == "mixed" and "waits for batches" in found.text and "computes" in found.text

    def test_retracing_names_the_argument(self):
        assert "argument 3 was 1, then 2" in kind_of(CASES["retracing"]).text

    def test_a_step_in_python_is_no_eager_one(self):
        assert kind_of(lane(call_ns=900)).text.startswith("Python in the step")

    def test_too_few_windows_say_nothing(self):
        assert kind_of(LaneState(spec=LaneSpec("cpu"))) is None


def host(**readings) -> HostSample:
    return HostSample(at_ns=0, cpu_pct=100.0, memory_used_bytes=1.0, memory_total_bytes=2.0, **readings)


def gpu(*reasons: ClockReason, **more) -> GpuSample:
    nothing = Missing("not asked")
    return GpuSample(
        at_ns=0, key="GPU-1", index=0, name="GPU", busy_pct=5.0, busy_source="samples", used_bytes=nothing,
        total_bytes=nothing, power_w=nothing, power_limit_w=nothing, temperature_c=nothing, clock_reasons=reasons,
        **more,
    )  # fmt: skip


class TestWhatElseThereIs:
    @pytest.mark.parametrize(
        ("readings", "said"),
        [
            ({"swap_in_bytes_per_s": 5e7}, "short of memory"),
            ({"throttled_pct": 40.0}, "CPU quota is used up in 40 % of its periods"),
            ({"others_cpu_pct": 150.0}, "other programs keep 1.5 cores busy"),
            ({"steal_pct": 20.0}, "gives 20 % of a core to other machines"),
        ],
    )
    def test_a_machine_that_is_not_calm_is_told(self, readings, said):
        assert any(said in line for line in kind_of(CASES["compute"], host=host(**readings)).also)

    def test_a_calm_one_is_not(self):
        calm = host(swap_in_bytes_per_s=0.0, throttled_pct=0.0, others_cpu_pct=5.0, steal_pct=0.0)
        assert kind_of(CASES["compute"], host=calm).also == ()

    def test_too_few_threads_are_told(self):
        state = lane(floor_ns=20_000, call_ns=950, settings={"threads": 1})
        assert "threads=1 leaves cores idle: 4 may be used" in kind_of(state, host=host()).also

    def test_a_gpu_that_is_held_down_is_told(self):
        hot = gpu(ClockReason("it is too hot", "alarm"), pcie_warning="4 of 16 lanes", held_by_pid={99: 5})
        lines = kind_of(CASES["sync"], gpus=(hot,)).also
        assert lines == (
            "the GPU runs below full clocks: it is too hot",
            "the GPU's link is narrow: 4 of 16 lanes",
            "1 other programs hold memory of this GPU",
        )


class TestDisturbances:
    @pytest.mark.parametrize(
        ("readings", "reason"),
        [
            ({"swap_out_bytes_per_s": 5e6}, SWAPPING),
            ({"swap_in_bytes_per_s": 5e6}, SWAPPING),
            ({"throttled_pct": 10.0}, THROTTLED),
            ({"steal_pct": 30.0}, STOLEN),
        ],
    )
    def test_what_slows_every_lane_is_named(self, readings, reason):
        assert host_disturbances(host(**readings)) == (reason,)

    def test_what_is_not_known_disturbs_nothing(self):
        assert host_disturbances(host()) == ()

    def test_a_gpu_that_is_throttled_by_heat_disturbs_and_a_power_cap_does_not(self):
        assert gpu_disturbances(gpu(ClockReason("too hot", "alarm"))) == (GPU_THROTTLED,)
        assert gpu_disturbances(gpu(ClockReason("power cap", "warning"))) == ()


class TestAdvice:
    def advised(self, kind: str, tried=(), **settings) -> list[str]:
        return [one.text for one in advice_for(kind, lane(settings=settings), KNOBS, tried)]

    @pytest.mark.parametrize(
        ("kind", "first"),
        [
            ("input", "parallel calls auto"),
            ("eager", "graph on"),
            ("dispatch", "batch 128"),
            ("compute", "xla on"),
        ],
    )
    def test_the_likeliest_comes_first(self, kind, first):
        assert self.advised(kind, **({"graph": False} if kind == "eager" else {}))[0] == first

    def test_what_is_in_force_is_not_advised(self):
        assert "parallel calls auto" not in self.advised("input", parallel_calls="auto")

    def test_what_was_tried_is_not_advised_again(self):
        assert self.advised("input", tried=[("parallel_calls", "auto")])[0] == "prefetch auto"

    def test_a_batch_is_never_larger_than_the_data(self):
        assert "batch 1000" in self.advised("dispatch", batch_size=900)
        assert not [text for text in self.advised("dispatch", batch_size=1_000) if text.startswith("batch")]

    def test_a_graph_is_compiled_only_where_there_is_one(self):
        assert "xla on" not in self.advised("compute", graph=False)

    def test_a_cpu_is_not_told_to_compute_in_float16(self):
        assert "mixed precision float16" not in self.advised("compute")

    def test_the_code_that_does_it_is_at_hand(self):
        assert "prefetch(tf.data.AUTOTUNE)" in code_for(Advice("prefetch", "auto", ""))[0]
        assert "batch(128)" in code_for(Advice("batch_size", 128, ""))[0]
        assert "variant fast" in code_for(Advice("variant", "fast", ""))[0]
