"""What tfmon does in a script fails without its noticing; what a script uses, and who trains there, is known."""

from __future__ import annotations

import _thread
import os
import queue
import signal
import tempfile
import threading
from types import SimpleNamespace

import pytest
from support.waiting import PATIENCE_S, wait_for

from tfmon import report
from tfmon.model import lane_clock
from tfmon.model.script_events import NotMeasured
from tfmon.model.threads import start_hidden
from tfmon.script import keras_fit, libraries, uses, watching
from tfmon.script.causes import causes
from tfmon.script.hooking import MOST_FAILURES, Hooks
from tfmon.script.pipeline import Freed
from tfmon.script.rounds import Updater
from tfmon.script.steps import StepWatcher
from tfmon.script.watching import watch_other
from tfmon.trainer.channel import Reporter


@pytest.mark.parametrize(
    ("more", "said"), [(1, "Adam has counted 1 more update than calls"), (-2, "2 fewer updates than calls")]
)
def test_updates_that_were_not_seen_agree_in_number(more, said):
    assert said in Updater((), "Adam").differs(more)
    lane, reasons = SimpleNamespace(cannot_know=lambda what, reason: reasons.append(reason)), []
    updater, model = SimpleNamespace(missed=lambda: abs(more), every=1), SimpleNamespace(train_function=None)
    keras_fit.Watcher._watch_calls(
        SimpleNamespace(_lane=lane, _epoch=1, _updater=updater, _model=lambda: model, _timed=None)
    )
    counted = {1: "1 update", 2: "2 updates"}[abs(more)]
    assert reasons == [keras_fit.MADE_ANEW.format(counted)]


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


def test_a_hidden_thread_is_not_found():
    go, idents, ends = threading.Event(), [], []
    start_hidden(
        "tfmon-test", lambda: (idents.append(_thread.get_ident()), go.wait(), ends.append(1)), ends.append
    )
    wait_for(lambda: idents)
    assert idents[0] not in [thread.ident for thread in threading.enumerate()]
    go.set()
    wait_for(lambda: ends == [1])


def test_keras_on_torch_has_tensorflow_look_for_no_device(monkeypatch):
    def look(_kind):
        raise AssertionError("this starts CUDA")

    def no_gpu():
        return False

    tensorflow = SimpleNamespace(config=SimpleNamespace(get_visible_devices=look), __version__="2")
    torch = SimpleNamespace(cuda=SimpleNamespace(is_available=no_gpu), __version__="2")
    context = SimpleNamespace(_context=SimpleNamespace(_physical_devices=None))
    for name, module in (
        ("tensorflow", tensorflow),
        ("torch", torch),
        ("tensorflow.python.eager.context", context),
    ):
        monkeypatch.setitem(libraries.sys.modules, name, module)
    assert libraries.find("cpu")[1] == ""
    assert libraries.gpu_memory("gpu") == (None, None)


# ---------------------------------------------------------------- report.input


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


# ---------------------------------------------------------------- what a script uses


def test_a_temporary_file_is_no_use_of_its_folder(tmp_path, monkeypatch):
    for name, empty in (("_seen", set()), ("_pending", {})):
        monkeypatch.setattr(uses, name, empty)
    with tempfile.NamedTemporaryFile(dir=tmp_path) as file:
        uses.hear("open", (str(tmp_path), "w+b", 2))
        uses.hear("open", (file.name, "w", 2))
    assert uses.take() == {file.name: "w"}


# ---------------------------------------------------------------- JAX and PyTorch


def jax() -> SimpleNamespace:
    def grad(function):
        return lambda value: 2 * function(value)

    return SimpleNamespace(__name__="jax", grad=grad, value_and_grad=grad)


@pytest.fixture
def told(monkeypatch) -> queue.Queue[str]:
    monkeypatch.setattr(watching, "ENOUGH_S", 0.01)
    monkeypatch.setattr(watching, "LOADED_S", 3_600)
    monkeypatch.setattr(watching, "_told", set())
    reasons: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(watching, "_not_reported", reasons.put)
    return reasons


def test_gradients_by_jax_are_told_once_with_the_lines_to_add_and_stay_what_they_are(told):
    library = jax()
    watch_other(library)
    assert told.empty()
    assert [library.grad(lambda x: x)(3), library.value_and_grad(lambda x: x)(4)] == [6, 8]
    reason = told.get(timeout=PATIENCE_S)
    assert reason.startswith("JAX trains here. Add: from tfmon import report") and "report.step(" in reason
    with pytest.raises(queue.Empty):
        told.get(timeout=0.1)


def test_jax_that_is_loaded_and_reports_nothing_is_told(told, monkeypatch):
    monkeypatch.setattr(watching, "LOADED_S", 0.01)
    watch_other(jax())
    assert told.get(timeout=PATIENCE_S).startswith(
        "JAX is loaded, and nothing tells tfmon of its steps. Add: from tfmon"
    )


def test_a_thread_that_only_predicts_beside_the_loop_does_not_touch_the_counts_of_its_optimizers():
    """It set the loop's watcher aside before that had its first step, and came back while it trained."""
    watcher, rebased = StepWatcher(lambda: None), []
    watcher.rounds.updaters.append(SimpleNamespace(rebase=lambda: rebased.append(1)))
    set_aside, goes_on = threading.Event(), threading.Event()

    def predict() -> None:
        watcher.step_aside()
        set_aside.set()
        goes_on.wait()
        watcher.come_back()

    other = threading.Thread(target=predict)
    other.start()
    set_aside.wait()
    watcher._thread = threading.get_ident()
    goes_on.set()
    other.join()
    assert rebased == []
    watcher._asides[threading.get_ident()] = 1
    watcher.come_back()
    assert rebased == [1]


def test_what_tensorflow_takes_to_free_an_iterator_has_a_name_of_its_own(monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr(lane_clock, "time", SimpleNamespace(monotonic_ns=lambda: round(now_s[0] * 1e9)))
    causes.begin()

    class Resource:
        def __del__(self):
            now_s[0] += 0.7  # until the autotuner wakes up

    class Iterator:
        def __init__(self):
            self.resource = Resource()
            self.freed = Freed(self)

    now_s[0] = 5.0
    iterator = Iterator()
    now_s[0] = 9.0
    del iterator
    (seen,) = causes.news(all_of_them=True)
    assert (seen.cause, seen.cost_ns / 1e9) == ("iterator_freed", pytest.approx(0.7))
    causes.begin()
