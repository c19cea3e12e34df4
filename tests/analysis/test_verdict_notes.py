"""Notes of a verdict: how throughput scales with devices, and differences between machines."""

from dataclasses import replace

import pytest
from support.events import gpu_sample
from support.many_gpus import ManyGpus, eight_gpus
from support.results import to_json
from support.verdicts import lane, noisy, snapshot

from tfmon.analysis.analysis import analyse
from tfmon.analysis.causes import causes_of
from tfmon.analysis.verdict import FASTER, SAME, find_verdict
from tfmon.analysis.verdict_notes import machine_differences
from tfmon.model.host_states import HostState
from tfmon.model.knobs import COMMON
from tfmon.model.lane_relations import set_names
from tfmon.model.lane_state import LaneState, ProcessInfo, ScriptFacts
from tfmon.model.race import Machine, Race
from tfmon.model.session import Snapshot
from tfmon.model.spec import LaneSpec, name_lanes, parse_lane


def test_more_gpus_say_how_near_they_come_to_linear_and_with_which_interval():
    verdict = find_verdict(snapshot(lane("gpu:0", noisy(100)), lane("gpu:0+1", noisy(171, seed=2))))
    (one,) = verdict.scaling
    assert (one.lane, one.devices, one.over, verdict.kind) == ("gpu:0+1", 2, 1, FASTER)
    assert one.ratio == verdict.interval
    assert one.of_linear == pytest.approx(one.ratio.value / 2)
    assert verdict.answer.startswith(
        f"2 GPUs are {one.ratio.value:.2f}× one ({50 * one.ratio.value:.0f} % of linear; 95 % CI "
    )
    assert verdict.answer.endswith("pairs)") and verdict.short.endswith(")")


def test_where_more_devices_are_slower_or_the_same_the_verdict_says_that_first():
    slower = find_verdict(snapshot(lane("cpu", noisy(150)), lane("2xcpu", noisy(100, seed=2))))
    assert slower.answer.startswith("cpu is 1.5") and "; 2 logical CPUs are 0.6" in slower.answer
    same = find_verdict(snapshot(lane("cpu", [100.0] * 300), lane("2xcpu", [100.2] * 300)))
    assert same.kind == SAME and "the same within" in same.answer and "(50 % of linear" in same.answer


def test_the_json_has_the_scaling_and_each_gpu_with_what_the_lane_used_of_it():
    demo = eight_gpus()
    result = to_json(analyse(demo.session.snapshot()))
    (one,) = result["verdict"]["scaling"]
    assert (one["lane"], one["devices"], one["over"]) == ("B", 8, 1)
    assert one["of_linear"] == pytest.approx(6.9 / 8, rel=0.05)
    gpus = result["lanes"][1]["gpus"]
    assert [gpu["index"] for gpu in gpus] == list(range(8))
    assert gpus[6]["lane_used_bytes"] == 32 * 2**30
    assert result["lanes"][1]["gpu_memory_used_bytes"] == sum(gpu["lane_used_bytes"] for gpu in gpus)
    assert result["lanes"][0]["gpus"][0]["lane_used_bytes"] == 2 * 2**30


def test_a_lane_on_several_devices_is_told_to_try_nothing_that_it_refuses():
    demo = ManyGpus((LaneSpec("gpu:0"), LaneSpec("gpu:0+1"))).go().race(5)
    snapshot = demo.session.snapshot()
    knobs = (*COMMON, *snapshot.race.knobs)
    one, two = (
        [(cause.knob, cause.value) for cause in causes_of(lane, ["compute"], knobs)] for lane in snapshot.lanes
    )
    float16 = ("mixed_precision", "float16")
    assert ("xla", True) in one and float16 in one
    assert {knob for knob, _ in two} == {"mixed_precision", "batch_size"} and float16 not in two


HERE = Machine(
    cores=8, boot="a", nice=0, driver="550", tensorflow="2.20.0", gpus=("H100",), power_limits_w=(700.0,)
)


