"""The rules of the verdict, at their thresholds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfmon.profile.verdict import Evidence, judge

EVEN = Evidence(
    steps=20,
    retraced_steps=0,
    eager=False,
    compute=0.6,
    input=0.1,
    dispatch=0.2,
    transfer=0.0,
    other=0.1,
    retracing=0.0,
    sync=0.0,
)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "compute"),
        ({"steps": 50, "retraced_steps": 1}, "compute"),
        ({"steps": 49, "retraced_steps": 1}, "retracing"),
        ({"compute": 0.95, "retraced_steps": 5}, "retracing"),
        # A device that computes hides what the host waits for.
        ({"compute": 0.70, "sync": 0.9, "eager": True}, "compute"),
        ({"compute": 0.2, "input": 0.41}, "input"),
        ({"compute": 0.2, "input": 0.41, "sync": 0.5}, "input"),
        ({"compute": 0.6, "input": 0.39}, "compute"),
        ({"compute": 0.6, "sync": 0.31}, "sync"),
        ({"compute": 0.6, "sync": 0.30}, "compute"),
        ({"compute": 0.5, "transfer": 0.26, "dispatch": 0.1}, "transfer"),
        ({"compute": 0.5, "transfer": 0.25, "dispatch": 0.1}, "compute"),
        ({"compute": 0.1, "dispatch": 0.6, "eager": True}, "eager"),
        ({"compute": 0.8, "dispatch": 0.1, "eager": True}, "compute"),
        ({"compute": 0.6, "dispatch": 0.3, "eager": True}, "compute"),
        # Not dispatch, which is a good part of the step: waiting for input is more, and so is computing.
        ({"compute": 0.36, "dispatch": 0.24, "input": 0.39}, "mixed"),
        ({"compute": 0.2, "dispatch": 0.2, "input": 0.38}, "input"),
        ({"compute": 0.64, "dispatch": 0.36}, "dispatch"),
        ({"compute": 0.66, "dispatch": 0.34}, "compute"),
        ({"compute": 0.1, "other": 0.7}, "other"),
        ({"compute": 0.45, "input": 0.41}, "mixed"),
        ({"compute": 0.30, "dispatch": 0.35}, "mixed"),
        ({"compute": 0.30, "dispatch": 0.401}, "dispatch"),
    ],
)
def test_what_bounds_it(changes, expected):
    assert judge(replace(EVEN, **changes)).bound == expected


def test_the_text_names_the_share():
    assert judge(EVEN).text == "60 % of the time operations ran"
    assert judge(replace(EVEN, steps=6, retraced_steps=3)).text == "3 of 6 steps traced or compiled anew"


def test_mixed_names_both_the_larger_first():
    text = judge(replace(EVEN, compute=0.45, input=0.41)).text
    assert text == "45 % of the time operations ran; 41 % of the time was spent waiting for the next batch"


def test_shares_are_named_as_bounds_are():
    assert judge(EVEN).shares == {
        "compute": 0.6,
        "input": 0.1,
        "dispatch": 0.2,
        "transfer": 0.0,
        "other": 0.1,
        "retracing": 0.0,
    }
    assert "eager" in judge(replace(EVEN, eager=True)).shares
