"""`tfmon diff --slower-than`: fails only if the interval shows it, and gives no answer without data."""

import json
import math
import random
from dataclasses import replace

import pytest
from support.results import to_json
from support.ui import CPU_MACHINE, Demo

from tfmon.analysis import gate as gates
from tfmon.analysis.analysis import analyse
from tfmon.analysis.compare import Comparison, change_of, compare, compare_all
from tfmon.analysis.gate import CANNOT_TELL, MORE_MEMORY, NOT_MORE_MEMORY, NOT_SLOWER, SLOWER, Gate
from tfmon.analysis.intervals import trimmed
from tfmon.analysis.result import LaneResult, RaceResult
from tfmon.analysis.summarise import summarise
from tfmon.errors import UsageError
from tfmon.model.spec import LaneSpec
from tfmon.recordings.header_lines import RecordingError
from tfmon.recordings.results import read_race, read_races

CPU = LaneSpec("cpu")
TWO = (CPU, LaneSpec("cpu", name="cpu #2"))


def raced(lanes=(CPU,), machine=CPU_MACHINE, mode="turns") -> Demo:
    return Demo(list(lanes), machine, mode=mode).go().race(10, (1_000, 3_000))


def measured(ratio: float, scatter: float = 0.01, others=None, stolen=None) -> dict[str, object]:
    """Return fields of a lane: its throughput, and the CPU that others took, in cores."""
    logs = [math.log(1_000 * ratio) + scatter * (2 * (place % 2) - 1) for place in range(20)]
    took = {"others_cpu_pct": others and 100 * others, "stolen_pct": stolen and 100 * stolen}
    return {"log_examples_per_s": trimmed(logs), **took}


def side(header, lane: dict[str, object], name: str = "run", lanes=(CPU,), **race) -> RaceResult:
    return of(result_of(raced(lanes, **race), header, name), *[lane] * len(lanes))


def result_of(demo: Demo, header, name: str = "run") -> RaceResult:
    return summarise(analyse(demo.session.snapshot()), header, name)


def of(race: RaceResult, *lanes: dict[str, object]) -> RaceResult:
    changed = (replace(lane, **fields) for lane, fields in zip(race.lanes, lanes, strict=True))
    return replace(race, lanes=tuple(changed))


def judge(comparison: Comparison, limit: float) -> Gate:
    return gates.judge([comparison], limit)


@pytest.mark.parametrize(
    ("ratio", "scatter", "limit", "kind", "said"),
    [
        (0.8, 0.01, 0.05, SLOWER, "20.0 % slower"),
        (0.8, 0.01, 0.25, NOT_SLOWER, "20.0 % slower"),
        (1.0, 0.01, 0.05, NOT_SLOWER, "0.0 % faster"),
        (1.5, 0.2, 0.05, NOT_SLOWER, "50.0 % faster"),
        (0.94, 0.01, 0.05, CANNOT_TELL, "too close: 6.0 % can be told; 6.0 % slower"),
        (1.0, 0.2, 0.05, CANNOT_TELL, "too noisy: "),
        (0.7, 0.2, 0.05, SLOWER, "30.0 % slower"),
    ],
)
def test_the_interval_decides(header, ratio, scatter, limit, kind, said):
    one, other = side(header, measured(1, scatter), "old"), side(header, measured(ratio, scatter))
    gate = judge(compare(one, other), limit)
    assert (gate.kind, gate.exit_code) == (kind, {SLOWER: 4, CANNOT_TELL: 5, NOT_SLOWER: 0}[kind])
    assert said in gate.lanes[0].reason
    assert gate.text.startswith({SLOWER: "slower by", NOT_SLOWER: "not slower by"}.get(kind, "cannot tell"))


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({}, {"machine": replace(CPU_MACHINE, hostname="other")}, "another machine: hostname was"),
        ({}, {"machine": replace(CPU_MACHINE, usable_cores=1)}, "another machine: usable_cores"),
        ({"mode": "concurrent", "lanes": TWO}, {"lanes": TWO}, "the baseline raced its lanes concurrently"),
    ],
)
def test_another_machine_or_contended_lanes_tell_nothing(header, first, second, said):
    gate = judge(compare(side(header, measured(1), **first), side(header, measured(0.5), **second)), 0.05)
    assert gate.kind == CANNOT_TELL
    assert said in gate.text and str(gate) == gate.text, "what a user prints is the answer"


