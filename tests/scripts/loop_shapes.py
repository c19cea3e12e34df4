"""Training loops of every shape, each with what it must be counted as; run by test_loops.py in a child process.

    python loop_shapes.py [NAME ...]

prints for each what is expected and what was counted, as a line of JSON.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf

from tfmon.model.script_events import StepDescribed
from tfmon.script import watched, watching
from tfmon.script.causes import causes
from tfmon.script.rounds import NO_ROUNDS
from tfmon.script.sources import BOTH, NO_ROWS, NOT_COUNTED, NOT_SEEN, NOTHING_READ, OTHER_ROWS
from tfmon.script.steps import StepWatcher
from tfmon.script.tf_feed import the_feed

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
watching.loaded(tf)

import keras  # noqa: E402 - TensorFlow is watched before it is loaded

watching.loaded(keras)
watcher, hooks = watched.watcher, watching.hooks

BATCH = 32
SHAPES: dict[str, tuple[Callable[[], None], dict[str, object]]] = {}


class EveryFourth:
    """Is true the fourth time, so that bundles of up to four steps are told."""

    def __init__(self):
        self.asked = 0

    def __len__(self):
        self.asked += 1
        return self.asked % 4 == 0


class Lane:
    """Adds up what the watcher reports."""

    def __init__(self) -> None:
        self.steps = self.updates = self.examples = self.cancelled = self.fed = self.waited = 0
        self.unknown: dict[str, str] = {}
        self.loss: object = None
        self.progress: object = None
        self.validated = self.bundled = 0
        self.places: list[str] = []
        self.meter = self.control = self.clock = self
        self.traces = self.waiting = EveryFourth()
        self.traces.count = 0
        self.step_ns = 0.0

    def all_waits_ns(self):
        return 0

    def begin_step(self, at_ns=None):
        return False

    def end_step(self, *, steps, loss, examples, input_ns, ended_ns):
        assert input_ns >= 0
        self.waited += input_ns > 0
        self.steps += steps
        self.updates += watcher.step.updates
        self.examples += examples
        self.loss = loss

    def alike_until(self):
        return sys.maxsize

    def end_steps(self, ends_ns, *, loss, examples, input_ns):
        assert input_ns >= 0
        assert sorted(ends_ns) == ends_ns
        self.bundled += len(ends_ns)
        self.steps += len(ends_ns)
        self.updates += len(ends_ns)
        self.examples += examples
        self.loss = loss

    def take_back(self, steps, examples):
        self.steps -= steps
        self.examples -= examples

    def tell_step(self, text, *_):
        self.step = text
        self.places.append(StepDescribed(at_ns=0, text=text).place)

    def cancel_step(self):
        self.cancelled += 1

    def passes(self, reason):
        return reason

    def stop_clock(self, reason=""):
        self.steps += watcher.confirm()

    def obey(self):
        pass

    def report_progress(self, progress):
        self.validated += progress().doing == "validation"
        self.progress = progress

    def take_feed(self):
        self.examples += the_feed().totals()[1] - self.fed

    def skip_feed(self):
        self.fed = the_feed().totals()[1]

    def claims_thread(self):
        self.unknown["threads"] = "another thread"

    def cannot_know(self, what, reason):
        self.unknown[what] = reason


def shape(steps: int | None, updates: int | None = None, examples: int | None = None, **more):
    """Declare a shape, and what must be counted of it."""

    def declare(run):
        SHAPES[run.__name__] = run, {"steps": steps, "updates": updates, "examples": examples, **more}
        return run

    return declare


def data(batches: int = 10, batch: int = BATCH) -> tf.data.Dataset:
    x = np.random.default_rng(0).random((batches * batch, 4), "float32")
    return tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(batch)


class Net:
    """A small model, its optimizer, and a step in a graph or eagerly."""

    def __init__(self, optimizer=None, graph=True, kind=keras, **how):
        self.model = kind.Sequential([kind.layers.Input((4,)), kind.layers.Dense(1)])
        self.optimizer = optimizer or kind.optimizers.SGD(0.01)
        self.step = tf.function(self.eager, **how) if graph else self.eager

    def gradients(self, x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.model(x) - y))
        return loss, tape.gradient(loss, self.model.trainable_variables)

    def eager(self, x, y):
        loss, gradients = self.gradients(x, y)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))
        return loss

    def test(self, x, y):
        return tf.reduce_mean(tf.square(self.model(x) - y))


def train(net, batches, epochs=1):
    for _ in range(epochs):
        for x, y in batches:
            net.step(x, y)


@shape(20, 20, 640, loss=True, epochs=2, epoch=2)
def graph():
    train(Net(), data(), epochs=2)


@shape(20, 20, 640, loss=True)
def eager():
    train(Net(graph=False), data(), epochs=2)


@shape(9, 9, 288, loss=True)
def an_update_that_raises_after_it_was_made():
    net = Net()

    @tf.function
    def step(x, y):
        loss = net.eager(x, y)
        tf.debugging.assert_less(tf.cast(net.optimizer.iterations.value, tf.int32), 10)
        return loss

    with contextlib.suppress(tf.errors.InvalidArgumentError):
        for x, y in data():
            step(x, y)


@shape(54, 54, 1920)
def eager_with_gradients_that_are_let_go():
    net, batches = Net(graph=False), data(30)
    for _ in range(2):
        for number, (x, y) in enumerate(batches):
            (net.gradients if number % 10 == 5 else net.step)(x, y)


@shape(40, 40, unknown=["examples"], why=OTHER_ROWS)
def eager_with_half_a_batch_at_times():
    net, batches = Net(graph=False), data(20)
    for _ in range(2):
        for number, (x, y) in enumerate(batches):
            half = BATCH // 2 if number == 18 else BATCH
            net.step(x[:half], y[:half])


@shape(39, 39, 1280)
def eager_with_an_update_that_fails():
    net, batches = Net(graph=False), data(20)
    for _ in range(2):
        for number, (x, y) in enumerate(batches):
            _, gradients = net.gradients(x, y)
            if number == 18 and net.optimizer.iterations > 20:
                with contextlib.suppress(ValueError):
                    net.optimizer.apply_gradients([])
                continue
            net.optimizer.apply_gradients(zip(gradients, net.model.trainable_variables, strict=True))


@shape(10, 10, 0, loss=True, unknown=["examples"], why=NOTHING_READ)
def nothing_is_read():
    weight, optimizer = tf.Variable(1.0), keras.optimizers.SGD(0.01)
    for _ in range(10):
        with tf.GradientTape() as tape:
            loss = tf.square(weight - 3.0)
        optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])
    assert watcher.lane.step.endswith("an update by SGD; examples: n/a")


@shape(40, 40, 1280, unknown=["updates by hand"])
def eager_by_hand_after_an_optimizer():
    net, batches = Net(graph=False), data(20)
    for x, y in batches.repeat(2):
        net.step(x, y)
    for x, y in batches:
        _, gradients = net.gradients(x, y)
        for variable, gradient in zip(net.model.trainable_variables, gradients, strict=True):
            variable.value.assign_sub(0.01 * gradient)


@shape(38, 38, unknown=["examples", "loss", "steps", "updates by hand"], why=BOTH)
def eager_with_an_update_by_hand_at_times():
    net, batches = Net(graph=False), data(20)
    kernel = net.model.trainable_variables[0].value
    for _ in range(2):
        for number, (x, y) in enumerate(batches):
            if number == 18:
                with tf.GradientTape() as tape:
                    loss = net.test(x, y)
                kernel.assign_sub(0.01 * tape.gradient(loss, [kernel])[0])
            else:
                net.step(x, y)


@shape(20, 20, 0, loss=True, unknown=["examples"], why=NOT_SEEN)
def tape_around_a_function():
    net, batches = Net(graph=False), data()
    net.test = tf.function(net.test)
    for _ in range(2):
        for x, y in batches:
            with tf.GradientTape() as tape:
                loss = net.test(x, y)
            gradients = tape.gradient(loss, net.model.trainable_variables)
            net.optimizer.apply_gradients(zip(gradients, net.model.trainable_variables, strict=True))


@shape(20, unknown=["examples", "loss"])
def an_update_in_a_branch_by_an_optimizer_that_has_gone():
    def train():
        net = Net()
        step = tf.function(lambda x, y, new: tf.cond(new, lambda: net.eager(x, y), lambda: tf.constant(0.0)))
        for _ in range(2):
            for x, y in data():
                step(x, y, tf.constant(True))
            step(x, y, tf.constant(False))

    train()
    gc.collect()


@shape(20, 20, 640, validated=2)
def validation_after_epochs():
    net, batches, held = Net(), data(), data(3)
    test = tf.function(net.test)
    for _ in range(2):
        train(net, batches)
        for x, y in held:
            test(x, y)


@shape(20, 20, 640)
def validation_within_an_epoch():
    net, batches, held = Net(), data(), data(9)
    for _ in range(2):
        for number, (x, y) in enumerate(batches):
            net.step(x, y)
            if number % 4 == 0:
                for place, (x, y) in enumerate(held):
                    net.test(x, y)
                    if place == 2:
                        break


@shape(10, 10, 320)
def gan_in_one_function():
    one, two = Net(graph=False), Net(graph=False)

    @tf.function
    def both(x, y):
        return one.step(x, y) + two.step(x, y)

    for x, y in data():
        both(x, y)


@shape(30, 30, 960)
def constants():
    net, (x, y) = Net(), next(iter(data()))
    for _ in range(30):
        net.step(x, y)


def first(batches):
    return next(iter(batches))


@shape(20, 20, 640, waited=19, anew=19)
def an_iterator_for_each_step():
    """Whether the batch of the first step was a look is not known."""
    net, batches = Net(), data()
    for _ in range(20):
        net.step(*first(batches))


@shape(20, 20, 640, waited=19, anew=19)
def a_pipeline_for_each_step():
    net, batches = Net(), data()
    for _ in range(20):
        ((x, y),) = list(batches.shuffle(9).take(1))
        net.step(x, y)


@shape(20, 40, 640, waited=18)
def two_iterators_for_each_round():
    one, two, real, fake = Net(), Net(), data(), data()
    for _ in range(20):
        one.step(*first(real))
        two.step(*first(fake))


@shape(20, 20, 640, waited=19, anew=19)
def an_iterator_for_each_step_and_each_validation():
    net, (held, batches) = Net(), (data().take(2), data().skip(2))
    for number in range(20):
        net.step(*first(batches))
        if number % 5 == 4:
            net.test(*first(held))


@shape(20, 20, 640)
def next_in_the_function():
    net, batches, held = Net(graph=False), iter(data().repeat()), iter(data(4, 16).repeat())

    @tf.function
    def validate(batches):
        return net.test(*next(batches))

    @tf.function
    def step(batches):
        return net.step(*next(batches))

    for _ in range(20):
        step(batches)
        validate(held)


@shape(20, 20, 640)
def mirrored_strategy():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        net = Net(graph=False)
    batches = strategy.experimental_distribute_dataset(data())

    @tf.function
    def step(x, y):
        return strategy.reduce("MEAN", strategy.run(net.step, (x, y)), axis=None)

    for _ in range(2):
        for x, y in batches:
            step(x, y)


@shape(20, 20, 640, loss=True)
def train_on_batch():
    net, held = Net(), data(2)
    net.model.compile("sgd", "mse")
    for _ in range(2):
        for x, y in data():
            net.model.train_on_batch(x, y)
        for x, y in held:
            net.model.test_on_batch(x, y)


@shape(40, 40, unknown=["examples"], why=OTHER_ROWS)
def train_on_batch_with_half_a_batch_at_times():
    net, batches = Net(), data(20)
    net.model.compile("sgd", "mse")
    for _ in range(2):
        for number, (x, y) in enumerate(batches):
            half = BATCH // 2 if number == 18 else BATCH
            net.model.train_on_batch(x[:half], y[:half])


@shape(41, 41, 1296, loss=True)
def train_on_batch_of_slices():
    net, x = Net(), np.ones((BATCH * 20 + BATCH // 2, 4), "float32")
    net.model.compile("sgd", "mse")
    for first in (*range(0, len(x), BATCH), *range(0, BATCH * 20, BATCH)):
        net.model.train_on_batch(x[first : first + BATCH], x[first : first + BATCH, :1])


@shape(30, 30, 960)
def slices_with_an_error_and_a_trace_at_times():
    net, x = Net(), tf.ones((BATCH, 4))
    for number in range(30):
        if number == 20:
            with contextlib.suppress(tf.errors.InvalidArgumentError, ValueError):
                net.step(x, tf.ones((BATCH, 7, 3)))
        if number == 25:
            tf.function(lambda value: net.step(value, value[:, :1])).get_concrete_function(x)
        net.step(x, x[:, :1])


@shape(40, 40, 1280, loss=True)
def train_on_batch_eagerly():
    net, batches = Net(), data(20)
    net.model.compile("sgd", "mse", run_eagerly=True)
    for _ in range(2):
        for x, y in batches:
            net.model.train_on_batch(x, y)


@shape(10, 10, 320)
def concrete_function():
    net, batches = Net(), data()
    x, y = next(iter(batches))
    step = net.step.get_concrete_function(x, y)
    for x, y in batches:
        step(x, y)


@shape(0)
def fit_and_evaluate():
    net = Net()
    net.model.compile("sgd", "mse", run_eagerly=True)
    net.model.fit(data(), epochs=2, verbose=0)
    net.model.evaluate(data(), verbose=0)
    net.model.predict(data(), verbose=0)


@shape(10, 10, 320)
def a_loop_after_fit_that_evaluates():
    net = Net()
    net.model.compile(net.optimizer, "mse")
    net.model.fit(data(), verbose=0)
    for number, (x, y) in enumerate(data()):
        net.step(x, y)
        if number == 4:
            net.model.evaluate(data(), verbose=0)


@shape(10, 20, 320)
def two_datasets_with_an_update_each():
    one, two = Net(), Net()
    others = iter(data(20))
    for x, y in data():
        one.step(x, y)
        two.step(*next(others))


@shape(10, 10, 320)
def legacy_optimizer_of_tensorflow():
    weights = tf.Variable(tf.ones((4, 1)))
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.01)
    for x, y in data():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(x @ weights - y))
        optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])


@shape(10, 10, 320)
def in_a_second_thread():
    next(iter(data()))
    thread = threading.Thread(target=gan_in_one_function)
    thread.start()
    for _ in data():
        pass
    thread.join()


@shape(20, 20, 640, loss=True)
def tf_keras_loop():
    import tf_keras

    watching.loaded(tf_keras)
    for graph, optimizer in (
        (True, tf_keras.optimizers.Adam(0.01)),
        (False, tf_keras.optimizers.legacy.SGD(0.01)),
    ):
        train(Net(optimizer, graph, tf_keras), data())


@shape(10, 10, 320)
def a_step_that_returns_its_predictions_too():
    net = Net()

    @tf.function
    def step(x, y):
        return net.model(x), net.eager(x, y)

    for x, y in data():
        step(x, y)
        kept = watcher.bundle.loss
        assert kept is None or kept.shape == (), "all but the loss is let go"


@shape(60, 80, 1920, phases=3)
def phases():
    """Eager steps, those of a graph, and rounds of two optimizers, each in a line of its own."""
    train(Net(graph=False), data(20))
    train(Net(), data(20))
    one, two = Net(), Net()
    for x, y in data(20):
        one.step(x, y)
        two.step(x, y)


@shape(40, 40, 0, unknown=["examples"], why=NOTHING_READ, phases=2)
def a_function_of_one_state():
    """The first dimension of a vector is no batch, nor is the one that a layer is given in a loop in the graph."""
    vector, looped = Net(graph=False), Net(graph=False)

    @tf.function
    def step(state):
        return vector.step(state[None], tf.ones((1, 1)))

    @tf.function
    def episode(state):
        with tf.GradientTape() as tape:
            loss = tf.constant(0.0)
            for _ in tf.range(3):
                loss += tf.reduce_sum(looped.model(state))
        weights = looped.model.trainable_variables
        looped.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    for _ in range(20):
        step(tf.ones(4))
    for _ in range(20):
        episode(tf.ones((1, 4)))


@shape(10, 10, 0, unknown=["examples"], why=NO_ROWS)
def batches_that_are_transposed():
    net = Net()
    for x, y in data().map(lambda x, y: (tf.transpose(x), y)):
        net.step(tf.transpose(x), y)


@shape(None, unknown=["examples", "loss", "steps"], why=NOT_COUNTED)
def a_loop_in_a_graph_whose_optimizer_does_not_count():
    net = Net(tf.compat.v1.train.GradientDescentOptimizer(0.01), graph=False)
    weights = [weight.value for weight in net.model.trainable_variables]

    @tf.function
    def step(x, y):
        for _ in tf.range(4):
            net.optimizer.apply_gradients(zip(net.gradients(x, y)[1], weights, strict=True))

    for x, y in data():
        step(x, y)


@shape(20, 20, 20)
def single_examples():
    net = Net()
    for x, y in data(1).unbatch().take(20):
        net.step(x[None], y[None])


def by_turns(*rounds):
    """Have two optimizers update by turns: each round has so many updates of the first, and of the second."""
    one, two = Net(), Net()
    x = tf.ones((BATCH, 4))
    for ones, twos in rounds:
        for net, updates in ((one, ones), (two, twos)):
            for _ in range(updates):
                net.step(x, x[:, :1])


@shape(8, 48, 256)
def rounds_of_five_and_one():
    by_turns(*[(5, 1)] * 8)


NO_ORDER = {"unknown": ["examples", "loss", "steps"], "why": NO_ROUNDS}


@shape(None, **NO_ORDER)
def rounds_whose_first_optimizer_stops_early():
    by_turns((1, 4), (3, 4), (2, 4), (4, 4))


@shape(None, **NO_ORDER, phases=2)
def rounds_that_become_shorter_after_long_ones():
    by_turns((20, 1), (20, 1), (3, 1), (3, 1), (3, 1))


@shape(None, **NO_ORDER, phases=2)
def rounds_after_one_of_the_optimizers_has_trained_alone():
    by_turns((20, 0), *[(3, 1)] * 4)


@shape(None, **NO_ORDER)
def rounds_that_another_optimizer_joins():
    by_turns(*[(1, 1)] * 4)
    one, two, three = Net(), Net(), Net()
    for number, (x, y) in enumerate(data()):
        one.step(x, y)
        two.step(x, y)
        if number > 4:
            three.step(x, y)


@shape(30, 30, 960)
def a_checkpoint_restored_and_counters_assigned():
    for graph in (True, False):
        net = Net(graph=graph)
        checkpoint = tf.train.Checkpoint(optimizer=net.optimizer)
        for number, (x, y) in enumerate(data(15)):
            net.step(x, y)
            if number == 3:
                kept = checkpoint.save(tempfile.mkdtemp() + "/kept")
            if number == 7:
                checkpoint.restore(kept)
            if number == 11:
                net.optimizer.iterations.assign(0 if graph else 2)


@shape(20, 40, 640)
def counters_assigned_between_rounds():
    one, two = Net(), Net()
    for number, (x, y) in enumerate(data(20)):
        one.step(x, y)
        two.step(x, y)
        if number == 9:
            one.optimizer.iterations.assign(500)
            two.optimizer.iterations.assign(0)


@shape(40, unknown=["examples", "loss"])
def a_counter_assigned_between_loops_in_a_graph():
    net = Net(graph=False)

    @tf.function
    def epoch(batches):
        for x, y in batches:
            net.step(x, y)

    for to in (0, 0, 100, 3):
        epoch(data())
        net.optimizer.iterations.assign(to)


@shape(10, 10, 320)
def forked_in_the_middle():
    os.register_at_fork(after_in_child=watcher.retire)
    net = Net()
    for number, (x, y) in enumerate(data()):
        net.step(x, y)
        if number == 4:
            child = os.fork()
            if not child:
                watching._not_reported = lambda _reason: os._exit(2)
                watching._unseen()
                os._exit(0 if watcher.off and watcher.pull_begins(iter(())) is None else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@shape(8, failures=3)
def hooks_that_fail():
    """The last shape: the hooks are gone after it."""
    net = Net()
    keep, watcher.pull_ends = watcher.pull_ends, None
    for x, y in data(4):
        net.step(x, y)
        net.eager(x, y)
    watcher.pull_ends = keep
    assert int(net.optimizer.iterations) == 8
    assert hooks.off
    assert not hasattr(keras.Model.fit, "__wrapped__") or "tfmon" not in keras.Model.fit.__code__.co_filename
    assert "tfmon" not in tf.Variable.assign.__code__.co_filename


def main() -> None:
    for name in sys.argv[1:] or SHAPES:
        run, expected = SHAPES[name]
        lane = Lane()
        causes.begin()
        lane.fed = the_feed().totals()[1]
        StepWatcher.__init__(watcher, lambda lane=lane: lane)
        run()
        watcher.finish()
        lane.take_feed()
        found = {
            "steps": lane.steps,
            "updates": lane.updates,
            "examples": lane.examples,
            "loss": lane.loss is not None,
            "unknown": sorted(lane.unknown),
            "why": lane.unknown.get("examples", ""),
            "validated": lane.validated,
            "waited": lane.waited,
            "anew": sum(seen.count for seen in causes.news(all_of_them=True) if seen.cause == "iterator_anew"),
            "epoch": lane.progress().epoch if lane.progress is not None else 0,
            "epochs": lane.progress().epochs_done if lane.progress is not None else 0,
            "failures": hooks.failures,
            "bundled": lane.bundled,
            "phases": len(lane.places),
        }
        print(json.dumps([name, expected, found]), flush=True)


if __name__ == "__main__":
    main()
