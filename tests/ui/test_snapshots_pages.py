"""Pictures of the pages beside the race. After a wanted change run these with `--snapshot-update`, and look."""

from __future__ import annotations

import pytest
from support.ui import FakeRuns, racing_demo
from textual.pilot import Pilot

from tfmon.model.events import LanePrinted

from .pilot import app_of, press, until

SIZE = (120, 36)
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
    "profile": ["P"],
    "doctor": ["d"],
    "runs": ["R", "down", "space", "down"],
    "question": ["R", "D"],
    "help": ["l", "question_mark"],
    "crossover": ["c", "down", "down"],
    "picker": ["s"],
}
OTHER_SIZES = [
    *((page, (80, 24)) for page in ("lane", "log", "knobs", "runs", "crossover", "picker")),
]
"""Where another size shows something else: what is cut, wrapped or in more columns."""


def app(**more):
    demo = racing_demo()
    demo.session.accept(LanePrinted(lane="cpu", at_ns=demo.clock(), lines=PRINTED))
    return app_of(demo, runs=FakeRuns(), examine=lambda: DOCTOR, profile=lambda _: PROFILE, **more)


def keys(page: str):
    """Return what presses the keys of a page, and waits for what a thread makes."""

    async def run(pilot: Pilot) -> None:
        first, *rest = PAGES[page]
        await press(pilot, first)
        ready = {"R": "4 runs", "d": "checks failed", "P": "input wait"}.get(first, "")
        await until(pilot, lambda: ready in pilot.app.screen.canvas.text())
        await press(pilot, *rest)

    return run


@pytest.mark.parametrize("page", PAGES)
def test_a_page(snap_compare, page):
    assert snap_compare(app(), terminal_size=SIZE, run_before=keys(page))


@pytest.mark.parametrize(
    ("page", "size"), OTHER_SIZES, ids=lambda one: one if one in PAGES else "{}x{}".format(*one)
)
def test_a_page_at_other_sizes(snap_compare, page, size):
    assert snap_compare(app(), terminal_size=size, run_before=keys(page))


def test_a_list_in_a_light_theme(snap_compare):
    assert snap_compare(app(theme="textual-light"), terminal_size=SIZE, run_before=keys("runs"))


def test_a_list_without_colour_and_in_ascii(snap_compare, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(app(characters="ascii"), terminal_size=SIZE, run_before=keys("log"))
