"""Knobs: allowed values, the value after a key press, and errors with the allowed values."""

import math

import pytest

from tfmon.model.knobs import BATCH_SIZE, COMMON, PREFETCH, Knob, KnobError, guess_settings, parse_settings, show

AUGMENT = Knob("augment", default=False, help="")
RATE = Knob("rate", default=0.5, help="", low=0, high=1)
OPTIMIZER = Knob("optimizer", default="adam", help="", choices=("adam", "sgd"))
LAYERS = Knob("layers", default=2, help="", choices=(1, 2, 4))
WIDTH = Knob("width", default=64, help="", low=8, high=256)
KNOBS = (*COMMON, AUGMENT, RATE, OPTIMIZER, LAYERS, WIDTH)


@pytest.mark.parametrize(
    ("knob", "text", "allowed"),
    [
        (BATCH_SIZE, "0", "a whole number from 1"),
        (BATCH_SIZE, "1.5", "a whole number from 1"),
        (PREFETCH, "1025", "off, auto or a whole number from 1 to 1024"),
        (AUGMENT, "maybe", "on or off"),
        (RATE, "1.5", "a number from 0 to 1"),
        (RATE, "nan", "a number from 0 to 1"),
        (OPTIMIZER, "lion", "adam or sgd"),
        (LAYERS, "3", "1, 2 or 4"),
        (Knob("up_to", default=1, help="", high=10), "11", "a whole number up to 10"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_with_what_is(knob, text, allowed):
    with pytest.raises(KnobError) as caught:
        knob.parse(text)
    assert str(caught.value) == f"{knob.name}={text} is not possible; {knob.name} takes {allowed}"


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        *((BATCH_SIZE, value) for value in (True, 32.0, "32", None, [32])),
        *((PREFETCH, "on"), (AUGMENT, 1), (AUGMENT, "on"), (RATE, math.nan), (LAYERS, True), (OPTIMIZER, 1)),
    ],
)
def test_a_value_of_another_type_is_refused(knob, value):
    with pytest.raises(KnobError, match=f"{knob.name} takes"):
        knob.check(value)


@pytest.mark.parametrize("knob", KNOBS)
def test_a_default_is_allowed_and_can_be_typed_as_it_is_shown(knob):
    assert knob.check(knob.default) == knob.default
    assert knob.parse(show(knob.default)) == knob.default


@pytest.mark.parametrize(
    ("knob", "value", "up", "down"),
    [
        *((BATCH_SIZE, 10, 16, 8), (BATCH_SIZE, 32, 64, 16), (BATCH_SIZE, 1, 2, 1), (BATCH_SIZE, 3, 4, 2)),
        *((WIDTH, 256, 256, 128), (WIDTH, 200, 256, 128), (WIDTH, 8, 16, 8), (WIDTH, 10, 16, 8)),
        *((PREFETCH, 16, "off", "auto"), (AUGMENT, False, True, True), (AUGMENT, True, False, False)),
        (Knob("n", default=1, help="", low=1, words=("auto",)), "auto", "auto", "auto"),
    ],
)
def test_a_key_leads_to_the_next_choice_or_power_of_two_within_the_range(knob, value, up, down):
    assert (knob.next(value, 1), knob.next(value, -1)) == (up, down)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("prefetch", "'prefetch' is not KNOB=VALUE"),
        ("batch_size=3 batch_size=4", "batch_size is named twice, 3 and 4; name one value"),
        ("batch_size=1=2", "batch_size takes a whole number"),
    ],
)
def test_a_bad_setting_says_what_is_wrong(words, problem):
    with pytest.raises(KnobError, match=problem):
        parse_settings(KNOBS, words.split())


def test_the_words_of_a_script_are_read_by_the_knob_that_they_name_or_by_their_looks():
    words = ("prefetch=off", "batch_size=64", "flag=off", "rate=0.5", "name=x")
    read = {"prefetch": "off", "batch_size": 64, "flag": False, "rate": 0.5, "name": "x"}
    assert guess_settings(words) == read
    assert guess_settings(["prefetch=few"]) == {"prefetch": "few"}, "the script may have another knob of that name"
