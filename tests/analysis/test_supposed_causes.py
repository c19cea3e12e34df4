"""Causes that a bottleneck lets suppose, the likeliest first, and the code that mends them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.measured_lanes import KNOBS
from support.measured_lanes import measured_lane as lane

from analysis.test_bottleneck import CASES
from tfmon.analysis.analysis import analyse
from tfmon.analysis.causes import causes_of, code_of, code_to_keep, setting_text
from tfmon.model.knobs import STEPS_PER_EXECUTION, Knob
from tfmon.model.lane_state import LaneState, ProcessInfo, ScriptFacts, Totals
from tfmon.model.lane_statistics import LossCurve
from tfmon.model.race import Race
from tfmon.model.script_events import (
    CACHE,
    COMPILES,
    DATASET,
    EAGER,
    FIT,
    RUN_EAGERLY,
    SEES_BATCHES,
    SEQUENTIAL,
    SHORT,
    SHUFFLE,
    SKIPS,
    SPARE,
    UNCACHED,
    CauseSeen,
    Progressed,
)
from tfmon.model.session import Snapshot
from tfmon.reports.race import to_text
from tfmon.reports.race_json import to_json
from tfmon.ui.render.pane import common_of, pane_rows
from tfmon.ui.render.rows import plain
from tfmon.ui.screens.lane import lane_rows
from tfmon.ui.source import SHARED, Display, Scale


def advised(kind: str, **settings) -> list[str]:
    return settings_for(kind, lane(settings=settings))


def settings_for(kind: str, state: LaneState, knobs: Sequence[Knob] = KNOBS) -> list[str]:
    return [setting_text(one.knob, one.value) for one in causes_of(state, [kind], knobs) if one.knob]


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


@pytest.mark.parametrize(("examples", "first"), [(310_000, "cache on"), (330_000, "parallel calls auto")])
def test_a_cache_comes_first_where_an_epoch_is_short(examples, first):
    state = replace(lane(), process=ProcessInfo(data_examples=examples))
    assert settings_for("input", state)[0] == first, "32,000 examples take 1 s"


def test_without_an_end_of_the_data_a_cache_is_never_full():
    assert settings_for("input", replace(lane(), process=ProcessInfo()))[0] == "parallel calls auto"


@pytest.mark.parametrize(
    ("kind", "settings", "absent"),
    [
        ("input", {"parallel_calls": "auto"}, "parallel calls auto"),
        ("compute", {"graph": False}, "xla on"),
        ("compute", {}, "mixed precision float16"),
    ],
    ids=["in effect already", "XLA without a graph", "float16 on a CPU"],
)
def test_what_cannot_help_is_not_supposed(kind, settings, absent):
    assert absent not in advised(kind, **settings)


def test_a_batch_is_never_larger_than_the_data():
    assert "batch 1000" in advised("dispatch", batch_size=900)
    assert not [text for text in advised("dispatch", batch_size=1_000) if text.startswith("batch")]


def test_only_variants_that_do_the_same_work_are_supposed():
    variant = Knob("variant", "a", "Which.", choices=("a", "b", "c"), remedies=("a", "b"))
    assert settings_for("retracing", lane(settings={"variant": "a"}), (variant,)) == ["variant b"]


def test_the_code_that_does_it_is_at_hand():
    assert "prefetch(tf.data.AUTOTUNE)" in code_of(None, "prefetch", "auto")[0]
    assert "batch(128)" in code_of(None, "batch_size", 128)[0]
    assert "variant fast" in code_of(None, "variant", "fast")[0]
    versions = {**lane().process.versions, "tensorflow": "2.21.0"}
    script = replace(lane(), script=ScriptFacts("python train.py"), process=ProcessInfo(versions=versions))
    assert code_of(script, "xla", True, by_hand=True)[-1] == "# to try it: --lane cpu --lane cpu,xla=on"


@pytest.mark.parametrize("kind", [kind for kind in CASES if kind != "retracing"])
def test_nothing_that_needs_tensorflow_is_told_to_a_script_without_it(kind):
    lost = LossCurve().plus(1, math.nan)
    state = replace(
        CASES[kind], script=ScriptFacts("python train.py"), totals=Totals(losses=lost), settings={"prefetch": 2}
    )
    offered = Knob("prefetch", 2, "", "live", ("off", "auto"), 1, 8)

    def told(state, *knobs: Knob) -> str:
        snapshot = Snapshot(10**9, Race(started_ns=1, knobs=knobs), (state,))
        analysis = analyse(snapshot)
        rows = pane_rows(analysis, 0, Display(scales={SHARED: Scale(0.0, 1e4)}), 120, 60, common_of(analysis, 120))
        rows += lane_rows(analysis, state, 120)
        return "\n".join([*plain(rows), to_text(analysis), json.dumps(to_json(analysis))])

    needs = re.compile(
        r"xla|XLA|mixed.precision|jit_compile|tf\.data|tf\.debugging|P breaks|enable_check|dataset = "
    )
    assert not needs.findall(told(state)) + needs.findall(told(state, offered))
    loaded = ProcessInfo(versions={**state.process.versions, "tensorflow": "2.21.0"})
    assert needs.search(told(replace(state, process=loaded))), "with TensorFlow it is"


def of_a_script(kind: str, *traits: str, bfloat16: bool = False, progress: Progressed | None = None) -> set[str]:
    """Return the ids of what is supposed of a script with TensorFlow that has these traits."""
    known = lane()
    process = replace(known.process, versions={**known.process.versions, "tensorflow": "2.21"}, bfloat16=bfloat16)
    facts = ScriptFacts("python train.py", step_traits=traits, progress=progress)
    return {one.id for one in causes_of(replace(known, process=process, script=facts, settings={}), [kind])}


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
        ("step", (FIT, EAGER, RUN_EAGERLY), {"bfloat16": True}, {"step_eager"}),
        ("step", (EAGER,), {"bfloat16": True}, {"step_eager"}),
        ("retracing", (FIT, DATASET), {}, set()),
    ],
)
def test_what_a_script_does_not_have_or_has_already_is_not_advised(kind, traits, more, supposed):
    assert of_a_script(kind, *traits, **more) == supposed


def test_a_callback_that_works_in_each_batch_is_advised_to_work_less_before_anything_else():
    known = lane()
    process = replace(known.process, versions={**known.process.versions, "tensorflow": "2.21"})

    def supposed(*traits: str) -> list[str]:
        state = replace(known, process=process, script=ScriptFacts("python train.py", step_traits=traits))
        return [one.id for one in causes_of(state, ["other"], (STEPS_PER_EXECUTION,))]

    assert supposed(FIT) == ["steps_small"] and supposed() == []
    assert supposed(FIT, SEES_BATCHES) == ["batch_callback", "steps_small"]


@pytest.mark.parametrize(
    ("traits", "figures", "advice", "line"),
    [
        ((DATASET, SHUFFLE), {SPARE: 1.0}, "a smaller buffer of `shuffle` fills sooner", "shuffle("),
        ((DATASET, SHUFFLE), {}, "what is done before it was not observed", ""),
        (
            (DATASET, SHUFFLE, UNCACHED),
            {},
            "keep what its maps make in a cache, if that fits in memory",
            ".cache()",
        ),
        ((DATASET, UNCACHED, SKIPS), {}, "`skip` has elements made and drops them", "skip(held_out).map("),
        ((FIT, DATASET), {SHORT: 1.0}, "a dataset that repeats has one iterator", "repeat()"),
        ((DATASET,), {SHORT: 1.0}, "", ""),
        ((), {}, "what is done before it was not observed", ""),
    ],
)
def test_a_wait_for_the_first_batch_has_the_advice_for_its_pipeline(traits, figures, advice, line):
    seen = CauseSeen(
        at_ns=9, cause="epoch_batch", place="", count=7, cost_ns=6 * 10**9, of_ns=10**10, figures=figures
    )
    (cause,) = causes_of(
        replace(lane(), script=ScriptFacts("python train.py", step_traits=traits, causes=(seen,)))
    )
    assert cause.advice.startswith(advice) and line in "".join(cause.code)
    assert ("shuffle" in cause.advice) == ("shuffle" in advice) and bool(cause.code) == bool(line)


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
    assert lines == (f'{knob} = report.knob("{knob}", {value!r})',), (
        "without TensorFlow the script offers it itself"
    )
    assert not list(code_to_keep(replace(script, settings={**own, "stop_after_epoch": True}), OWN))
    assert not list(code_to_keep(replace(script, script=ScriptFacts()), OWN)), "a scenario is not the user's file"
