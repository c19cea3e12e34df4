"""Training loops are counted exactly: the shapes of loop_shapes.py, and loops drawn from a grammar.

The shapes are not in the grammar. By default a sixteenth of the drawn loops is run; `TFMON_LOOPS=1`
runs all of them.
"""

import json
import os
import re
from pathlib import Path

import pytest
from support.processes import run_python

pytestmark = [pytest.mark.tensorflow]

HERE = Path(__file__).parent
NAMES = re.findall(r"^@shape\(.*\)\ndef (\w+)", (HERE / "loop_shapes.py").read_text(), re.MULTILINE)
LEAST_BUNDLED = 30
LOOPS, PARTS = 408, 16
LEAST_EXACT = 0.9
MAY_BE_UNKNOWN = {"accumulates", "predicts", "tensor flag", "epoch"}
"""Optimizers that add gradients up, a model of another thread, a loop in the graph: a figure may not be known."""
ALL = bool(os.environ.get("TFMON_LOOPS"))


def lines_of(script: str, *words: object) -> list[list]:
    """Run a script in this folder, and return its lines of JSON."""
    run = run_python(HERE / script, *words, PYTHONPATH=str(HERE.parents[1]))
    assert run.returncode == 0, run.stderr[-2_000:]
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("[")]


@pytest.fixture(scope="module")
def counted() -> dict[str, list[dict[str, object]]]:
    return {name: [expected, counted] for name, expected, counted in lines_of("loop_shapes.py")}


@pytest.mark.trainer
@pytest.mark.parametrize("name", NAMES)
def test_a_loop_is_counted_exactly(counted, name):
    expected, found = counted[name]
    assert {key: found[key] for key, value in expected.items() if value is not None} == {
        key: value for key, value in expected.items() if value is not None
    }
    assert found["failures"] == expected.get("failures", 0)
    assert found["phases"] <= expected.get("phases", 1)


@pytest.mark.trainer
def test_steps_that_are_alike_were_told_together(counted):
    assert sum(found["bundled"] for _, found in counted.values()) > LEAST_BUNDLED
    assert counted["eager"][1]["bundled"]
    for name in ("train_on_batch_eagerly", "train_on_batch_of_slices", "constants"):
        assert counted[name][1]["bundled"], name


def figure(what: str, true: float | None, known: float | None, reasons: dict[str, str]) -> str:
    """Return whether a figure is exact, unknown or wrong."""
    if known is None or (not known and what != "loss"):
        return "exact" if true is None else "unknown" if reasons.get(what) else "wrong: unknown without a reason"
    if what == "steps" and reasons.get("steps"):
        return "unknown"
    close = true is not None and abs(known - true) <= (1e-5 * max(1.0, abs(true)) if what == "loss" else 0)
    return "exact" if close else f"wrong: {known} of {true}"


@pytest.mark.slow
def test_each_figure_is_exact_or_unknown_and_most_are_exact():
    parts = range(PARTS if ALL else 1)
    drawn = [line for first in parts for line in lines_of("many_loops.py", first, PARTS, LOOPS)]
    found = {
        name: {what: figure(what, true[what], known[what], reasons) for what in true}
        for name, true, known, reasons, _ in drawn
    }
    wrong = {name: each for name, each in found.items() if any(one.startswith("wrong") for one in each.values())}
    assert not wrong
    assert not any(failures for *_, failures in drawn)
    exact = sum(set(each.values()) == {"exact"} for each in found.values())
    assert exact >= LEAST_EXACT * len(found), f"{exact} of {len(found)}"
    if not ALL:
        plain = [each for name, each in found.items() if not MAY_BE_UNKNOWN & set(name.split(" · "))]
        assert {(each["steps"], each["examples"]) for each in plain} == {("exact", "exact")}
