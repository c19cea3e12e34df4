"""Training loops drawn from a grammar, each with its own count; run by test_loops.py in a child process.

    python many_loops.py FIRST EVERY COUNT

draws the same COUNT loops each time, and runs every EVERYth of them from FIRST on, each in a separate lane. It
prints the true counts and the monitor's figures of each as a line of JSON. A step is one round of updates of all
optimizers; its examples are the rows of its gradients, and its loss is the last one.
"""

import gc
import itertools
import json
import os
import random
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf

from tfmon.hooks import install
from tfmon.hooks.optimizers import LoopOptimizers
from tfmon.hooks.script_lane import Lane
from tfmon.hooks.script_process import process
from tfmon.hooks.step_machine import StepMachine
from tfmon.model.codec import decode_event
from tfmon.model.lane import Lane as LaneOfMonitor
from tfmon.model.lane_state import ScriptFacts
from tfmon.model.spec import LaneSpec
from tfmon.system import lane_clock
from tfmon.system.lane_pipes import LanePipes

install.loaded(tf)

import keras  # noqa: E402 - TensorFlow is watched before it is loaded

install.loaded(keras)

EPOCHS, BATCH, REPEATS = 2, 16, 20
X = np.random.default_rng(0).random((70, 4)).astype("float32")
Y = X.sum(1, keepdims=True)
GRAMMAR: dict[str, dict[str, int]] = {
    "source": {
        "dataset": 6, "repeat": 3, "generator": 2, "slices": 5, "list": 2, "islice": 2, "cycle": 1, "enumerate": 2,
        "dict": 2, "by turns": 2, "zipped": 2, "numpy": 2, "look": 2, "ahead": 2, "unlabelled": 1, "take": 2,
        "unbatched": 1, "in graph": 3, "shuffled": 2,
    },
    "rows": {"even": 2, "rest": 3, "drop": 1},
    "function": {
        "graph": 8, "eager": 3, "xla": 1, "gradients": 2, "split": 2, "on batch": 2, "epoch": 1, "reduce": 1,
        "returns none": 1, "returns more": 2, "nested": 1,
    },
    "optimizer": {
        "sgd": 5, "adam": 3, "hand": 2, "tf.gradients": 1, "raw": 1, "scaled": 1, "gan": 3, "critic": 1,
        "accumulates": 1, "v1": 1,
    },
    "updates": {"one": 8, "accumulated": 2, "repeated": 2, "guarded": 1},
    "validation": {"none": 5, "after": 3, "flag": 2, "tensor flag": 1, "within": 2, "predicts": 1, "norm": 1},
}  # fmt: skip
"""The parts of a loop, and how often each is drawn."""
ALWAYS = (
    "dict · even · graph · sgd · one · tensor flag",
    "dataset · even · graph · sgd · one · flag",
    "slices · even · graph · sgd · one · within",
    "repeat · even · graph · sgd · repeated · within",
    "dataset · even · gradients · sgd · accumulated · none",
    "dataset · even · epoch · sgd · one · none",
    "dataset · even · eager · hand · one · none",
    "dataset · even · returns none · sgd · one · none",
    "dataset · even · graph · scaled · one · none",
    "take · even · graph · sgd · one · none",
)
"""Loops of every part: the common ones, and a loop that was once counted wrong."""


def draw(choose: random.Random) -> dict[str, str]:
    while True:
        loop = {part: choose.choices(list(of), list(of.values()))[0] for part, of in GRAMMAR.items()}
        if possible(**loop):
            return loop


def possible(source, rows, function, optimizer, updates, validation) -> bool:
    whole = function in ("epoch", "reduce")
    alone = source in ("in graph", "unlabelled") or whole
    return not (
        (whole and (source != "dataset" or optimizer in ("critic", "hand", "v1")))
        or (alone and (updates != "one" or validation in ("tensor flag", "flag")))
        or (source == "in graph" and function not in ("graph", "returns more"))
        or (source in ("unlabelled", "in graph") and optimizer in ("accumulates", "gan", "critic"))
        or (source == "unlabelled" and function not in ("graph", "eager"))
        or (function == "on batch" and optimizer not in ("sgd", "adam", "gan", "critic"))
        or (function in ("eager", "reduce", "split", "gradients") and optimizer in ("tf.gradients", "v1"))
        or (
            function in ("split", "gradients", "xla", "nested") and optimizer in ("scaled", "gan", "critic", "raw")
        )
        or (updates == "accumulated" and (function not in ("eager", "gradients", "split")))
        or (updates == "accumulated" and optimizer in ("gan", "critic", "scaled", "accumulates", "raw"))
        or (validation == "tensor flag" and (function != "graph" or optimizer not in ("sgd", "adam")))
        or (validation == "flag" and function not in ("graph", "xla"))
        or (optimizer in ("hand", "raw") and validation == "norm")
        or (source == "unbatched" and updates != "one")
    )


