"""Where the time of a step goes, and which bottleneck that is."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.events import gpu_sample
from support.measured_lanes import KNOBS
from support.measured_lanes import measured_lane as lane

from tfmon.analysis.bottleneck import find_bottleneck
from tfmon.analysis.bottleneck_rules import Shares, find_kinds
from tfmon.analysis.health import concerns
from tfmon.analysis.shares import shares_of
from tfmon.model import account as groups
from tfmon.model.account import TimePart
from tfmon.model.gpu_samples import ClockReason, GpuSample
from tfmon.model.host_states import HostState
from tfmon.model.lane_events import Accounted, CauseSeen, bin_of
from tfmon.model.lane_state import LaneState, ProcessInfo, ScriptFacts, StepFacts
from tfmon.model.race import Machine, Race
from tfmon.model.readings import HostSample, Missing, known
from tfmon.model.session import Snapshot


def kind_of(state: LaneState, host: HostSample | None = None, gpus: tuple[GpuSample, ...] = ()):
    known = HostState(Machine(usable_cores=4), sample=host, gpus=gpus)
    snapshot = Snapshot(0, Race(knobs=KNOBS), (state,), {"": known})
    return find_bottleneck(snapshot, state)


CASES = {
    "retracing": lane(call_ns=900, traced_steps=1_000, traced_ns=850, traced="train: `argument 3`: 1 → 2"),
    "compute": lane(computing=0.95, call_ns=950, input_ns=20),
    "input": lane(computing=0.9, input_ns=700, call_ns=250),
    "eager": lane(computing=0.3, call_ns=900, settings={"graph": False}),
    "step": lane(call_ns=900),
    "dispatch": lane(computing=0.2, input_ns=100, call_ns=800),
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


EVEN = Shares(input_pct=10, copy_pct=0, dispatch_pct=20, device_pct=60, step_pct=80, other_pct=10)
UNSPLIT = {"dispatch": Missing(""), "device": Missing("")}


def step(dispatch: float, compute: float) -> dict[str, float]:
    return {"dispatch": dispatch, "device": compute, "step": dispatch + compute}


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({"retraced_steps": 2.0}, "compute"),
        ({"retraced_steps": 2.1}, "retracing"),
        # Where the device works nearly all the time, other waits are hidden, and eager execution costs nothing.
        ({**step(20, 80), "reading": 90, "copy": 26}, "compute"),
        ({**step(20, 79), "reading": 90}, "sync"),
        ({**step(20, 79), "eager": True}, "compute"),
        ({**step(10, 41), "input": 40}, "compute input"),
        ({**step(10, 51), "input": 40.1}, "input compute"),
        # Below its threshold input is named where it is the largest part. A step that is not split is two halves.
        ({**step(20, 20), "input": 38}, "input"),
        ({**UNSPLIT, "step": 60, "input": 31}, "input"),
        ({**UNSPLIT, "step": 64, "input": 31}, "step"),
        # A loop that would wait for batches anyway does not lack them because it reads its results.
        ({**step(10, 20), "input": 41, "reading": 50}, "input"),
        ({**step(10, 30), "input": 20, "reading": 30.1}, "sync"),
        ({**step(10, 30), "input": 20.2, "reading": 30.1}, "sync input"),
        ({**step(10, 30), "input": 20, "reading": 30}, "compute"),
        ({**step(10, 15), "copy": 25.1}, "transfer"),
        ({**step(10, 45), "other": 40}, "compute other"),
        ({**step(10, 20), "input": 20, "other": 35}, "other"),
        # Dispatch is named from 35 % of the step on, and not alone while the lane computes for longer.
        ({**step(35, 65)}, "compute"),
        ({**step(35.1, 64.9)}, "dispatch compute"),
        ({**step(30, 54)}, "dispatch compute"),
        ({**step(60, 10), "eager": True}, "eager"),
        ({**step(30, 20), "input": 39, "eager": True}, "input dispatch"),
        ({"dispatch": 20, "device": Missing(""), "step": 20, "input": 19}, "dispatch input"),
        ({"dispatch": 21, "device": Missing(""), "step": 21, "input": 22, "copy": 25}, "dispatch transfer"),
        ({**UNSPLIT, "step": 90}, "step"),
        # A lead of dispatch or compute that is below its uncertainty does not count. Other parts are known well.
        ({**step(30, 43), "split_error": 29}, "dispatch compute"),
        ({**step(29, 57), "split_error": 34}, "compute dispatch"),
        ({**step(56, 30), "split_error": 34}, "dispatch compute"),
        ({**step(56, 28), "input": 30, "split_error": 34}, "dispatch compute"),
        ({**step(20, 30), "input": 45, "split_error": 20}, "input"),
    ],
)
def test_each_rule_at_its_threshold_and_in_its_order(changes, kinds):
    parts = {name if name in ("eager", "split_error") else f"{name}_pct": part for name, part in changes.items()}
    assert " ".join(find_kinds(replace(EVEN, **parts))) == kinds


S = 10**9


def told(id: str, state: LaneState) -> str:
    """Return the text of a lane's concern."""
    snapshot = Snapshot(0, Race(knobs=KNOBS), (state,), {"": HostState()})
    return next(one.text for one in concerns(snapshot, state) if one.id == id)


