"""`tfmon try` on real processes: the answers, and a folder of which not one byte changes."""

import contextlib
import difflib
import functools
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

import psutil
import pytest
from support.processes import gone
from support.slow import slow_except
from support.views import REFUSED, Runner, content, mounts
from support.waiting import wait_for

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
KERAS = """
import keras
import numpy as np
keras.utils.set_random_seed(3)
rng = np.random.default_rng(3)
x = rng.normal(size=(2_048, 32)).astype("float32")
y = x @ rng.normal(size=(32, 1)).astype("float32")
class Log(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        sorted(range(20_000), key=lambda number: -number)
model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, y, batch_size=32, epochs=24, verbose=0, callbacks=[Log()])
"""


class Tried(NamedTuple):
    code: int
    result: dict
    err: str

    @property
    def text(self) -> str:
        return self.result["text"]


def patch_of(files: dict[str, str], *edits: tuple[str, str, str]) -> str:
    """Return the patch that replaces a text in each of some files."""
    lines: list[str] = []
    for name, before, after in edits:
        assert before in files[name]
        both = (text.splitlines(keepends=True) for text in (files[name], files[name].replace(before, after)))
        lines += difflib.unified_diff(*both, f"a/{name}", f"b/{name}")
    return "".join(lines)


def try_edits(run: Runner, *edits: tuple[str, str, str], files: dict[str, str] | None = None, words=()) -> Tried:
    """Try an edit of the scripts; a folder that changed fails."""
    files = files or {"train.py": LOOP, "work.py": WORK}
    for name, text in files.items():
        (run.folder / name).write_text(text)
    (run.folder / "fix.patch").write_text(patch_of(files, *edits))
    before = content(run.folder)
    done = run(
        "try", "fix.patch", "--slice", "0.2", "--runs", "0", "--json", *words, "--", run._python, "train.py"
    )
    assert "Traceback" not in done.stderr
    if "--yes" not in words:
        assert content(run.folder) == before
    return Tried(done.returncode, json.loads(done.stdout), done.stderr)


@pytest.fixture
def attempt(folder, open_path) -> Callable[..., Tried]:
    return functools.partial(try_edits, Runner(folder, open_path / "recordings"))


def test_a_faster_module_is_kept_and_the_view_is_named(run, request):
    tried = try_edits(run, ("work.py", "PAUSE_S = 0.01", "PAUSE_S = 0.004"), words=("--runs", "2"))
    assert (tried.code, tried.result["answer"]) == (0, "keep"), tried.text
    assert tried.result["same_training"] is True
    assert tried.result["steps"] == tried.result["steps"][::-1] == [300, 300]
    factor = tried.result["steps_factor"]
    assert 1 < factor["low"] < factor["high"]
    assert "each side runs 2 times by itself, alternately: about" in tried.err
    run_factor, run_s = tried.result["run_factor"], tried.result["run_s"]
    assert run_factor["pairs"] == 2
    assert run_factor["low"] < run_s[0] / run_s[1] < run_factor["high"]
    assert run_s[0] > 3.0
    assert [lane["name"] for lane in tried.result["race"]["lanes"]] == ["cpu as it is", "cpu changed"]
    kind = COPY if REFUSED in request.node.name else OVERLAY
    assert tried.result["race"]["views"]["here"]["kind"] == kind
    assert ("has a copy of" if kind == COPY else "copy-on-write view") in tried.result["view"]


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        pytest.param("STEPS = 300", "STEPS = 200", "something else: 200 instead of 300 steps", id="steps"),
        pytest.param("BATCH = 32", "BATCH = 16", "16 instead of 32 examples per step", id="batch"),
        pytest.param(
            "0.01\nSTEPS = 300\nBATCH = 32\ndef loss(step):\n",
            "0.003\nSTEPS = 300\nBATCH = 32\ndef loss(step):\n    step /= 2\n",
            "it trains something else: losses at the same step differ by",
            id="half the updates",
        ),
        pytest.param("PAUSE_S = 0.01", "PAUSE_S = 0.03", "slower: ", id="slower"),
        pytest.param("import math", "import math\n\n# nothing", "it changes nothing: |would tell", id="nothing"),
        pytest.param("import math", "import math as", "it fails: .*SyntaxError", id="syntax"),
        pytest.param(
            "    return 2", "    assert step <= 20, 'no more'\n    return 2", "it fails after 20 steps: .*no more",
            id="exception",
        ),
    ],
)  # fmt: skip
def test_other_changes_are_refused_in_a_line(attempt, before, after, why):
    tried = attempt(("work.py", before, after))
    assert re.search(why, tried.text), tried.text
    assert "\n" not in tried.text
    assert tried.code == 4 or "would tell" in tried.text


def test_a_script_that_fails_by_itself_is_no_answer_about_the_change(attempt):
    broken = {"train.py": LOOP, "work.py": WORK + "assert PAUSE_S < 0.01, 'broken'\n"}
    tried = attempt(("work.py", "BATCH = 32", "BATCH = 33"), files=broken)
    assert tried.code == 1 or (tried.code == 4 and "fails" in tried.text)
    assert "broken" in tried.text