class Truth:
    steps = examples = 0
    loss: Any = None

    def count(self, rows: int, loss: object, steps: int = 1) -> None:
        self.steps += steps
        self.examples += rows
        self.loss = loss


class Net:
    """A model, and what updates it once."""

    def __init__(self, optimizer: str) -> None:
        self.kind = optimizer
        self.model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        kinds = {
            "adam": lambda: keras.optimizers.Adam(0.01),
            "scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01)),
            "accumulates": lambda: keras.optimizers.SGD(0.01, gradient_accumulation_steps=2),
            "v1": lambda: tf.compat.v1.train.GradientDescentOptimizer(0.01),
        }
        self.optimizer: Any = None
        if optimizer not in ("hand", "tf.gradients", "raw"):
            self.optimizer = kinds.get(optimizer, lambda: keras.optimizers.SGD(0.01))()
        if hasattr(self.optimizer, "build"):
            self.optimizer.build(self.model.trainable_variables)
        self.weights = [getattr(variable, "_value", variable) for variable in self.model.trainable_variables]

    def loss(self, x, y):
        return tf.reduce_mean(tf.square(self.model(x) - y))

    def gradients(self, x, y):
        if self.kind == "tf.gradients":
            loss = self.loss(x, y)
            return loss, tf.gradients(loss, self.weights)
        with tf.GradientTape() as tape:
            loss = self.loss(x, y)
            target = self.optimizer.scale_loss(loss) if self.kind == "scaled" else loss
        return loss, tape.gradient(target, self.weights)

    def apply(self, gradients):
        if self.kind == "raw":
            for weight, gradient in zip(self.weights, gradients, strict=True):
                tf.raw_ops.ResourceApplyGradientDescent(var=weight.handle, alpha=0.01, delta=gradient)
        elif self.optimizer is None:
            for weight, gradient in zip(self.weights, gradients, strict=True):
                weight.assign_sub(0.01 * gradient)
        elif self.kind == "v1":
            self.optimizer.apply_gradients(zip(gradients, self.weights, strict=True))
        else:
            self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))

    def train(self, x, y):
        loss, gradients = self.gradients(x, y)
        self.apply(gradients)
        return loss


def dataset(rows: str) -> tf.data.Dataset:
    count = 64 if rows == "even" else 70
    return tf.data.Dataset.from_tensor_slices((X[:count], Y[:count])).batch(BATCH, drop_remainder=rows == "drop")


def slices(rows: str, order: Any = None) -> Iterator[Any]:
    count = {"even": 64, "rest": 70, "drop": 64}[rows]
    order = np.arange(count) if order is None else order[:count]
    for start in range(0, count, BATCH):
        at = order[start : start + BATCH]
        yield tf.constant(X[at]), tf.constant(Y[at])


def batches(source: str, rows: str) -> Iterator[Any]:
    data = dataset(rows)
    each = len(list(slices(rows)))
    if source == "repeat":
        iterator = iter(data.repeat())
        yield from (next(iterator) for _ in range(EPOCHS * each))
    elif source == "islice":
        yield from list(itertools.islice(iter(data.repeat()), EPOCHS * each))
    elif source == "cycle":
        yield from itertools.islice(itertools.cycle(data), EPOCHS * each)
    elif source in ("list", "shuffled"):
        kept = list(data)
        for _ in range(EPOCHS):
            yield from random.Random(0).sample(kept, len(kept)) if source == "shuffled" else kept
    elif source == "ahead":
        iterator = iter(data.repeat())
        for _ in range(EPOCHS):
            kept = [next(iterator) for _ in range(3)]
            yield from kept
            yield from kept
    if source in ("repeat", "islice", "cycle", "list", "shuffled", "ahead"):
        return
    if source == "look":
        next(iter(data))
    for _ in range(EPOCHS):
        if source in ("slices", "look"):
            yield from slices(rows)
        elif source == "enumerate":
            yield from (batch for _, batch in data.enumerate())
        elif source == "dict":
            yield from ((batch["x"], batch["y"]) for batch in data.map(lambda x, y: {"x": x, "y": y}))
        elif source == "by turns":
            for pair in zip(data, data.shuffle(9, seed=1), strict=True):
                yield from pair
        elif source == "zipped":
            yield from ((x, y) for (x, _), (_, y) in zip(data, data.map(lambda x, y: (x, y)), strict=True))
        elif source == "numpy":
            yield from ((tf.constant(x), tf.constant(y)) for x, y in data.as_numpy_iterator())
        elif source == "take":
            yield from data.take(3)
        elif source == "unbatched":
            yield from ((x[None], y[None]) for x, y in data.unbatch().take(9))
        elif source == "generator":
            signature = (tf.TensorSpec((None, 4)), tf.TensorSpec((None, 1)))
            yield from tf.data.Dataset.from_generator(lambda: slices(rows), output_signature=signature)
        else:
            yield from data