class TestLanes:
    @pytest.mark.parametrize("kind", CASES)
    def test_each_kind_is_named_with_the_number_behind_it(self, kind):
        found = kind_of(CASES[kind])
        assert found.kind == kind
        assert any(character.isdigit() for character in found.text)

    @pytest.mark.parametrize(
        ("state", "kind"),
        [
            (lane(call_ns=900, traced_steps=2, traced_ns=850), "other"),
            (lane(computing=0.95, call_ns=600, sync_ns=390, settings={"sync_every_step": True}), "compute"),
            (lane("gpu:0", call_ns=900, sampled=1, sampled_call_ns=0.9, sampled_tail_ns=0.01), "dispatch"),
        ],
        ids=["only traced at first", "a CPU whose losses are read", "a GPU that waits for its next kernel"],
    )
    def test_what_looks_like_another_kind(self, state, kind):
        assert kind_of(state).kind == kind

    def test_functions_on_other_machines_are_not_called_computing(self):
        behind = lane("cpu", call_ns=100, sync_ns=850, sampled=10, sampled_call_ns=1, sampled_tail_ns=9)
        assert kind_of(behind).kind == "compute"
        reason = "functions may run on other machines"
        state = replace(behind, script=ScriptFacts("ps.py", step="a thread", not_measured={"input": reason}))
        assert kind_of(state).kind == "step" and shares_of(state).device_pct == Missing(reason)

    def test_a_sentence_and_its_causes_have_shares_of_one_time_with_the_pauses_in_it(self):
        slow = {"cause": "input_generator", "subject": "g", "cost_ns": 4 * S // 10, "figures": {"of_input": 0.4}}
        first = {"cause": "epoch_batch", "count": 7, "cost_ns": 3 * S // 4}
        causes = tuple(CauseSeen(at_ns=9, place="", of_ns=S, **cause) for cause in (slow, first))
        state = replace(CASES["input"], script=ScriptFacts("train.py", causes=causes))
        discarded_ns = {"validation": 4 * S // 10, "warm-up": S // 10}
        measured = replace(state.measurements, span_ns=S, discarded_ns=discarded_ns)
        found = kind_of(replace(state, measurements=measured))
        assert found.text == "input-bound: waiting for batches takes 42 % of the time", "70 % of the steps' 60 %"
        shares = {cause.id: round(cause.share_pct) for cause in found.causes if cause.count}
        assert shares == {"epoch_batch": 45, "input_generator": 40}
        waits = {bin_of(1e6): 100, bin_of(2e8): 7}
        slow = replace(measured, steady=replace(measured.steady, histogram=waits))
        text = told("waits", replace(state, measurements=slow))
        assert text == "each epoch waits for its first batch, 7 times: 75 % of the time"

    @pytest.mark.parametrize(
        ("parts", "share", "whole"),
        [((), 67, "time"), (((groups.BEFORE, 11), (groups.STEPS, 33), (groups.SUSPENDED, 6)), 50, "run")],
        ids=["without an account", "with one"],
    )
    def test_retracing_has_one_share_of_the_time_or_of_the_run(self, parts, share, whole):
        seen = {"cause": "retrace_keras", "subject": "fit", "count": 7, "figures": {"made again": 1.0}}
        again = CauseSeen(at_ns=9, place="", cost_ns=22 * S, of_ns=33 * S, **seen)
        known = replace(CASES["retracing"], script=ScriptFacts("python train.py", causes=(again,)))
        account = Accounted(at_ns=9, parts=tuple(TimePart(name, "", "", s * S) for name, s in parts))
        known = replace(known, account=account)
        bottleneck, of_whole = kind_of(known), f"{share} % of the {whole}"
        (cause, *_) = bottleneck.causes
        assert bottleneck.text == f"retracing: 7 traces, {of_whole}"
        assert cause.share_pct == pytest.approx(share, abs=0.5) and "7 times" in cause.text
        assert of_whole in cause.text
        assert told("retraces", known) == f"7 traces took {of_whole}", "the cause names the argument"

    def test_a_script_without_tensorflow_is_not_advised_a_profile(self):
        script = replace(lane(call_ns=900), script=ScriptFacts("python train.py"))
        assert kind_of(script).text == "90 % in the training step"
        loaded = replace(script, process=ProcessInfo(versions={**script.process.versions, "tensorflow": "2.21.0"}))
        assert kind_of(loaded).text == "90 % in the training step; a profile (P) breaks it down"

    def test_a_step_of_a_scripts_own_loop_is_split_from_the_python_around_it_by_a_profile_alone(self):
        body = replace(lane(call_ns=1_000), script=ScriptFacts(step="train.py:9 `step(x)`"))
        assert kind_of(body).text == "100 % in the step and the Python around it; a profile (P) breaks it down"
        profiled = replace(body, step=StepFacts(calling_share=0.16, computing_share=0.25))
        assert kind_of(profiled).text == "loop-bound: Python between the steps takes 84 % of the time"
        shares = shares_of(profiled)
        assert (shares.device_pct, shares.dispatch_pct, shares.other_pct) == pytest.approx((4, 12, 84))


def host(**readings) -> HostSample:
    return HostSample(at_ns=0, cpu_pct=100.0, memory_used_bytes=1.0, memory_total_bytes=2.0, **readings)


class TestWhatElseSlowsIt:
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

    def test_too_few_threads_are_told(self):
        state = lane(computing=0.95, call_ns=950, settings={"threads": 1})
        assert "threads=1 leaves cores idle: 4 may be used" in kind_of(state, host=host()).also
        assert kind_of(lane(computing=0.95, call_ns=950, settings={"threads": 4}), host=host()).also == ()

    def test_a_gpu_that_is_held_down_is_told(self):
        reasons = (ClockReason("it is too hot", "alarm"),)
        hot = gpu_sample("GPU-1", reasons=reasons, warning="4 of 16 lanes", used_by_pid={99: 5})
        lines = kind_of(CASES["sync"], gpus=(hot,)).also
        assert lines == (
            "the GPU runs below full clocks: it is too hot",
            "the GPU's link is narrow: 4 of 16 lanes",
            "others hold 5 B of this GPU's memory",
        )


@given(
    st.tuples(*[st.integers(0, 250)] * 4),
    st.floats(0, 1),
    st.integers(0, 3),
    st.tuples(*[st.floats(0, 3)] * 3),
    st.sampled_from(["cpu", "gpu:0"]),
    st.one_of(st.none(), st.floats(0, 1)),
)
def test_the_known_shares_always_add_up_to_100(sums, traced, sampled, times, device, computing):
    host = dict(zip(("input_ns", "call_ns", "sync_ns", "report_ns"), sums, strict=True))
    host["traced_ns"] = host["call_ns"] * traced
    call, tail, copy = (sampled * value for value in times)
    state = lane(
        device, computing, sampled=sampled, sampled_call_ns=call, sampled_tail_ns=tail,
        sampled_copy_ns=copy, **host,
    )  # fmt: skip
    shares = shares_of(state)
    parts = [shares.input_pct, shares.sync_pct, shares.report_pct, shares.other_pct, shares.retrace_pct]
    parts += [known(part) or 0.0 for part in (shares.copy_pct, shares.dispatch_pct, shares.device_pct)]
    if isinstance(shares.dispatch_pct, Missing) and isinstance(shares.device_pct, Missing):
        parts.append(shares.step_pct)
    assert sum(parts) == pytest.approx(100, abs=0.01)
    assert all(part >= -1e-9 for part in parts)
