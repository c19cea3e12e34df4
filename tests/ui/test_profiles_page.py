"""The page that compares the profiles of two lanes."""

import pytest
from support.profiles import INPUT, memory_peak, profile
from support.ui import Demo, crossover_demo

from tfmon.errors import TfmonError
from tfmon.model.lane_events import Profiled
from tfmon.model.readings import Missing
from tfmon.model.series import SeriesEnded

from .pilot import app_of, press, shown, until

MATMUL, RELU = ("net/dense/MatMul", "MatMul"), ("gradient_tape/net/dense/ReluGrad", "ReluGrad")
CAST = ("net/dense/Cast", "Cast")
CPU = {MATMUL: 30e6, RELU: 8e6, INPUT: 1e6}
GPU = {MATMUL: 2e6, RELU: 1e6, INPUT: 3e6, CAST: 0.5e6}

MEMORY = {
    "CPU": Missing("no allocator reports anything"),
    "GPU:0": (memory_peak({"net/dense/Relu": 1100, "net/out/Relu": 92}, "GPU:0", before=308),),
}


def profiled(demo: Demo, first: str, second: str, times: int = 3) -> str:
    for number in range(times):
        for lane, parts, device in ((first, CPU, "CPU"), (second, GPU, "GPU:0")):
            noise = {key: time * (1 + 0.01 * number) for key, time in parts.items()}
            one = profile(noise, device=device, memory=MEMORY[device])
            event = Profiled(lane=lane, at_ns=demo.clock(), folder="x", profile=one)
            demo.session.accept(event)
    return ""


@pytest.fixture
def calls() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def app(demo, calls):
    def profile(*lanes: str) -> str:
        calls.append(lanes)
        return profiled(demo, *lanes)

    return app_of(demo, profile=profile)


@pytest.mark.parametrize("pilot", [(200, 50)], indirect=True)
async def test_two_lanes_are_profiled_and_compared_part_by_part(calls, pilot):
    await press(pilot, "P")
    await until(pilot, lambda: "explains" in shown(pilot))
    text = shown(pilot)
    assert calls == [("cpu", "gpu:0")] and "What explains the difference of" in text
    assert "C takes 39.4 ms a step, G 6.57 ms: 32.8 ms less" in text
    assert "this explains 86 % of it" in text and "net/dense/MatMul" in text
    assert "5 parts, by operation" not in text and "4 parts, by operation" in text
    (cast,) = (line for line in text.splitlines() if "Cast net/dense" in line)
    assert cast.split()[2:5] == ["–", "0.51", "ms"] and "– | GPU:0" in cast
    await press(pilot, "tab")
    assert "4 parts, by type of operation" in shown(pilot)
    await press(pilot, "tab")
    assert "2 parts, by layer" in shown(pilot) and "net/dense" in shown(pilot)
    await press(pilot, "enter")
    await until(pilot, lambda: len(calls) == 2)
    await press(pilot, "escape", "P")
    assert len(calls) == 2, "what is known is shown, until Enter asks for more"
    await press(pilot, "P")
    assert "What explains" not in shown(pilot)


@pytest.mark.parametrize("pilot", [(80, 24), (200, 50)], indirect=True)
async def test_the_peak_of_memory_is_the_last_table_and_the_first_one_comes_again(pilot):
    await press(pilot, "P")
    await until(pilot, lambda: "explains" in shown(pilot))
    await press(pilot, "tab", "tab", "tab")
    text = shown(pilot)
    assert "C: n/a (no allocator reports anything)" in text and "G: the peak of 1.5 GiB on GPU:0: 73 %" in text
    assert ["net/dense", "–", "1.1", "GiB", "73", "%"] in [line.split() for line in text.splitlines()]
    await press(pilot, "tab")
    assert "by operation" in shown(pilot)


async def test_a_paused_lane_and_an_experiment_are_not_disturbed_and_a_failure_says_why(demo, app, calls, pilot):
    def refuse(lanes) -> str:
        raise TfmonError(f"no profile of {lanes[0]} could be taken: another one is")

    demo.enter("gpu:0", "paused")
    app.monitor.pull()
    await press(pilot, "P")
    assert "gpu:0 does not train, so there is nothing to profile" in shown(pilot) and not calls
    demo.enter("gpu:0", "racing")
    demo.session.advance_series(crossover_demo(at=64).session.snapshot().experiment)
    app.monitor.pull()
    await press(pilot, "escape", "P")
    assert "crossover over batch" in shown(pilot) and not calls
    demo.session.advance_series(SeriesEnded("stopped"))
    app.monitor.pull()
    app.monitor.source.profiles.of_lanes = refuse
    await press(pilot, "escape", "P")
    await until(pilot, lambda: "no profile of cpu could be taken: another one is" in shown(pilot))


async def test_lanes_that_ended_keep_their_comparison_and_others_cannot_be_profiled(demo, app, calls, pilot):
    for name in demo.names:
        demo.fail(name)
    app.monitor.pull()
    await press(pilot, "P")
    assert "does not train, so there is nothing to profile" in shown(pilot) and not calls
    profiled(demo, *demo.names)
    app.monitor.pull()
    await pilot.pause()
    assert "86 %" in shown(pilot)
