"""Training loops of every shape with the expected counts; test_loops.py runs them in a child process.

    python loop_shapes.py [NAME ...]

prints the expected and the found counts of each shape as a line of JSON.
"""

import contextlib
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

from tfmon.hooks import install
from tfmon.hooks.cause_reports import causes
from tfmon.hooks.counts import BOTH, NOTHING_READ, OTHER_ROWS
from tfmon.hooks.script_process import process
from tfmon.hooks.step_machine import StepMachine
from tfmon.hooks.tf_feed import the_feed
from tfmon.hooks.update_rounds import NO_ROUNDS
from tfmon.model.lane_events import StepDescribed

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
install.loaded(tf)

import keras  # noqa: E402 - TensorFlow is watched before it is loaded

install.loaded(keras)
watcher, hooks = process.steps, install.hooks

BATCH = 32
SHAPES: dict[str, tuple[Callable[[], None], dict[str, object]]] = {}


class EveryFourth:
    """True every fourth time, so that bundles of up to four steps are reported."""

    asked = 0

    def __len__(self):
        self.asked += 1
        return self.asked % 4 == 0


class Lane:
    """Adds up the reports of the watcher."""

    def __init__(self) -> None:
        self.steps = self.updates = self.examples = self.fed = self.waited = self.validated = self.bundled = 0
        self.unknown: dict[str, str] = {}
        self.loss: object = None
        self.progress: object = None
        self.places: list[str] = []
        self.meter = self.control = self.clock = self
        self.traces = self.waiting = EveryFourth()
        self.traces.count = 0
        self.step_ns = 0.0
        self.begin_step = self.cancel_step = self.obey = self.look = lambda *_: False
        self.all_waits_ns = lambda: 0
        self.alike_until = lambda: sys.maxsize
        self.passes = lambda reason: reason

    def end_step(self, *, steps, loss, examples, input_ns, ended_ns):
        assert input_ns >= 0
        self.waited += input_ns > 0
        self.steps += steps
        self.updates += watcher.step.updates
        self.examples += examples
        self.loss = loss

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

    def describe_step(self, text, *_):
        self.step = text
        self.places.append(StepDescribed(at_ns=0, text=text).position)

    def stop_clock(self, reason=""):
        self.steps += watcher.confirm()

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


def data(batches: int = 10) -> tf.data.Dataset:
    x = np.random.default_rng(0).random((batches * BATCH, 4), "float32")
    return tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(BATCH)


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


@shape(40, 40, unknown=["examples"], why=OTHER_ROWS)
def eager_with_half_a_batch_at_times():
    net, batches = Net(graph=False), data(20)
    for _ in range(2):
        for number, (x, y) in enumerate(batches):
            half = BATCH // 2 if number == 18 else BATCH
            net.step(x[:half], y[:half])


@shape(5, 5, 320, loss=True)
def gradients_of_two_batches_with_tapes_at_one_address():
    net, batches, kept = Net(graph=False), iter(data()), []
    variables = net.model.trainable_variables
    for x, y in batches:
        tape = tf.GradientTape()
        with tape:
            loss = net.test(x, y)
        total, address = tape.gradient(loss, variables), id(tape)
        del tape
        while id(tape := tf.GradientTape()) != address and len(kept) < 10_000:
            kept.append(tape)  # nearly always the first one has the address; at times another object took it
        with tape:
            loss = net.test(*next(batches))
        more = tape.gradient(loss, variables)
        net.optimizer.apply_gradients(
            zip([a + b for a, b in zip(total, more, strict=True)], variables, strict=True)
        )


@shape(10, 10, 0, loss=True, unknown=["examples"], why=NOTHING_READ)
def nothing_is_read():
    weight, optimizer = tf.Variable(1.0), keras.optimizers.SGD(0.01)
    for _ in range(10):
        with tf.GradientTape() as tape:
            loss = tf.square(weight - 3.0)
        optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])
    assert watcher.lane.step.endswith("an update by SGD; examples: n/a")


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


@shape(20, 20, 640, validated=2)
def validation_after_epochs():
    net, batches, held = Net(), data(), data(3)
    test = tf.function(net.test)
    for _ in range(2):
        train(net, batches)
        for x, y in held:
            test(x, y)


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


@shape(20, 20, 640, waited=19, anew=19)
def an_iterator_for_each_step():
    """Whether the batch of the first step was a look is not known."""
    net, batches = Net(), data()
    for _ in range(20):
        net.step(*next(iter(batches)))


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


@shape(41, 41, 1296, loss=True)
def train_on_batch_of_slices():
    net, x = Net(), np.ones((BATCH * 20 + BATCH // 2, 4), "float32")
    net.model.compile("sgd", "mse")
    for first in (*range(0, len(x), BATCH), *range(0, BATCH * 20, BATCH)):
        net.model.train_on_batch(x[first : first + BATCH], x[first : first + BATCH, :1])


@shape(40, 40, 1280, loss=True)
def train_on_batch_eagerly():
    net, batches = Net(), data(20)
    net.model.compile("sgd", "mse", run_eagerly=True)
    for _ in range(2):
        for x, y in batches:
            net.model.train_on_batch(x, y)


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

    install.loaded(tf_keras)
    for graph, optimizer in (
        (True, tf_keras.optimizers.Adam(0.01)),
        (False, tf_keras.optimizers.legacy.SGD(0.01)),
    ):
        train(Net(optimizer, graph, tf_keras), data())


@shape(60, 80, 1920, phases=3)
def phases():
    """Eager steps, graph steps, and rounds of two optimizers, each in another line."""
    train(Net(graph=False), data(20))
    train(Net(), data(20))
    one, two = Net(), Net()
    for x, y in data(20):
        one.step(x, y)
        two.step(x, y)


@shape(40, 40, 0, unknown=["examples"], why=NOTHING_READ, phases=2)
def a_function_of_one_state():
    """The first dimension of a vector is not a batch, and a layer's input in a loop in the graph is not one."""
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


def by_turns(*rounds):
    """Have two optimizers update by turns: each round has so many updates of the first, and of the second."""
    one, two = Net(), Net()
    x = tf.ones((BATCH, 4))
    for ones, twos in rounds:
        for net, updates in ((one, ones), (two, twos)):
            for _ in range(updates):
                net.step(x, x[:, :1])


@shape(24, 48, 768)
def eager_rounds_with_target_networks():
    """The assignments to the targets are no updates."""
    actor, critic = Net(graph=False), Net(graph=False)
    targets = [tf.Variable(weight) for weight in actor.model.trainable_variables]
    for x, y in data(24):
        actor.step(x, y)
        critic.step(x, y)
        for target, weight in zip(targets, actor.model.trainable_variables, strict=True):
            target.assign(0.9 * target + 0.1 * weight)


NO_ORDER = {"unknown": ["examples", "loss", "steps"], "why": NO_ROUNDS}


@shape(None, **NO_ORDER)
def rounds_whose_first_optimizer_stops_early():
    by_turns((1, 4), (3, 4), (2, 4), (4, 4))


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


@shape(10, 10, 320)
def forked_in_the_middle():
    os.register_at_fork(after_in_child=watcher.retire)
    net = Net()
    for number, (x, y) in enumerate(data()):
        net.step(x, y)
        if number == 4:
            child = os.fork()
            if not child:
                install._not_reported = lambda _reason: os._exit(2)
                install._unseen()
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
        StepMachine.__init__(watcher, lambda lane=lane: lane)
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