def test_a_patch_is_kept_only_if_the_answer_is_keep(attempt, folder):
    tried = attempt(("work.py", "PAUSE_S = 0.01", "PAUSE_S = 0.03"), words=("--keep", "--yes", "--seconds", "3"))
    assert tried.code != 0
    assert (folder / "work.py").read_text() == WORK
    longer = WORK.replace("STEPS = 300", "STEPS = 900")
    files = {"train.py": LOOP, "work.py": longer}
    tried = attempt(("work.py", "PAUSE_S = 0.01", "PAUSE_S = 0.003"), files=files, words=("--keep", "--yes"))
    assert tried.code == 0, tried.text
    assert "work.py is changed" in tried.err
    assert (folder / "work.py").read_text() == longer.replace("PAUSE_S = 0.01", "PAUSE_S = 0.003")


def test_the_folder_is_tried_against_a_revision(folder, open_path):
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(folder)]
    longer = WORK.replace("STEPS = 300", "STEPS = 900")
    for name, text in (("train.py", LOOP), ("work.py", longer)):
        (folder / name).write_text(text)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    (folder / "work.py").write_text(longer.replace("0.01", "0.003"))
    before = content(folder)
    run = Runner(folder, open_path / "recordings")
    done = run(
        "try", "--git", "HEAD", "--slice", "0.2", "--runs", "0", "--headless", "--", sys.executable, "train.py"
    )
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
    edit = ("work.py", "PAUSE_S = 0.01", "PAUSE_S = 0.004")
    refused = try_edits(run, edit)
    assert (refused.code, "300 MiB, view_copy=200 MiB" in refused.result["error"]) == (2, True), refused.result
    assert "--link" in refused.result["hint"]
    linked = try_edits(run, edit, words=("--link", "work.py", "--link", "data"))
    assert "--link shares work.py, which the change replaces" in linked.result["error"]
    tried = try_edits(run, edit, words=("--link", "data", "--seconds", "2"))
    assert f"has a copy of {run.folder} with links to its data" in tried.result["view"]
    assert tried.result["race"]["views"]["here"]["links"] == ["data"]


@pytest.mark.parametrize("moment", slow_except(3, range(1, 11)))
def test_a_kill_leaves_nothing_behind(folder, open_path, moment):
    files = {"train.py": LOOP, "work.py": WORK}
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "fix.patch").write_text(patch_of(files, ("work.py", "STEPS = 300", "STEPS = 3_000")))
    before, before_mounts = content(folder), len(mounts(open_path))
    run = Runner(folder, open_path / "recordings")
    started = run.start("try", "fix.patch", "--no-record", "--headless", "--", sys.executable, "train.py")
    monitor = psutil.Process(started.pid)
    known: dict[int, psutil.Process] = {}
    entered = f"*.files.part/{'AB'[moment % 2]}/{('work', 'written', 'changed')[moment % 3]}"
    with contextlib.suppress(AssertionError):  # `changed` is there for a short time
        wait_for(lambda: list(run.store.glob(entered)), timeout_s=3.0 + moment, what=entered)
    known.update({child.pid: child for child in monitor.children(recursive=True)})
    monitor.send_signal(signal.SIGKILL)
    started.communicate()
    wait_for(lambda: all(gone(pid) for pid in known), what="all processes are gone")
    wait_for(lambda: len(mounts(open_path)) <= before_mounts, what="no mount is left")
    assert content(folder) == before
    done = run("try", "fix.patch", "--no-record", "--json", "--seconds", "1", "--", sys.executable, "train.py")
    assert json.loads(done.stdout)["answer"], done.stderr
    assert not list(run.store.glob("*.files*")), "what a killed try has left is gone with the next"


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("before", "after", "answer", "why"),
    [
        ("[Log()]", "[]", "keep", "it trains the same"),
        ("epochs=24", "epochs=20", "refuse", "it trains something else: .*(epochs|steps)"),
        ("batch_size=32", "batch_size=64", "refuse", "64 instead of 32 examples per step"),
        ('compile("sgd"', "compile(keras.optimizers.SGD(0.0001)", "refuse", "losses at the same step differ"),
        ("Dense(1)])", "Dense(2)])\nmodel.nothing", "refuse", "it fails: .*AttributeError"),
    ],
)
def test_changes_to_a_keras_training_are_judged(attempt, before, after, answer, why):

    tried = attempt(("train.py", before, after), files={"train.py": KERAS})
    assert tried.result["answer"] == answer, tried.text
    assert re.search(why, tried.text), tried.text


@pytest.mark.slow
@pytest.mark.tensorflow
def test_the_code_of_a_recorded_cause_is_tried(folder, open_path):
    eager = KERAS.replace('compile("sgd", "mse")', 'compile("sgd", "mse", run_eagerly=True)')
    (folder / "train.py").write_text(eager.replace("[Log()]", "[]").replace("epochs=24", "epochs=12"))
    run = Runner(folder, open_path / "recordings")
    watched = run("watch", "--headless", "--", sys.executable, "train.py")
    assert watched.returncode == 0, watched.stderr
    before = content(folder)
    words = ("--json", "--runs", "0", "--slice", "0.2", "--", sys.executable, "train.py")
    done = run("try", "--cause", "step_small", *words)
    assert (done.returncode, "has no cause step_small" in done.stderr) == (2, True), done.stderr
    tried = json.loads(run("try", "--cause", "step_eager", *words).stdout)
    assert (tried["answer"] in ("keep", "not known yet"), tried["files"]) == (True, ["train.py"]), tried["text"]
    assert tried["change"].startswith("step_eager of ")
    assert tried["steps"] == [768, 768]
    assert tried["steps_factor"]["value"] > 2, tried["text"]
    assert content(folder) == before
