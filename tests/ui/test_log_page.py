"""The page of a lane's log."""

import re

import pytest
from support.ui import Demo, racing_demo
from textual.events import MouseScrollUp

from tfmon.model.events import LanePrinted
from tfmon.model.lane_events import PhaseEntered
from tfmon.model.lane_state import LogLine
from tfmon.ui.screens.log import VIEWS, source_of
from tfmon.ui.screens.race_screen import RaceScreen

from .pilot import app_of, press, shown, until, wheel

GLOG = "2026-01-01 10:00:00.123456: "
PROFILER = f"{GLOG}I external/local_xla/tsl/profiler/lib/profiler_session.cc:103] Profiler session initializing."


@pytest.fixture
def demo() -> Demo:
    demo = racing_demo()
    lines = tuple(f"line {number} of {'odd' if number % 2 else 'even'} ones" for number in range(100))
    say(demo, *lines)
    demo.session.accept(LanePrinted(lane="gpu:0", at_ns=demo.clock(), lines=("from the other lane",)))
    return demo


def say(demo: Demo, *lines: str) -> None:
    demo.session.accept(LanePrinted(lane="cpu", at_ns=demo.clock(), lines=lines))


@pytest.mark.parametrize("pilot", [(80, 24)], indirect=True)
async def test_it_follows_until_one_scrolls_up_and_again_from_the_end_on(demo, pilot):
    await press(pilot, "l")
    await until(pilot, lambda: "following" in shown(pilot))
    say(demo, "news")
    pilot.app.monitor.pull()
    await until(pilot, lambda: "news" in shown(pilot))
    await press(pilot, "pageup")
    await until(pilot, lambda: "newer ones below" in shown(pilot))
    before = lines_shown(pilot)
    say(demo, *(f"more news {number}" for number in range(450)))
    pilot.app.monitor.pull()
    await until(pilot, lambda: "500 lines" in shown(pilot))
    assert lines_shown(pilot) == before, "the oldest lines were dropped above those in view"
    await press(pilot, "end")
    await until(pilot, lambda: "more news 449" in shown(pilot) and "following" in shown(pilot))
    await wheel(pilot, MouseScrollUp, (10, 10))
    await until(pilot, lambda: "newer ones below" in shown(pilot))


def lines_shown(pilot) -> list[str]:
    return re.findall(r"line \d+ of \w+ ones", shown(pilot))


@pytest.mark.parametrize("pilot", [(80, 24)], indirect=True)
async def test_a_filter_of_words_is_typed_kept_and_dropped(pilot):
    await press(pilot, "l", "slash", *"EVEN 9q")
    assert "0 of 105 lines" in shown(pilot), "keys are characters while one types"
    await press(pilot, "backspace")
    assert "5 of 105 lines" in shown(pilot)
    assert "line 98 of even" in shown(pilot) and "line 97" not in shown(pilot)
    await press(pilot, "enter")
    assert "EVEN 9" in shown(pilot) and "5 of 105" in shown(pilot)
    await press(pilot, "escape")
    assert "105 lines: all" in shown(pilot)
    await press(pilot, "escape")
    assert isinstance(pilot.app.screen, RaceScreen)


async def test_one_key_goes_through_events_output_tensorflow_and_all():
    demo, seen = racing_demo(), {}
    warning = f"{GLOG}W tensorflow/core/framework/cpu_allocator_impl.cc:84] Allocation exceeds"
    say(demo, warning, "Epoch 1", PROFILER)
    async with app_of(demo).run_test(size=(120, 24)) as pilot:
        await press(pilot, "l")
        for name, _ in VIEWS:
            text = shown(pilot)
            assert f": {name} ·" in text and "1 lines" not in text
            seen[name] = ["process 4000" in text, "Epoch 1" in text, "Allocation" in text]
            assert "Profiler session" not in text, "of tfmon's own profiles"
            await press(pilot, "v")
        assert "lines: all ·" in shown(pilot)
    assert seen == {
        "all": [True, True, True], "events": [True, False, False],
        "output": [False, True, False], "TensorFlow": [False, False, True],
    }  # fmt: skip


def test_slices_are_no_events():
    demo = racing_demo()
    before = len(demo.session.snapshot().lane("cpu").log)
    for _ in range(20):
        demo.clock.ahead(1)
        demo.enter("cpu", "racing")
    assert len(demo.session.snapshot().lane("cpu").log) == before
    demo.session.accept(PhaseEntered(lane="cpu", at_ns=demo.clock(), phase="paused"))
    assert demo.session.snapshot().lane("cpu").log[-1].text == "paused"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{GLOG}I tensorflow/core/platform/cpu_feature_guard.cc:210] This binary", ("tensorflow", "")),
        (f"{GLOG}E external/local_xla/xla/stream_executor/cuda/cuda_dnn.cc:8] Unable", ("tensorflow", "error")),
        ("E0000 00:00:1767225600.000001    4242 cuda_blas.cc:1407] Unable to register", ("tensorflow", "error")),
        (PROFILER.replace(" I ", " E "), ("tensorflow", "error")),
        ("WARNING:tensorflow:5 out of the last 5 calls triggered retracing", ("tensorflow", "warning")),
        ("INFO:tensorflow:Assets written to: model", ("tensorflow", "")),
        ("To enable the following instructions: AVX2, rebuild TensorFlow", ("tensorflow", "")),
        ("/x/site-packages/keras/src/layers/dense.py:87: UserWarning: do not pass", ("tensorflow", "warning")),
        ("mine.py:3: DeprecationWarning: old", ("output", "warning")),
        ("Traceback (most recent call last):", ("output", "error")),
        ("ValueError: no", ("output", "error")),
        ("mean_absolute_error: 0.3, errors 4", ("output", "")),
        ("Epoch 1/3  loss 2.30", ("output", "")),
    ],
)
def test_a_printed_line_has_a_source_and_a_level(text, expected):
    assert source_of(LogLine(0, "printed", text)) == expected
