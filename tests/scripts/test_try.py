"""`tfmon try` on real processes: the answers, and a folder of which not one byte changes."""

import contextlib
import difflib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.slow import slow_except
from support.terminal import Terminal
from support.views import REFUSED, Runner, content

from tfmon.model.folder_views import COPY, OVERLAY

pytestmark = pytest.mark.process

LOOP = """
import time
from work import PAUSE_S, STEPS, BATCH, loss
from tfmon import report
for step in range(1, STEPS + 1):
    time.sleep(PAUSE_S)
    report.step(examples=BATCH, loss=loss(step))
"""
WORK = """
import math
PAUSE_S = 0.01
STEPS = 300
BATCH = 32
def loss(step):
    return 2 * math.exp(-step / 80) + 0.02 * math.sin(7 * step)
"""
MANY_STEPS = WORK.replace("STEPS = 300", "STEPS = 1_000")
"""Steps for some twenty pairs of slices: with five, one slice beside a busy process widens the interval past 1."""
FASTER = ("PAUSE_S = 0.01", "PAUSE_S = 0.004")


def write(folder: Path, edit: tuple[str, str], train: str = LOOP, work: str = WORK) -> None:
    """Write the scripts, and the patch that replaces a text of work.py."""
    (folder / "train.py").write_text(train)
    (folder / "work.py").write_text(work)
    assert edit[0] in work
    both = (text.splitlines(keepends=True) for text in (work, work.replace(*edit)))
    (folder / "fix.patch").write_text("".join(difflib.unified_diff(*both, "a/work.py", "b/work.py")))


def try_edit(run: Runner, *edit: str, work: str = WORK, words=()) -> SimpleNamespace:
    """Try an edit of work.py; a folder that changed fails."""
    write(run.folder, edit, work=work)
    before = content(run.folder)
    done = run(
        "try", "fix.patch", "--slice", "0.2", "--runs", "0", "--json", *words, "--", run._python, "train.py"
    )
    assert "Traceback" not in done.stderr
    if "--yes" not in words:
        assert content(run.folder) == before
    result = json.loads(done.stdout)
    return SimpleNamespace(code=done.returncode, result=result, text=result.get("text"), err=done.stderr)


def test_a_faster_module_is_kept_and_the_view_is_named(run, request):
    tried = try_edit(run, *FASTER, work=MANY_STEPS)
    assert (tried.code, tried.result["answer"]) == (0, "keep"), tried.text
    assert tried.result["same_training"] is True
    assert tried.result["steps"] == [1_000, 1_000]
    factor = tried.result["steps_factor"]
    assert 1 < factor["low"] < factor["high"]
    assert [lane["name"] for lane in tried.result["race"]["lanes"]] == ["cpu as it is", "cpu changed"]
    kind = COPY if REFUSED in request.node.name else OVERLAY
    assert tried.result["race"]["views"]["here"]["kind"] == kind
    assert ("has a copy of" if kind == COPY else "copy-on-write view") in tried.result["view"]


def test_whole_runs_of_both_sides_alternate(runner):
    tried = try_edit(runner, *FASTER, words=("--runs", "2"))
    assert "each side runs 2 times by itself, alternately: about" in tried.err
    assert tried.result["steps"] == tried.result["steps"][::-1] == [300, 300]
    run_factor, run_s = tried.result["run_factor"], tried.result["run_s"]
    assert run_factor["pairs"] == 2
    assert run_factor["low"] < run_s[0] / run_s[1] < run_factor["high"]
    assert run_s[0] > 3.0


def test_the_screen_displays_whole_runs_and_the_answer(folder):
    write(folder, FASTER)
    words = ("--slice", "0.2", "--runs", "1", "--", sys.executable, "train.py")
    with contextlib.closing(Terminal("try", "fix.patch", *words, folder=folder)) as terminal:
        terminal.wait_for(lambda shown: "run 1 of 2 by itself" in shown)
        terminal.wait_for(lambda shown: "keep: its steps are " in shown)
        assert "whole run " in terminal.leave(0)


START = "0.01\nSTEPS = 300\nBATCH = 32\ndef loss(step):\n"
HALF = START.replace("0.01", "0.003") + "    step /= 2\n"
OTHER = "it trains something else: losses at the same step differ by"
FAILS = "    assert step <= 20, 'no more'\n"


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [(START, HALF, OTHER), (START, START + FAILS, "it fails after 20 steps: .*no more")],
    ids=["half the updates", "exception"],
)
def test_other_changes_are_refused_in_a_line(runner, before, after, why):
    tried = try_edit(runner, before, after)
    assert re.search(why, tried.text), tried.text
    assert "\n" not in tried.text
    assert tried.code == 4


