"""Failures of tfmon inside a script stay invisible to the script."""

import os
import queue
import signal
from types import SimpleNamespace

import pytest
from support.waiting import PATIENCE_S

from tfmon import report
from tfmon.hooks import install, keras_fit
from tfmon.hooks.install import patch_other
from tfmon.hooks.patches import MOST_FAILURES, Hooks
from tfmon.model.script_events import NotMeasured
from tfmon.trainer.channel import Reporter


def test_an_error_of_a_guarded_function_is_counted_and_after_three_the_hooks_end():
    hooks, reasons = Hooks(), []
    hooks.failed = reasons.append
    guarded = hooks.guard(lambda: [][0])
    assert [guarded() for _ in range(MOST_FAILURES)] == [None] * MOST_FAILURES
    assert reasons == ["IndexError: list index out of range"] and hooks.off


def test_what_another_library_has_wrapped_is_not_hooked_twice():
    class Model:
        def fit(self):
            return ["fit"]

        def predict(self):
            return []

    def make(own):
        return lambda self: ["hook", *own(self)] if not hooks.off else own(self)

    hooks, undone, own, predict = Hooks(), [], Model.fit, Model.predict
    for name in ("fit", "predict"):
        hooks.replace(Model, name, make)
    hooks.undo.append(lambda: undone.append(1))
    hook = Model.fit
    Model.fit = lambda self: ["other", *hook(self)]
    hooks.restore()
    assert Model.predict is predict and undone == [1] and Model().fit() == ["other", "fit"]
    hooks.begin()
    hooks.replace(Model, "fit", make)
    assert Model().fit() == ["other", "hook", "fit"]
    Model.fit = hook
    hooks.restore()
    assert Model.fit is own and undone == [1]


@pytest.mark.parametrize(
    "result", [2.0, [2.0, 0.5], {"accuracy": 0.5, "loss": 2.0}, {"accuracy": 0.5, "d_loss": 2.0, "g_loss": 1.0}]
)
def test_the_loss_is_what_a_train_function_returns_as_its_first(result):
    assert keras_fit.loss_of(result) == 2.0


def test_an_error_of_the_scripts_signal_handler_is_not_taken_for_one_of_tfmon():
    def over(_number, _frame):
        raise TimeoutError

    hooks, own = Hooks(), signal.signal(signal.SIGALRM, over)
    try:
        with pytest.raises(TimeoutError):
            hooks.guard(lambda: signal.raise_signal(signal.SIGALRM))()
    finally:
        signal.signal(signal.SIGALRM, own)
    assert hooks.failures == 0


@pytest.mark.parametrize("reused", [False, True])
def test_nothing_is_written_to_a_descriptor_that_was_closed(tmp_path, reused):
    read, write = os.pipe()
    ends = []
    reporter = Reporter(write, end=ends.append)
    event = NotMeasured(at_ns=1, what="loss", reason="none")
    reporter.send(event)
    os.close(write)
    path = tmp_path / "own.bin"
    own = os.open(path, os.O_CREAT | os.O_WRONLY) if reused else None
    assert own in (write, None)
    reporter.send(event)
    reporter.drain(1.0)
    assert ends == [0] and os.read(read, 4096).count(b"\n") == 1
    assert not reused or path.read_bytes() == b""
    for fd in (read, own):
        if fd is not None:
            os.close(fd)


class Loader:
    """Batches that can be read again, as PyTorch's."""

    def __init__(self):
        self.epoch = 0

    def __iter__(self):
        return iter([1, 2, 3])

    def __len__(self):
        return 3


@pytest.fixture
def in_a_lane(monkeypatch):
    monkeypatch.setenv("TFMON_PIPES", "")
    monkeypatch.setattr(report, "_input_ns", 0)


def test_wrapped_batches_are_what_they_wrap(in_a_lane):
    own = Loader()
    wrapped = report.input(own)
    assert [list(wrapped), list(wrapped), len(wrapped), isinstance(wrapped, Loader)] == [
        [1, 2, 3],
        [1, 2, 3],
        3,
        True,
    ]
    wrapped.epoch = 2
    assert (own.epoch, wrapped.epoch) == (2, 2)
    with pytest.raises(TypeError, match="not an iterator"):
        next(wrapped)
    assert report.input([5, 6])[1] == 6 and not report.input([])


def test_wrapped_iterators_and_generators_stay_iterators(in_a_lane):
    numbers = report.input(number for number in range(3))
    assert next(numbers) == 0 and iter(numbers) is numbers and list(numbers) == [1, 2]
    closed = report.input(number for number in range(3))
    closed.close()
    assert list(closed) == []
    with pytest.raises(TypeError):
        len(report.input(iter([1])))


def test_the_wait_has_the_beginning_of_the_iteration_in_it(in_a_lane, monkeypatch):
    now = [0]
    monkeypatch.setattr(report, "_now_ns", lambda: now[0])

    class Slow:
        def __iter__(self):
            now[0] += 5
            return self

        def __next__(self):
            now[0] += 1
            if now[0] > 7:
                raise StopIteration
            return now[0]

    class Workers:
        def __iter__(self):
            return iter(Slow())

    assert list(report.input(Workers())) == [6, 7]
    assert report._input_ns == 8


def jax() -> SimpleNamespace:
    def grad(function):
        return lambda value: 2 * function(value)

    return SimpleNamespace(__name__="jax", grad=grad, value_and_grad=grad)


@pytest.fixture
def told(monkeypatch) -> queue.Queue[str]:
    monkeypatch.setattr(install, "ENOUGH_S", 0.01)
    monkeypatch.setattr(install, "LOADED_S", 3_600)
    monkeypatch.setattr(install, "_told", set())
    reasons: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(install, "_not_reported", reasons.put)
    return reasons


def test_gradients_by_jax_are_told_once_with_the_lines_to_add_and_stay_what_they_are(told):
    library = jax()
    patch_other(library)
    assert told.empty()
    assert [library.grad(lambda x: x)(3), library.value_and_grad(lambda x: x)(4)] == [6, 8]
    reason = told.get(timeout=PATIENCE_S)
    assert reason.startswith("JAX trains here. Add: from tfmon import report") and "report.step(" in reason
    with pytest.raises(queue.Empty):
        told.get(timeout=0.1)
