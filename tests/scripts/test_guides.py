"""Scripts with the structure of Keras' guides, unchanged, in a race to its end: counts are the scripts' own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import HANGS_S

from .test_keras import ALL_OF, counted, trained

ROOT = Path(__file__).parents[2]
GUIDES = Path(__file__).parent / "guides"
NAMES = (
    "mirrored",  # the first: it divides the CPU into two devices, before TensorFlow uses it
    "from_scratch",
    "custom_train_step",
    "built_in_methods",
    "train_on_batch",
    "gan_in_fit",
    "gan_from_scratch",
    "two_models",
)
pytestmark = [pytest.mark.tensorflow]


def paths(*names: str) -> list[str]:
    return [str(GUIDES / f"{name}.py") for name in names]


def test_eight_guides_race_in_turns_to_the_end_with_their_own_counts(script, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    command = [sys.executable, script(ALL_OF, "all.py"), *paths(*NAMES)]
    alone = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=HANGS_S, check=True)
    said = re.findall(r"trained (\d+) examples in (\d+) steps", alone.stdout)
    assert len(said) == len(NAMES)
    words = ["race", "--lane", "cpu", "--lane", "cpu", "--json", "--no-record", "--", *command]
    race = [sys.executable, "-m", "tfmon", *words]
    done = subprocess.run(race, capture_output=True, text=True, cwd=tmp_path, timeout=HANGS_S, check=False)
    assert done.returncode == 0, done.stderr
    for lane in json.loads(done.stdout)["lanes"]:
        assert lane["state"] == "finished"
        assert lane["examples"] == sum(int(examples) for examples, _ in said)
        assert lane["steps"] == sum(int(steps) for _, steps in said)


@pytest.mark.trainer
@pytest.mark.parametrize(
    "names",
    [pytest.param(("from_scratch", "gan_from_scratch"), marks=pytest.mark.pythons), ("legacy_keras",)],
    ids=" ".join,
)
def test_loops_of_keras_and_legacy_keras_are_counted(watch, script, names):
    race = watch(script(ALL_OF), *paths(*names))
    assert trained(race) == counted(race)
    assert 0 < race.lane.losses.last < 5
    assert not any(race.lane.not_measured.values())


@pytest.mark.trainer
def test_hooks_that_are_switched_off_see_no_loop(watch):
    race = watch(*paths("from_scratch"), environment={"TFMON_HOOKS": "off"})
    race.until(lambda: race.lane.ended is not None, "the end")
    assert (race.lane.ended.exit_code, race.lane.steps) == (0, 0)
    assert race.lane.trouble.message == "the script ended, and no training step was seen"