def test_a_patch_is_kept_only_if_the_answer_is_keep(runner, folder):
    keeps = ("--keep", "--yes")
    tried = try_edit(runner, "PAUSE_S = 0.01", "PAUSE_S = 0.03", words=(*keeps, "--seconds", "3"))
    assert tried.code != 0
    assert (folder / "work.py").read_text() == WORK
    tried = try_edit(runner, *FASTER, work=MANY_STEPS, words=keeps)
    assert tried.code == 0, tried.text
    assert "work.py is changed" in tried.err
    assert (folder / "work.py").read_text() == MANY_STEPS.replace(*FASTER)


def test_the_folder_is_tried_against_a_revision(folder, runner):
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(folder)]
    write(folder, FASTER, work=MANY_STEPS)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    (folder / "work.py").write_text(MANY_STEPS.replace(*FASTER))
    before = content(folder)
    words = ("--slice", "0.2", "--runs", "0", "--headless", "--", sys.executable, "train.py")
    done = runner("try", "--git", "HEAD", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("keep: its steps are ")
    assert "the folder against HEAD: work.py" in done.stdout
    assert content(folder) == before


@pytest.mark.slow
@pytest.mark.parametrize("run", [REFUSED], indirect=True)
def test_large_data_is_shared_with_a_copy_only_if_it_is_named(run):
    (run.folder / "data").mkdir()
    with (run.folder / "data" / "large.bin").open("wb") as file:
        file.truncate(300 << 20)
    edit = ("PAUSE_S = 0.01", "PAUSE_S = 0.004")
    refused = try_edit(run, *edit)
    assert (refused.code, "300 MiB, view_copy=200 MiB" in refused.result["error"]) == (2, True), refused.result
    assert "--link" in refused.result["hint"]
    linked = try_edit(run, *edit, words=("--link", "work.py", "--link", "data"))
    assert "--link shares work.py, which the change replaces" in linked.result["error"]
    tried = try_edit(run, *edit, words=("--link", "data", "--seconds", "2"))
    assert f"has a copy of {run.folder} with links to its data" in tried.result["view"]
    assert tried.result["race"]["views"]["here"]["links"] == ["data"]


MOMENTS = ("A", "B", "B/work", "A/written", "B/written", "A/written/began", "B/written/began")


@pytest.mark.parametrize("moment", slow_except("A/written/began", MOMENTS))
def test_a_kill_leaves_nothing_behind(folder, runner, moment):
    write(folder, ("STEPS = 300", "STEPS = 3_000"), train=f"open('began', 'w').close()\n{LOOP}")
    script = ("--", sys.executable, "train.py")
    runner.kill("try", "fix.patch", "--no-record", "--headless", *script, at=f"*.files.part/{moment}")
    runner.kill("try", "fix.patch", "--headless", *script, at=f"*.files/{moment}")
    done = runner("try", "fix.patch", "--no-record", "--json", "--seconds", "1", *script)
    assert json.loads(done.stdout)["answer"], done.stderr
    left = [path.name for path in runner.store.glob("*.files*/**/*") if path.is_file()]
    assert set(left) <= {"began", "work.py"}, "what a killed try has left is gone with the next, except kept files"


EAGER = """
import keras
import numpy as np
keras.utils.set_random_seed(3)
x = np.random.default_rng(3).normal(size=(2_048, 32)).astype("float32")
model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse", run_eagerly=True)
model.fit(x, x[:, :1], batch_size=32, epochs=12, verbose=0)
"""


@pytest.mark.slow
@pytest.mark.tensorflow
def test_the_code_of_a_recorded_cause_is_tried(folder, runner):
    (folder / "train.py").write_text(EAGER)
    watched = runner("watch", "--headless", "--", sys.executable, "train.py")
    assert watched.returncode == 0, watched.stderr
    before = content(folder)
    words = ("--json", "--runs", "0", "--slice", "0.2", "--", sys.executable, "train.py")
    done = runner("try", "--cause", "step_small", *words)
    assert (done.returncode, "has no cause step_small" in done.stderr) == (2, True), done.stderr
    tried = json.loads(runner("try", "--cause", "step_eager", *words).stdout)
    assert (tried["answer"] in ("keep", "not known yet"), tried["files"]) == (True, ["train.py"]), tried["text"]
    assert tried["change"].startswith("step_eager of ")
    assert tried["steps"] == [768, 768]
    assert tried["steps_factor"]["value"] > 2, tried["text"]
    assert content(folder) == before