def trainer(function: str, optimizer: str, validation: str, truth: Truth) -> tuple[Net, Callable[..., object]]:
    """Return a net, and a function that trains a batch once and counts it."""
    net, other = Net(optimizer), Net(optimizer)
    if function == "on batch":
        for one in (net, other):
            one.model.compile(one.optimizer, "mse")
    made: dict[str, Callable[..., Any]] = {
        "eager": net.train,
        "graph": tf.function(net.train),
        "xla": tf.function(net.train, jit_compile=True),
        "returns none": tf.function(lambda x, y: net.train(x, y) is None or None),
        "returns more": tf.function(lambda x, y: {"error": tf.reduce_max(tf.abs(x)), "of": (y, net.train(x, y))}),
        "on batch": net.model.train_on_batch,
    }
    inner = tf.function(net.train)
    made["nested"] = tf.function(lambda x, y: inner(x, y))
    gradients, apply = tf.function(net.gradients), tf.function(net.apply) if function == "split" else net.apply

    def twice(x, y):
        loss, found = gradients(x, y)
        apply(found)
        return loss

    made["gradients"] = made["split"] = twice
    train, others = made.get(function), other.train if function == "eager" else tf.function(other.train)
    if function == "on batch":
        others = other.model.train_on_batch
    if validation == "tensor flag":

        @tf.function
        def either(x, y, training):
            return tf.cond(training, lambda: net.train(x, y), lambda: net.loss(x, y))

        net.either, train = either, lambda x, y: either(x, y, tf.constant(True))
    elif validation == "flag":

        @tf.function(jit_compile=function == "xla")
        def both(x, y, training):
            return net.train(x, y) if training else net.loss(x, y)

        net.either, train = both, lambda x, y: both(x, y, True)
    every = 2 if optimizer == "accumulates" else 1
    waiting = [0, 0]

    def step(x, y):
        loss = train(x, y)
        if optimizer == "critic":
            train(x, y)
            train(x, y)
        if optimizer in ("gan", "critic"):
            loss = others(x, y)
        loss = loss["of"][1] if isinstance(loss, dict) and "of" in loss else loss
        waiting[0] += 1
        waiting[1] += len(x)
        if waiting[0] == every:
            truth.count(waiting[1], loss)
            waiting[:] = 0, 0

    return net, step


def run(source, rows, function, optimizer, updates, validation) -> Truth:
    truth = Truth()
    net, step = trainer(function, optimizer, validation, truth)
    held = dataset("rest").shuffle(70, seed=3)
    if function in ("epoch", "reduce"):
        whole(net, function, optimizer, dataset(rows), truth)
    elif source == "in graph":
        in_graph(net, function, dataset(rows), truth)
    elif source == "unlabelled":
        unlabelled(net, function, dataset(rows), truth)
    elif updates == "accumulated":
        accumulated(net, function, batches(source, rows), truth)
    else:
        over = threading.Event()
        if validation == "predicts":
            other = threading.Thread(target=predicts, args=(over,))
            other.start()
        persistent = iter(held.repeat())
        for number, (x, y) in enumerate(batches(source, rows)):
            if updates == "guarded" and number % 3 == 2:
                continue
            for _ in range(REPEATS if updates == "repeated" else 1):
                step(x, y)
            if validation == "within" and number % 3 == 1:
                net.loss(*next(persistent))
        over.set()
        if validation == "predicts":
            other.join()
    test = getattr(net, "either", None)
    for x, y in held if validation not in ("none", "within", "predicts") else ():
        if validation == "norm":
            kept = [tf.identity(weight) for weight in net.weights]
            with tf.GradientTape() as tape:
                loss = net.loss(x, y)
            tf.linalg.global_norm(tape.gradient(loss, net.weights))
            for weight, value in zip(net.weights, kept, strict=True):
                weight.assign(value)
        elif test is not None:
            test(x, y, tf.constant(False) if validation == "tensor flag" else False)
        else:
            net.loss(x, y)
    return truth


def predicts(over: threading.Event) -> None:
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    while not over.is_set():
        model.predict(X, verbose=0)


