"""Every argument of the public functions, wrong in many ways: one documented exception, before anything starts."""

import inspect
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.ui import Demo

import tfmon
from tfmon.analysis.analysis import analyse
from tfmon.analysis.summarise import summarise
from tfmon.api import python
from tfmon.errors import EXIT_LANE_FAILED, EXIT_UNHEALTHY

NO_NUMBER = st.one_of(
    st.booleans(), st.text(), st.binary(), st.lists(st.integers()), st.just(float("nan")), st.just(float("inf")),
    st.floats(max_value=-1e-9), st.just(np.float32(-1)), st.just(1j),
)  # fmt: skip
NO_FLAG = st.one_of(st.integers(), st.floats(), st.text(), st.lists(st.booleans()))
NO_TEXT = st.one_of(st.integers(), st.floats(), st.binary(), st.lists(st.text(), max_size=2), st.just(""))
NO_PYTHON = st.one_of(st.integers(), st.just("/nowhere/python"))
NO_LIST = st.one_of(st.integers(), st.text(), st.binary(), st.lists(st.integers(), min_size=1), st.just({"a": 1}))
NO_LINK = st.one_of(NO_LIST, st.sampled_from([["/nowhere"], ["."], [".."], ["absent"]]))
NO_DICT = st.one_of(
    st.integers(), st.text(min_size=1), st.lists(st.text(), min_size=1), st.just({1: 2}), st.just({"a": {}})
)
WITH_LANES = {
    "scenario": NO_TEXT, "settings": NO_DICT, "command": NO_LIST, "slice_s": NO_NUMBER, "until_ci": NO_NUMBER,
    "in_place": NO_FLAG, "link": NO_LINK, "python": NO_PYTHON, "ray": NO_TEXT, "ray_python": st.integers(),
    "ray_cpus": NO_NUMBER, "record": st.one_of(st.integers(), st.just("")), "progress": NO_FLAG, "wait": NO_FLAG,
}  # fmt: skip
WRONG = {
    "race": WITH_LANES | {
        "lanes": st.one_of(NO_LIST, st.just([])), "seconds": NO_NUMBER, "mode": NO_TEXT, "margin": NO_NUMBER,
        "steps": st.one_of(NO_NUMBER, st.just(10.5), st.just(np.float64(3))), "fresh": NO_FLAG,
        "wait_idle": NO_NUMBER, "ignored_causes": st.one_of(st.integers(), st.just("nil"), st.just([3])),
        "notify": st.integers(), "baseline": NO_TEXT, "slower_than": NO_NUMBER, "metrics": NO_TEXT,
        "fail_on": st.one_of(NO_LIST, st.just([]), st.just("nan"), st.just(["nan", "nil"]), st.just([["nan"]])),
        "check": NO_FLAG,
    },
    "sweep": WITH_LANES | {
        "over": st.one_of(NO_DICT, st.just({"batch_size": 32}), st.just({})), "limit_s": NO_NUMBER,
        "on": st.one_of(st.integers(), st.just(""), st.just({"cpu": 1}), st.lists(st.integers(), min_size=1)),
        "everything": NO_FLAG, "resume": st.one_of(st.integers(), st.just("/nowhere/x.sweep")),
    },
    "diff": {
        "baseline": st.one_of(st.integers(), st.just([]), st.just("/nowhere.json"), st.none()),
        "run": st.one_of(st.integers(), st.just([]), st.just({"a": 1})),
        "slower_than": st.one_of(NO_NUMBER, st.none(), st.just(1.0), st.just("5%")),
        "more_memory_than": st.one_of(NO_NUMBER, st.just(1.0), st.just("5%")),
    },
}  # fmt: skip
RIGHT = {
    "race": {"scenario": "small-dense", "seconds": 1},
    "sweep": {"scenario": "small-dense", "over": {"batch_size": [32, 64]}},
    "diff": {"baseline": "last", "run": "last"},
}


@pytest.mark.parametrize("function", WRONG)
def test_every_argument_is_tried(function):
    assert {*inspect.signature(getattr(tfmon, function)).parameters} == {*WRONG[function]}


@pytest.mark.parametrize(("function", "name"), [(one, name) for one, names in WRONG.items() for name in names])
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_wrong_argument_is_refused_in_one_line_that_says_what_is_allowed(function, name, data, monkeypatch):
    def accepted(*_: object, **__: object) -> None:
        pytest.fail(f"{name}={value!r} was accepted")

    for what in ("_race", "follow"):
        monkeypatch.setattr(python, what, accepted)
    value = data.draw(WRONG[function][name])
    given = {**RIGHT[function], name: value}
    if name == "command":
        del given["scenario"]
    if name == "steps":
        del given["seconds"]
    if name == "resume":
        given = {name: value}
    with pytest.raises(tfmon.TfmonError) as refused:
        getattr(tfmon, function)(**{"progress": False, **given} if function != "diff" else given)
    assert str(refused.value) == refused.value.line and "\n" not in refused.value.line
    assert " --" not in refused.value.line, "arguments have no dashes"
    assert isinstance(refused.value, tfmon.UsageError)


def test_numbers_of_numpy_are_numbers(monkeypatch):
    monkeypatch.setattr(python, "_race", lambda options, *_, **__: options)
    known = {"seconds": np.float32(2), "until_ci": np.float64(0.05), "settings": {"batch_size": np.int64(20)}}
    options = tfmon.race("small-dense", mode="turns", progress=False, **known)
    assert (options.seconds, options.until_ci, options.settings) == (2.0, 0.05, ("batch_size=20",))
    assert tfmon.race("small-dense", steps=np.int64(200), progress=False).steps == 200


def test_an_error_tells_all_in_a_traceback_and_survives_a_process_pool():
    with pytest.raises(tfmon.UsageError, match="did you mean small-dense") as refused:
        tfmon.race("smal-dense")
    again = pickle.loads(pickle.dumps(refused.value))
    assert (type(again), again.message, again.hint) == (
        tfmon.UsageError, refused.value.message, refused.value.hint
    )  # fmt: skip
    result = summarise(analyse(Demo().session.snapshot()))
    failed = pickle.loads(pickle.dumps(tfmon.LaneFailedError(replace(result, scenario="y"))))
    assert (failed.result.scenario, failed.exit_code) == ("y", EXIT_LANE_FAILED)
    unhealthy = pickle.loads(pickle.dumps(tfmon.LaneFailedError(result, "cpu: the loss is nan")))
    assert (unhealthy.message, unhealthy.exit_code) == ("cpu: the loss is nan", EXIT_UNHEALTHY)