def told(*lanes: str, model: str = "H100", tensorflow: str = "", **there: object) -> list[str]:
    """Return the reported differences between this machine and a host that differs in these facts."""
    states = [LaneState(spec) for spec in name_lanes([parse_lane(text, ()) for text in lanes])]
    here, away = (
        ProcessInfo(versions={"tensorflow": version}, device_name=device)
        for version, device in (("", "H100"), (tensorflow, model))
    )
    states = [replace(state, process=away if state.spec.host else here) for state in states]
    hosts = {"": HostState(HERE), "gpu2": HostState(replace(HERE, **{"boot": "b", **there}))}
    return [
        difference.text for difference in machine_differences(Snapshot(0, Race(), tuple(states), hosts), states)
    ]


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({"cores": 32}, "cores: 8 here, 32 on gpu2"),
        ({"quota_cores": 2.5}, "quota: none here, 2.5 cores on gpu2"),
        ({"nice": 15}, "nice: 0 here, 15 on gpu2"),
        # The version that a lane has loaded counts before the installed one.
        ({"tensorflow": "2.17.0"}, "TensorFlow: 2.20.0 here, 2.17.0 on gpu2"),
        ({"driver": "535"}, "driver: 550 here, 535 on gpu2"),
        ({"power_limits_w": (350.0,)}, "power limit: 700 W here, 350 W on gpu2"),
    ],
)
def test_each_fact_that_may_explain_a_ratio_is_told(facts, line):
    assert told("gpu", "gpu2/gpu", **facts) == [line]
    assert told("gpu", "gpu2/gpu", **{"boot": "a", **facts}) == [], "two names of one machine differ in nothing"
    assert told("gpu", "gpu2/gpu") == []


@pytest.mark.parametrize("facts", [{"cores": 0}, {"nice": None}, {"driver": ""}, {"power_limits_w": ()}])
def test_what_is_not_known_of_a_machine_does_not_differ(facts):
    assert [line for line in told("gpu", "gpu2/gpu", **facts) if not line.startswith("quota")] == []


class TestWhatLimitsIt:
    @pytest.mark.parametrize(
        ("clocks", "noted"),
        [
            ((2_000, 2_000, 1_499, 2_000), True),
            ((2_000, 2_000, 1_500), False),
            ((2_000, 345), False),
            ((345, 2_000, 2_000), False),
        ],
    )
    def test_clocks_that_fall_between_slices_are_noted_and_not_those_of_before_the_first(self, clocks, noted):
        samples = tuple(gpu_sample("GPU-1", at_ns=at, sm_clock_mhz=clock) for at, clock in enumerate(clocks))
        raced = replace(
            snapshot(lane("cpu", noisy(100)), lane("gpu:0", noisy(300, seed=2))),
            hosts={"": HostState(gpus=samples[-1:], gpu_history={"GPU-1": samples})},
        )
        text = "the GPU clock of gpu:0 falls between slices (1499 to 2000 MHz); a longer --slice hides it"
        assert find_verdict(raced).note == (text if noted else "")

    def test_a_disturbance_that_is_always_there_is_noted(self):
        slow = lane("cpu", noisy(100))
        slow = replace(slow, measurements=replace(slow.measurements, constant=("cgroup throttled",)))
        note = find_verdict(snapshot(slow, lane("gpu:0", noisy(300, seed=2)))).note
        assert note == "the container's CPU quota is used up most of the time; the figures include that"


def test_what_libraries_resolve_otherwise_by_device_is_in_title_verdict_and_note():
    lanes = [
        replace(
            lane(name, noisy(100 + 50 * place, seed=place + 1)),
            settings={"xla": bool(place), "mixed_precision": "off"},
            process=ProcessInfo(versions={**lane(name).process.versions, "keras": f"{place + 2}.0"}),
            script=ScriptFacts(resolved={"TF32": "on", "threads of an operation": ("4", "auto")[place]}),
        )
        for place, name in enumerate(("cpu", "gpu:0"))
    ]
    specs = name_lanes([parse_lane(name, ()) for name in ("cpu", "gpu:0")])
    lanes = [replace(one, spec=spec) for one, spec in zip(lanes, specs, strict=True)]
    race = Race(mode="turns", knobs=())
    set_names(lanes, race)
    verdict = find_verdict(Snapshot(at_ns=0, race=race, lanes=tuple(lanes)))
    assert verdict.answer.startswith("gpu:0 xla=on is 1.") and verdict.also_differs[:1] == ("xla",)
    assert all(text.endswith("; also differs: xla") for text in (verdict.answer, verdict.short))
    for said in (
        'xla is off in C, on in G: jit_compile="auto" of Keras 3 compiles only where there is a GPU; --set xla=',
        "threads of an operation is 4 in C, auto in G",
        "keras is 2.0 in C, 3.0 in G;",
    ):
        assert said in verdict.note
    assert "TF32" not in verdict.note
    meant = [replace(one, spec=replace(one.spec, settings={"threads": n})) for n, one in enumerate(lanes, 1)]
    assert "threads of an operation" not in find_verdict(Snapshot(at_ns=0, race=race, lanes=tuple(meant))).note