def whole(net: Net, function: str, optimizer: str, data: tf.data.Dataset, truth: Truth) -> None:
    def reduced(number, batch):
        net.train(*batch)
        return number + 1

    @tf.function
    def epoch(data):
        loss = tf.constant(0.0)
        for x, y in data:
            loss = net.train(x, y)
        return loss

    for _ in range(EPOCHS):
        loss = epoch(data) if function == "epoch" else data.reduce(0, reduced)
        lengths = [len(x) for x, _ in data.as_numpy_iterator()]
        truth.count(sum(lengths), loss, len(lengths) // (2 if optimizer == "accumulates" else 1))


def in_graph(net: Net, function: str, data: tf.data.Dataset, truth: Truth) -> None:
    iterator = iter(data.repeat())

    @tf.function
    def step(iterator):
        x, y = next(iterator)
        loss = net.train(x, y)
        return (tf.shape(x)[0], loss) if function == "returns more" else loss

    for _ in range(EPOCHS):
        for x, _ in slices("even" if data.element_spec[0].shape[0] else "rest" if len(data) == 5 else "even"):
            loss = step(iterator)
            truth.count(len(x), loss[1] if function == "returns more" else loss)


def unlabelled(net: Net, function: str, data: tf.data.Dataset, truth: Truth) -> None:
    more = iter(data.unbatch().batch(24).repeat())

    def train(x, y, u):
        with tf.GradientTape() as tape:
            loss = net.loss(x, y) + 0.01 * tf.reduce_mean(net.model(u))
        net.apply(tape.gradient(loss, net.weights))
        return loss

    step = tf.function(train) if function == "graph" else train
    for _ in range(EPOCHS):
        for x, y in data:
            truth.count(len(x), step(x, y, next(more)[0]))


def accumulated(net: Net, function: str, read: Iterator[Any], truth: Truth) -> None:
    """Apply the gradients of two batches together, and the gradients left after the last batch."""
    gradients = net.gradients if function == "eager" else tf.function(net.gradients)
    apply = tf.function(net.apply) if function == "split" else net.apply
    total, rows, count, loss = None, 0, 0, None
    for x, y in read:
        loss, found = gradients(x, y)
        total = found if total is None else [one + two for one, two in zip(total, found, strict=True)]
        rows, count = rows + len(x), count + 1
        if count == 2:
            apply(total)
            truth.count(rows, loss)
            total, rows, count = None, 0, 0
    if count:
        apply(total)
        truth.count(rows, loss)


def known_of(work: Callable[[], Truth]) -> tuple[Truth, LaneOfMonitor]:
    """Run work in a separate lane; return its counts and the monitor's figures."""
    metrics, clock = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - closed below
    clock.truncate(lane_clock.SIZE)
    knobs, kept = os.pipe()
    lane = None

    def join() -> Lane:
        nonlocal lane
        if lane is not None:
            return lane
        lane = Lane(LanePipes(metrics.fileno(), knobs, clock.fileno(), "", "cpu"))
        lane.control.slices.paused = False  # nobody is there to resume it
        process._lane = lane
        return lane

    process.join, join_before = join, process.join
    gc.collect()
    StepMachine.__init__(process.steps, process._join_loop)
    process.tensorflow.optimizers = LoopOptimizers()
    try:
        truth = work()
    finally:
        process.join = join_before
    reasons: list[str] = []
    install._not_reported = reasons.append
    install._unseen()
    if lane is not None:
        os._exit = lane._exit
        lane._leave()
        lane.control.traces.close()
    process._lane = None
    os.close(kept)
    state = LaneOfMonitor(spec=LaneSpec("cpu", name="cpu"), script=ScriptFacts("python"))
    metrics.seek(0)
    for line in metrics.read().splitlines():
        state.accept(decode_event(line, "cpu"))
    metrics.close()
    clock.close()
    assert state.measurements.unaccounted_ns < 1_000, "all time is in a window, or left out for a reason"
    told = dict.fromkeys(("steps", "examples", "loss"), reasons[0]) if reasons else {}
    return truth, replace(state, script=replace(state.script, not_measured={**told, **state.script.not_measured}))


def failed(error: Exception) -> None:
    """Show an error of tfmon, and restore nothing, so that the next loop is watched, too."""
    traceback.print_exception(error)
    install.hooks.failures += 1


def main() -> None:
    install.hooks.failure = failed
    first, every, count = map(int, sys.argv[1:])
    choose = random.Random(0)
    loops: dict[str, None] = {}
    while len(loops) < count:
        loops[" · ".join(draw(choose).values())] = None
    for name in dict.fromkeys((*list(loops)[first::every], *ALWAYS)):
        loop = dict(zip(GRAMMAR, name.split(" · "), strict=True))
        truth, state = known_of(lambda loop=loop: run(**loop))
        loss = truth.loss[0] if isinstance(truth.loss, list) else truth.loss
        known = {"steps": state.totals.steps, "examples": state.totals.examples, "loss": state.totals.losses.last}
        true = {
            "steps": truth.steps,
            "examples": truth.examples,
            "loss": None if loss is None or loop["function"] == "reduce" else float(loss),
        }
        failures, install.hooks.failures = install.hooks.failures, 0
        print(json.dumps([name, true, known, state.script.not_measured, failures]), flush=True)


if __name__ == "__main__":
    main()