@pytest.mark.parametrize(
    ("ratio", "took", "kind", "said"),
    [
        (0.18, {"others": 0.4, "stolen": 0.16}, SLOWER, "0.4 cores and the hypervisor 16 % of one more in"),
        (0.3, {"others": 1.0}, SLOWER, "which explains a factor of 2.00 at most"),
        (0.55, {"others": 1.0}, CANNOT_TELL, "others may explain it: 45.1 % can be told"),
        (0.3, {"others": 0.9 * CPU_MACHINE.cores}, CANNOT_TELL, "a factor of 10.00 at most"),
        (0.3, {"stolen": 1.2}, CANNOT_TELL, "which may explain anything"),
        (1.0, {"others": 1.0}, NOT_SLOWER, "others took 1.0 cores more in the run"),
    ],
)
def test_what_others_took_more_in_the_run_bounds_what_they_explain(header, ratio, took, kind, said):
    gate = judge(compare(side(header, measured(1)), side(header, measured(ratio, **took))), 0.15)
    assert gate.kind == kind and said in gate.lanes[0].reason


def test_the_worst_lane_counts_and_each_is_told(header):
    race = result_of(raced([LaneSpec("cpu"), LaneSpec("cpu", {"batch_size": 64})]), header)

    def kinds(first: dict[str, object], second: dict[str, object]) -> tuple[str, list[str]]:
        gate = judge(compare(of(race, measured(1), measured(1)), of(race, first, second)), 0.05)
        return gate.kind, [lane.kind for lane in gate.lanes]

    assert kinds(measured(1), measured(0.8)) == (SLOWER, [NOT_SLOWER, SLOWER])
    assert kinds(measured(0.8), measured(1, 0.3)) == (SLOWER, [SLOWER, CANNOT_TELL])
    assert kinds(measured(1), measured(1, 0.3)) == (CANNOT_TELL, [NOT_SLOWER, CANNOT_TELL])


def simulated(
    rng: random.Random, lane: LaneResult, count: int, sd: float, ratio: float = 1.0, bad: float = 0.0
) -> list[tuple[LaneResult, LaneResult]]:
    """Race so often on both sides, on a machine whose speed scatters from one race to the next.

    A race is bad with the probability `bad`: then it is up to a third slower.
    """

    def race(speed: float) -> LaneResult:
        state = math.log(speed) + rng.gauss(0, sd / math.sqrt(2)) - (rng.random() < bad) * rng.uniform(0.1, 0.4)
        return replace(lane, log_examples_per_s=trimmed([state + rng.gauss(0, 0.03) for _ in range(20)]))

    return [(race(1), race(ratio)) for _ in range(count)]


def test_the_interval_of_one_race_holds_what_a_machine_does_between_races(header):
    rng, (lane,) = random.Random(1), result_of(raced(), header).lanes
    found = [change_of(simulated(rng, lane, 1, 0.01)) for _ in range(300)]
    assert sum(not low <= 1 <= high for low, high in (one.ratio_ci95 for one in found)) <= 0.03 * 300


@pytest.mark.parametrize(("sd", "bad"), [(0.01, 0.0), (0.05, 0.0), (0.01, 0.1)])
def test_five_races_on_each_side_find_a_quarter_and_call_no_equal_ones_slower(header, sd, bad):
    """A lane that takes 25 % longer is a fifth slower."""
    rng, gates_asked, once = random.Random(2), 30, side(header, measured(1))

    def kinds(ratio: float) -> list[str]:
        said = []
        for _ in range(gates_asked):
            pairs = simulated(rng, once.lanes[0], 5, sd, ratio, bad)
            races = [compare(*(replace(once, lanes=(lane,)) for lane in pair)) for pair in pairs]
            said.append(gates.judge(races, 0.05).kind)
        return said

    enough = (0.8 if bad else 0.95) * gates_asked
    assert kinds(1 / 1.25).count(SLOWER) >= enough
    equal = kinds(1)
    assert equal.count(SLOWER) <= 1
    if sd < 0.03:
        assert equal.count(NOT_SLOWER) >= enough


def test_folders_hold_several_races(header, tmp_path):
    for name, speed in (("old", 1_000), ("new", 700)):
        (tmp_path / name).mkdir()
        for number in range(3):
            demo = Demo([CPU], CPU_MACHINE).go().race(20, (speed * (1 + 0.01 * number),))
            told = to_json(analyse(demo.session.snapshot()), header)
            (tmp_path / name / f"{number}.json").write_text(json.dumps(told))
    sides = [[side for side, _ in read_races(tmp_path / name)] for name in ("old", "new")]
    races = compare_all(*sides)
    gate = gates.judge(races, 0.05)
    assert gate.kind == SLOWER and gate.lanes[0].reason.endswith(", 3 races each")
    (alone_low, alone_high), (low, high) = (
        made.lanes[0].ratio_ci95 for made in (gates.judge(races[:1], 0.05), gate)
    )
    assert alone_high - alone_low > high - low
    with pytest.raises(UsageError, match="FIRST has 3 and SECOND 2 races"):
        compare_all(sides[0], sides[1][:2])
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordingError, match="has no race"):
        read_races(tmp_path / "empty")


