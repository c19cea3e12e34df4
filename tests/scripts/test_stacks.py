"""The samples of the main thread's stack: their content, and no side effects."""

import _thread
import functools
import sys
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
from support.waiting import wait_for

from tfmon.hooks.inspection import code_of, line_now, line_of_function
from tfmon.hooks.stacks import StackSampler, what_runs

pytestmark = pytest.mark.process


def test_a_file_that_autograph_generates_has_the_line_that_calls_it():
    generated = {"frame": sys._getframe}
    exec(compile("def call():\n    return frame()", "/tmp/__autograph_generated_file1.py", "exec"), generated)
    _, file, line = what_runs(generated["call"]())
    assert (file, line) == (__file__, sys._getframe().f_lineno - 1)


@pytest.mark.parametrize(
    "files",
    [
        ["/home/me/keras/train.py"],
        ["/home/me/train.py", "/lib/site-packages/mlflow/wrap.py", "/lib/site-packages/keras/fit.py"],
        ["/usr/bin/shop", "/lib/site-packages/shop/train.py", "/lib/site-packages/keras/fit.py"],
    ],
)
def test_the_line_of_the_script_is_neither_keras_nor_what_wraps_it(files):
    call = line_now
    for file in reversed(files):
        names = {"inner": call, "__name__": "__main__" if file == files[0] else Path(file).parent.name}
        exec(compile("def call():\n    return inner()", file, "exec"), names)
        call = names["call"]
    with ThreadPoolExecutor(1) as thread:  # without the frames of this test
        assert thread.submit(call).result() == "train.py:2"


def test_what_a_function_holds_is_freed_when_it_returns():
    sampler = StackSampler()
    sampler.start()

    def hold() -> weakref.ref[set[int]]:
        thing = {1}
        wait_for(lambda: bool(sampler.take()), what="a sample of this frame")
        time.sleep(0.05)  # another one
        return weakref.ref(thing)

    assert hold()() is None
    threads = _thread._count()
    sampler.stop()
    wait_for(lambda: _thread._count() < threads, what="the end of the thread")


@pytest.mark.timeout(20)
def test_the_code_of_an_object_with_every_attribute_is_not_searched_for_ever():
    assert code_of(Mock()) is None and line_of_function(Mock()) == ""
    assert code_of(functools.partial(functools.partial(wait_for, timeout=1))) is wait_for.__code__
