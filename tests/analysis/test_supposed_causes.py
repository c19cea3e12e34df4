"""Causes that a bottleneck lets suppose, the likeliest first, and the code that mends them."""

from dataclasses import replace

import pytest
from support.measured_lanes import KNOBS
from support.measured_lanes import measured_lane as lane

from analysis.test_bottleneck import CASES
from tfmon.analysis.analysis import analyse
from tfmon.analysis.causes import causes_of, code_to_keep, setting_text
from tfmon.model.knobs import Knob
from tfmon.model.lane_events import (
    CACHE,
    COMPILES,
    DATASET,
    EAGER,
    FIT,
    RUN_EAGERLY,
    SEQUENTIAL,
    UNCACHED,
    CauseSeen,
    Progressed,
)
from tfmon.model.lane_state import ProcessInfo, ScriptFacts
from tfmon.model.race import Race
from tfmon.model.session import Snapshot
from tfmon.reports.race_report import to_text


def advised(kind: str, **settings) -> list[str]:
    causes = causes_of(lane(settings=settings), [kind], KNOBS)
    return [setting_text(cause.knob, cause.value) for cause in causes if cause.knob]


@pytest.mark.parametrize(
    ("kind", "settings", "first"),
    [
        ("input", {}, "cache on"),
        ("step", {}, "xla on"),
        ("eager", {"graph": False}, "graph on"),
        ("dispatch", {}, "batch 128"),
        ("compute", {}, "xla on"),
        ("compute", {"batch_size": 31}, "batch 124"),
        ("compute", {"batch_size": 1}, "batch 32"),
    ],
)
def test_the_likeliest_comes_first_and_a_larger_batch_where_it_is_small(kind, settings, first):
    assert advised(kind, **settings)[0] == first


@pytest.mark.parametrize(
    ("kind", "settings", "absent"),
    [
        ("input", {"parallel_calls": "auto"}, "parallel calls auto"),
        ("compute", {"graph": False}, "xla on"),
        ("compute", {}, "mixed precision float16"),
        ("input", {"prefetch": 2}, "prefetch auto"),
    ],
    ids=["in effect already", "XLA without a graph", "float16 on a CPU", "prefetch already"],
)
def test_what_cannot_help_is_not_supposed(kind, settings, absent):
    assert absent not in advised(kind, **settings)


EPOCHS = Progressed(at_ns=1, doing="fit", epochs=3)


@pytest.mark.parametrize(
    ("kind", "traits", "more", "supposed"),
    [
        ("input", (), {"progress": EPOCHS}, set()),
        ("input", (DATASET,), {"progress": EPOCHS}, {"input_no_prefetch"}),
        ("input", (DATASET, UNCACHED), {"progress": EPOCHS}, {"input_no_prefetch", "input_no_cache"}),
        ("input", (DATASET, UNCACHED), {}, {"input_no_prefetch"}),
        ("input", (DATASET, CACHE), {"progress": EPOCHS}, {"input_no_prefetch"}),
        ("input", (DATASET, SEQUENTIAL), {}, {"input_no_prefetch", "input_sequential_map"}),
        ("step", (), {}, set()),
        ("step", (FIT,), {}, set()),
        ("step", (FIT, COMPILES), {}, {"step_not_fused"}),
        ("step", (FIT, COMPILES), {"bfloat16": True}, {"step_not_fused", "step_float32"}),
        ("step", (FIT,), {"bfloat16": True, "settings": {"mixed_precision": "float16"}}, set()),
        ("step", (FIT, EAGER, RUN_EAGERLY), {"bfloat16": True}, {"step_eager"}),
        ("step", (EAGER,), {"bfloat16": True}, {"step_eager"}),
        ("retracing", (FIT, DATASET), {}, set()),
    ],
)
def test_what_a_script_does_not_have_or_has_already_is_not_advised(kind, traits, more, supposed):
    more = {"bfloat16": False, "progress": None, "settings": {}, **more}
    versions = {**lane().process.versions, "tensorflow": "2.21"}
    process = replace(lane().process, versions=versions, bfloat16=more["bfloat16"])
    facts = ScriptFacts("python train.py", step_traits=traits, progress=more["progress"])
    state = replace(lane(), process=process, script=facts, settings=more["settings"])
    assert {cause.id for cause in causes_of(state, [kind])} == supposed


def test_a_small_cause_does_not_hide_what_may_help_more():
    def help_beside(cost_s: float) -> str:
        seen = CauseSeen(
            at_ns=9, cause="epoch_batch", place="", count=7, cost_ns=round(cost_s * 1e9), of_ns=10**10
        )
        waits = replace(CASES["input"], script=ScriptFacts("python train.py", causes=(seen,)))
        waits = replace(waits, settings={"prefetch": "off"}, process=ProcessInfo())
        snapshot = Snapshot(10**9, Race(started_ns=1, knobs=KNOBS), (waits,))
        return to_text(analyse(snapshot))

    assert "may help: parallel calls auto" in help_beside(0.3)
    assert "may help" not in help_beside(5.0), "it takes more than half of the wait"


OWN = (
    Knob("prefetch", "auto", "", "live", ("off", 1, 2, "auto"), 1, 1024),
    Knob("learning_rate", 0.01, "", "live", low=0),
    Knob("input_threads", "auto", "", "live", ("auto", 1, 2), 1, 8),
    Knob("rate", 0.5, "", "live", low=0),
    Knob("batch_size", 32, "", "live", low=1),
    Knob("stop_after_epoch", False, "", "live"),
)


@pytest.mark.parametrize(
    ("knob", "value", "line"),
    [
        ("prefetch", "off", "options.experimental_optimization.inject_prefetch = False"),
        ("prefetch", 2, "dataset = dataset.prefetch(2)"),
        ("input_threads", 2, "options.threading.private_threadpool_size = 2"),
        ("learning_rate", 0.05, "optimizer.learning_rate = 0.05"),
        ("batch_size", 64, "dataset = dataset.batch(64)"),
        ("rate", 0.25, 'rate = report.knob("rate", 0.25)'),
    ],
)
def test_what_was_changed_in_a_script_has_the_code_that_keeps_it(knob, value, line):
    own = {one.name: one.default for one in OWN}
    loaded = ProcessInfo(versions={**lane().process.versions, "tensorflow": "2.21.0"})
    known = lane(settings={**own, knob: value})
    script = replace(known, script=ScriptFacts("python train.py"), process=loaded)
    ((_, lines),) = code_to_keep(script, OWN)
    assert line in "\n".join(lines)
    ((_, lines),) = code_to_keep(replace(script, process=lane().process), OWN)
    assert lines == (f'{knob} = report.knob("{knob}", {value!r})',), "a script without TensorFlow offers it"
    assert not list(code_to_keep(replace(script, settings={**own, "stop_after_epoch": True}), OWN))
    assert not list(code_to_keep(replace(script, script=ScriptFacts()), OWN)), "a scenario is not the user's file"