@pytest.mark.parametrize(
    ("part", "before", "after", "kind", "said"),
    [
        ("peak_private_bytes", (100, 101, 99), (120, 121, 122), MORE_MEMORY, "21.0 % more (95 % CI "),
        ("peak_private_bytes", (100, 101, 99), (100, 99, 101), NOT_MORE_MEMORY, "100 MiB → 100 MiB, 3 races each"),
        ("peak_private_bytes", (120, 121, 122), (100, 101, 99), NOT_MORE_MEMORY, "% less"),
        ("peak_private_bytes", (100, 101, 99), (104, 120, 98), CANNOT_TELL, "too noisy: "),
        ("peak_private_bytes", (100, 101), (200, 201), CANNOT_TELL, "→ 200 MiB; how much equal processes"),
        ("peak_private_bytes", (None,) * 3, (1, 1, 1), CANNOT_TELL, "it is unknown in the baseline"),
        ("gpu_memory_peak_bytes", (100, 100, 100), (120, 120, 120), MORE_MEMORY, "20.0 % more"),
    ],
)
def test_memory_is_judged_over_fresh_processes(header, part, before, after, kind, said):
    def lane(value: int | None) -> dict[str, object]:
        size = None if value is None else value * 2**20
        return {**measured(1), **{"peak_private_bytes": 2**28, part: size}}

    pairs = zip(before, after, strict=True)
    races = [compare(side(header, lane(one), "old"), side(header, lane(other))) for one, other in pairs]
    gate = gates.judge(races, 0.05, MORE_MEMORY)
    assert gate.kind == kind
    assert gate.exit_code == {MORE_MEMORY: 4, CANNOT_TELL: 5, NOT_MORE_MEMORY: 0}[kind]
    told = {one.lane.split(", ")[1]: one.reason for one in gate.lanes}
    assert said in told["GPU memory" if part == "gpu_memory_peak_bytes" else "memory"]
    assert len(told) == 1 + (part == "gpu_memory_peak_bytes"), "a lane without a GPU has one memory"
    both = [gates.judge(races, 0.05), gate]
    assert gates.exit_code(both) == gate.exit_code, "the throughput is the same"


def test_a_baseline_of_another_scenario_is_a_mistake(header):
    with pytest.raises(UsageError, match="the baseline is of small-dense and the run of conv"):
        judge(compare(side(header, measured(1)), replace(side(header, measured(1)), scenario="conv")), 0.05)
    gpu = result_of(raced([LaneSpec("gpu:0")]), header)
    with pytest.raises(UsageError, match="no lane in common"):
        judge(compare(side(header, measured(1)), gpu), 0.05)


def test_a_json_result_is_compared_as_its_recording_is(header, tmp_path):
    def saved(name: str, demo: Demo) -> tuple[RaceResult, RaceResult]:
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(to_json(analyse(demo.session.snapshot()), header), indent=2))
        return result_of(demo, header, name), read_race(path)[0]

    one, two = raced([LaneSpec("cpu"), LaneSpec("cpu", {"batch_size": 64})]), raced([LaneSpec("cpu")])
    two.apply("cpu", "batch_size", 20)
    two.race(10, (800,))
    (recorded, told), (recorded_two, told_two) = saved("one", one), saved("two", two)
    truth, found = compare(recorded, recorded_two), compare(told, told_two)
    assert found.lanes[0].change == truth.lanes[0].change
    low, high = found.lanes[0].change.ratio_ci95
    assert low < 0.8 < high
    assert found.unpaired == truth.unpaired
    assert found.differences == truth.differences
    assert compare(told, told).verdict == compare(recorded, recorded).verdict
    assert judge(compare(told, recorded_two), 0.05) == judge(truth, 0.05)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda told: "", "not a JSON result"),
        (lambda told: json.dumps(told)[:500], "it may be cut off"),
        (lambda told: json.dumps({**told, "schema": 8}), "reads schema 10 · compare the recording"),
        (lambda told: json.dumps({**told, "lanes": None}), "not a result that can be compared"),
        (lambda told: json.dumps(told).replace('"margin": 0.03', '"margin": NaN'), "NaN is not a figure"),
        (lambda told: json.dumps({**told, "scenario": 3}), "RaceResult.scenario"),
    ],
)
def test_a_broken_result_is_one_clear_line(header, tmp_path, spoil, said):
    path = tmp_path / "result.json"
    path.write_text(spoil(to_json(analyse(raced().session.snapshot()), header)))
    with pytest.raises(RecordingError) as refused:
        read_race(path)
    assert said in refused.value.line and "\n" not in refused.value.line
