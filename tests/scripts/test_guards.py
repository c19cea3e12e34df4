"""Failures of tfmon inside a script stay invisible to the script."""

import queue
import re
import signal
from types import SimpleNamespace

import pytest
from support.waiting import PATIENCE_S

from tfmon import report
from tfmon.hooks import install, keras_fit
from tfmon.hooks.install import patch_other
from tfmon.hooks.patches import Hooks


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


def test_a_prediction_that_fails_in_its_batch_has_computed_nothing():
    call = keras_fit.FitCall(None, None, Hooks(), "predict", shown=False)
    call.computes(begins=True)
    assert call.computing_ns == 0


def test_the_first_failure_is_reported_because_a_step_may_be_missing(monkeypatch):
    reported = []
    monkeypatch.setattr(
        install.process, "joined", lambda: SimpleNamespace(cannot_know=lambda *it: reported.append(it))
    )
    hooks = Hooks()
    hooks.reset = install.hooks.reset
    hooks.guard(lambda: {}["missing"])()
    assert hooks.failures == 1 and not hooks.off
    ((what, text),) = reported
    place = r"tfmon\.hooks\.patches line \d+"
    assert what == "failed hooks"
    assert re.fullmatch(
        rf"an error of tfmon in the script \(KeyError: 'missing', {place}\): a step may be missing", text
    )


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


class Loader:
    """Batches that can be read again, as PyTorch's, with a clock that moves as they are read."""

    def __init__(self):
        self.epoch = self.now_ns = 0

    def __iter__(self):
        self.now_ns += 5
        for number in (1, 2, 3):
            self.now_ns += 1
            yield number

    def __len__(self):
        return 3


@pytest.fixture
def in_a_lane(monkeypatch):
    monkeypatch.setenv("TFMON_PIPES", "")
    monkeypatch.setattr(report, "_input_ns", 0)


def test_wrapped_batches_are_what_they_wrap_and_the_wait_has_the_beginning_in_it(in_a_lane, monkeypatch):
    own = Loader()
    monkeypatch.setattr(report, "_now_ns", lambda: own.now_ns)
    wrapped = report.input(own)
    assert list(wrapped) == list(wrapped) == [1, 2, 3]
    assert len(wrapped) == 3 and isinstance(wrapped, Loader)
    assert report._input_ns == 16
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


def test_gradients_by_jax_are_told_once_with_the_lines_to_add_and_stay_what_they_are(monkeypatch):
    reasons: queue.Queue[str] = queue.Queue()
    for name, value in {
        "ENOUGH_S": 0.01,
        "LOADED_S": 3_600,
        "_reported": set(),
        "_not_reported": reasons.put,
    }.items():
        monkeypatch.setattr(install, name, value)

    def grad(function):
        return lambda value: 2 * function(value)

    library = SimpleNamespace(__name__="jax", grad=grad, value_and_grad=grad)
    patch_other(library)
    assert reasons.empty()
    assert [library.grad(lambda x: x)(3), library.value_and_grad(lambda x: x)(4)] == [6, 8]
    reason = reasons.get(timeout=PATIENCE_S)
    assert reason.startswith("JAX trains here. Add: from tfmon import report") and "report.step(" in reason
    with pytest.raises(queue.Empty):
        reasons.get(timeout=0.1)
