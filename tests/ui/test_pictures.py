"""Pictures of the screen: its colours and characters. `tests/contract` compares the rows of the race at each size.

After an intended change run these with `--snapshot-update`, and look at them.
"""

import pytest
from support.many_gpus import eight_gpus
from support.ui import CPU_MACHINE, Demo, FakeRuns, crossover_demo, hosts_demo, racing_demo
from textual.pilot import Pilot

from tfmon.model.events import LanePrinted
from tfmon.model.spec import LaneSpec
from tfmon.ui.render.chart import METRICS

from .pilot import app_of, press, shown, until
from .test_profiles_page import profiled

SMALL, USUAL, HIGH = (80, 24), (120, 36), (120, 90)


def failed_beside_a_request() -> Demo:
    demo = racing_demo()
    demo.fail("gpu:0")
    demo.ask("cpu", "batch_size", 40)
    return demo


def first_seconds() -> Demo:
    demo = Demo([LaneSpec("cpu", {"batch_size": size}) for size in (10, 256)], CPU_MACHINE, mode="turns")
    demo.clock.ahead(0.4)
    demo.enter_all("importing")
    demo.clock.ahead(4.1)
    demo.enter(demo.names[1], "building")
    demo.sample()
    return demo


RACES = {
    "cpu-and-gpu": (racing_demo, USUAL, []),
    "zoom": (racing_demo, SMALL, ["tab", "tab", "z"]),
    "failed-lane": (failed_beside_a_request, SMALL, ["tab"]),
    "first-seconds": (first_seconds, SMALL, []),
    "three-machines": (hosts_demo, USUAL, []),
    "lane-of-another-machine": (hosts_demo, HIGH, ["tab", "tab", "enter"]),
    "eight-gpus": (eight_gpus, USUAL, []),
    "lane-on-eight-gpus": (eight_gpus, HIGH, ["tab", "tab", "i"]),
    "crossover": (crossover_demo, USUAL, ["c"]),
}


@pytest.mark.parametrize("name", RACES)
def test_a_race(snap_compare, name):
    race, size, keys = RACES[name]
    assert snap_compare(app_of(race()), terminal_size=size, press=keys)


def test_no_colour_and_no_braille(snap_compare, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(app_of(racing_demo(), characters="ascii"), terminal_size=SMALL)


@pytest.mark.parametrize("metric", ["gpu", "memory"])
def test_a_chart_of_another_metric(snap_compare, metric):
    demo = racing_demo()
    for second in range(30):  # with a sample of CPU, memory and GPU every second
        demo.race(1, (7_600 - 60 * second, 2_400 + 20 * second))
    presses = [one.id for one in METRICS].index(metric)
    assert snap_compare(app_of(demo), terminal_size=USUAL, press=["v"] * presses)


HEAD = "2026-01-01 10:00:00.123456: "
PRINTED = (
    f"{HEAD}I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary is optimized to use "
    "available CPU instructions in performance-critical operations.",
    f"{HEAD}W tensorflow/core/data/root_dataset.cc:81] The dataset is smaller than its shuffle buffer.",
    "Epoch 1/3  loss 2.30",
    "Traceback (most recent call last):",
    "ValueError: the labels have another shape than the predictions",
)
DOCTOR = """GPU
  ✓ ok       NVIDIA driver           580.65
  ! warning  GPU used by others      another program keeps it 87 % busy
             expected: a GPU for this race alone
             fix: end the other program, or choose another GPU with CUDA_VISIBLE_DEVICES; nvidia-smi lists both
  ✗ broken   CUDA libraries          libcudnn.so.9 was not found

1 of 3 checks failed."""
PROFILE = """20 steps of 1.21 ms (the longest 1.40 ms), tf.function
dispatch-bound: starting the step takes 58 % of the time

the loop's thread
  input wait                               0.10 ms     8 %
  step call                                1.00 ms    83 %"""
PAGES = {
    "lane": ["i"],
    "log": ["l"],
    "knobs": ["k", "down"],
    "profile": ["tab", "P"],
    "profiles": ["P"],
    "doctor": ["d"],
    "runs": ["R", "down", "down"],
    "question": ["R", "D"],
    "help": ["l", "question_mark"],
    "crossover": ["c", "down", "down"],
    "picker": ["s"],
}


def app(**more):
    demo = racing_demo()
    demo.session.accept(LanePrinted(lane="cpu", at_ns=demo.clock(), lines=PRINTED))

    def profile(*lanes: str) -> str:
        return PROFILE if len(lanes) == 1 else profiled(demo, *lanes)

    return app_of(demo, runs=FakeRuns(), examine=lambda: DOCTOR, profile=profile, **more)


def keys(page: str):
    """Return a function that presses the keys of a page, and waits for the results of threads."""

    async def run(pilot: Pilot) -> None:
        first, *rest = PAGES[page]
        await press(pilot, first)
        ready = {"R": "4 runs", "s": "my own net", "d": "checks failed", "P": "explains"}.get(first, "")
        await until(pilot, lambda: ready in shown(pilot))
        await press(pilot, *rest)
        await until(pilot, lambda: page != "profile" or "input wait" in shown(pilot))

    return run


@pytest.mark.parametrize("page", PAGES)
def test_a_page(snap_compare, page):
    assert snap_compare(app(), terminal_size=USUAL, run_before=keys(page))


@pytest.mark.parametrize("page", ["lane", "log", "profiles", "runs"])
def test_a_page_in_a_small_terminal(snap_compare, page):
    """These differ there: they are cut, wrapped or in fewer columns."""
    assert snap_compare(app(), terminal_size=SMALL, run_before=keys(page))


def test_a_list_without_colour_and_in_ascii(snap_compare, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(app(characters="ascii"), terminal_size=USUAL, run_before=keys("log"))
