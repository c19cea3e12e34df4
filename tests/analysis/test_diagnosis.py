"""What bounds a lane, and what may help: on sums that are known, and on lanes of a simulated GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.measured_lanes import KNOBS
from support.measured_lanes import measured_lane as lane
from support.simulated_gpu import Gpu, busy_share, simulate

from tfmon.analysis.advice import Advice, advice_for, code_for
from tfmon.analysis.attribution import shares_of
from tfmon.analysis.bottleneck import find_bottleneck
from tfmon.model.knobs import Knob
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import Missing
from tfmon.model.samples import ClockReason, GpuSample, HostSample
from tfmon.model.session import Machine, Race, Snapshot
from tfmon.model.snapshot import GPU_THROTTLED, STOLEN, SWAPPING, THROTTLED, gpu_disturbances, host_disturbances
from tfmon.model.spec import LaneSpec


def kind_of(state: LaneState, **more):
    snapshot = Snapshot(0, Machine(usable_cores=4), Race(knobs=KNOBS), (state,), **more)
    return find_bottleneck(snapshot, state)


CASES = {
    "retracing": lane(call_ns=900, traced_steps=1_000, traced_ns=850, traced="train: argument 3 was 1, then 2"),
    "compute": lane(computing=0.95, call_ns=950, input_ns=20),
    "input": lane(computing=0.9, input_ns=700, call_ns=250),
    "eager": lane(computing=0.3, call_ns=900, settings={"graph": False}),
    "step": lane(call_ns=900),
    "dispatch": lane(computing=0.4, input_ns=100, call_ns=800),
    "other": lane(computing=0.9, call_ns=300, input_ns=100),
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
        state = lane("gpu:0", input_ns=100, call_ns=850, **sampled)
        assert kind_of(state).kind == "dispatch"

    def test_two_that_are_close_are_called_mixed(self):
        found = kind_of(lane(computing=0.95, input_ns=480, call_ns=450))
        assert found.kind == "mixed" and "waits for batches" in found.text and "computes" in found.text

    def test_retracing_names_the_argument(self):
        assert "argument 3 was 1, then 2" in kind_of(CASES["retracing"]).text

    def test_the_largest_waste_is_named(self):
        """Input is below its threshold, but larger than dispatch and than compute."""
        found = kind_of(lane(computing=0.6, input_ns=395, call_ns=605))
        assert found.kind == "mixed" and found.text.startswith("mixed: input-bound: 40 %")

    def test_eager_execution_of_large_operations_is_bound_by_compute(self):
        assert kind_of(lane(computing=0.9, call_ns=990, settings={"graph": False})).kind == "compute"

    def test_reading_each_loss_costs_a_cpu_nothing(self):
        state = lane(computing=0.95, call_ns=600, sync_ns=390, settings={"sync_every_step": True})
        assert kind_of(state).kind != "sync"

    def test_too_few_windows_say_nothing(self):
        assert kind_of(LaneState(spec=LaneSpec("cpu"))) is None


HOST_US = {"input": 200, "launch": 300, "copy": 100, "device": 1_000}
"""A lane that is none of the extremes; each case changes what makes it one."""
GPUS = {
    "the device is slow": ({"device": 5_000}, "compute"),
    "the device is slow, and the input nearly as much": ({"device": 5_000, "input": 4_000}, "compute"),
    "the device is slow, and the loss is read each step": ({"device": 5_000, "reads": True}, "compute"),
    "the input is slow": ({"input": 5_000}, "input"),
    "the input is slow, and the loss is read each step": ({"input": 5_000, "reads": True}, "input"),
    "many small kernels": ({"device": 300, "launch": 3_000}, "dispatch"),
    "many small kernels, one by one": ({"device": 300, "launch": 3_000, "graph": False}, "eager"),
    "the batches are large": ({"copy": 4_000}, "transfer"),
    "the loss is read each step": ({"input": 700, "launch": 500, "device": 1_800, "reads": True}, "sync"),
    "Python between the steps": ({"between": 4_000}, "other"),
    "input and copies alike": ({"input": 2_000, "copy": 2_000, "device": 500}, "mixed"),
}


class TestOnAGpu:
    @pytest.mark.parametrize("case", GPUS)
    def test_each_kind_of_lane_is_told(self, case):
        changed, kind = GPUS[case]
        assert kind_of(simulate(Gpu(**{**HOST_US, **changed}))).kind == kind

    @pytest.mark.parametrize("case", GPUS)
    def test_the_device_is_as_busy_as_it_is_said_to_be(self, case):
        gpu = Gpu(**{**HOST_US, **GPUS[case][0]})
        state = simulate(gpu)
        shares = shares_of(state)
        if isinstance(shares.device_pct, Missing):
            assert GPUS[case][1] in ("dispatch", "eager")
        else:
            assert shares.device_pct == pytest.approx(100 * busy_share(state, gpu), abs=3)


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
        state = lane(computing=0.95, call_ns=950, settings={"threads": 1})
        assert "threads=1 leaves cores idle: 4 may be used" in kind_of(state, host=host()).also

    def test_a_gpu_that_is_held_down_is_told(self):
        hot = gpu(ClockReason("it is too hot", "alarm"), pcie_warning="4 of 16 lanes", used_by_pid={99: 5})
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
    def advised(self, kind: str, **settings) -> list[str]:
        return [one.text for one in advice_for(kind, lane(settings=settings), KNOBS)]

    @pytest.mark.parametrize(
        ("kind", "first"),
        [
            ("input", "cache on"),
            ("step", "xla on"),
            ("eager", "graph on"),
            ("dispatch", "batch 128"),
            ("compute", "xla on"),
        ],
    )
    def test_the_likeliest_comes_first(self, kind, first):
        assert self.advised(kind, **({"graph": False} if kind == "eager" else {}))[0] == first

    @pytest.mark.parametrize(("examples", "first"), [(310_000, "cache on"), (330_000, "parallel calls auto")])
    def test_a_cache_comes_first_where_an_epoch_is_short(self, examples, first):
        state = replace(lane(), data_examples=examples)
        assert advice_for("input", state, KNOBS)[0].text == first, "32,000 examples take 1 s"

    def test_without_an_end_of_the_data_a_cache_is_never_full(self):
        assert advice_for("input", replace(lane(), data_examples=None), KNOBS)[0].text == "parallel calls auto"

    def test_what_is_in_force_is_not_advised(self):
        assert "parallel calls auto" not in self.advised("input", parallel_calls="auto")

    def test_a_batch_is_never_larger_than_the_data(self):
        assert "batch 1000" in self.advised("dispatch", batch_size=900)
        assert not [text for text in self.advised("dispatch", batch_size=1_000) if text.startswith("batch")]

    def test_a_larger_batch_comes_first_where_it_is_small(self):
        assert self.advised("compute", batch_size=8)[0] == "batch 32"
        assert self.advised("compute", batch_size=32)[0] == "xla on"
        assert self.advised("compute", batch_size=1)[0] == "batch 32"

    def test_only_variants_that_do_the_same_work_are_advised(self):
        variant = Knob("variant", "a", "Which.", choices=("a", "b", "c"), remedies=("a", "b"))
        state = lane(settings={"variant": "a"})
        advice = advice_for("retracing", state, (variant,))
        assert [one.text for one in advice] == ["variant b"]

    def test_a_graph_is_compiled_only_where_there_is_one(self):
        assert "xla on" not in self.advised("compute", graph=False)

    def test_a_cpu_is_not_told_to_compute_in_float16(self):
        assert "mixed precision float16" not in self.advised("compute")

    def test_the_code_that_does_it_is_at_hand(self):
        assert "prefetch(tf.data.AUTOTUNE)" in code_for(Advice("prefetch", "auto", ""))[0]
        assert "batch(128)" in code_for(Advice("batch_size", 128, ""))[0]
        assert "variant fast" in code_for(Advice("variant", "fast", ""))[0]
