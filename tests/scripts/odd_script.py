"""Trainings of many shapes in a process with oddities; run plain and in a lane by test_same_training.py.

    python odd_script.py ODDITY,... SHAPE,...

in its working directory: each shape writes its weights there and prints a line after its training.
"""

# Scripts of users call these functions of `os` and `open`, which tfmon observes:
# ruff: noqa: PTH103, PTH107, PTH123, PTH208

import atexit
import faulthandler
import gc
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable

ENDS = {"exit-3": 3, "exit-text": "the script says so", "exit-true": True}
ROWS, BATCH = 70, 16
SHAPES: dict[str, Callable[[], object]] = {}
before: list[Callable[[], object]] = []
between: list[Callable[[], object]] = []


def shape(run):
    SHAPES[run.__name__] = run
    return run


def close_descriptors():
    os.closerange(3, 256)
    global kept
    kept = [open(f"own{number}.bin", "wb") for number in range(40)]  # noqa: SIM115 - they take the numbers


def change_folder():
    os.makedirs("inside", exist_ok=True)
    os.chdir("inside")


def set_hook_for_errors():
    sys.excepthook = lambda kind, error, trace: print("hook", kind.__name__, error)


def handle_signals():
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        signal.signal(number, lambda *_: print("signalled"))


def fork(run):
    child = os.fork()
    if not child:
        try:
            run()
        finally:
            os._exit(5)
    print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def start_threads():
    stop = threading.Event()
    for _ in range(8):
        threading.Thread(target=stop.wait, daemon=True).start()
    atexit.register(stop.set)


ODDITIES: dict[str, Callable[[], object]] = {
    "low_recursion_limit": lambda: sys.setrecursionlimit(900),
    "no_collector": gc.disable,
    "eager_collector": lambda: gc.set_threshold(300),
    "frozen_collector": gc.freeze,
    "ignores_pipes": lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL),
    "exit_handler_fails": lambda: atexit.register(lambda: 1 / 0),
    "umask": lambda: os.umask(0o077),
    "closes_descriptors": lambda: between.insert(0, close_descriptors),
    "changes_folder": change_folder,
    "redirects_output": lambda: os.dup2(os.open("redirected.txt", os.O_CREAT | os.O_WRONLY), 1),
    "own_hook_for_errors": set_hook_for_errors,
    "handles_signals": handle_signals,
    "exit_handlers": lambda: [atexit.register(print, "exit handler", number, flush=True) for number in range(3)],
    "forks": lambda: between.append(lambda: fork(int)),
    "forks_and_trains": lambda: before.append(lambda: fork(SHAPES["eager_loop"])),
    "many_threads": start_threads,
}
"""Changes of the process before TensorFlow is loaded."""
AFTER_IMPORT: dict[str, Callable[[], object]] = {
    "traces": lambda: sys.settrace(lambda *_: None),
    "profiles": lambda: sys.setprofile(lambda *_: None),
    "deterministic": lambda: tf.config.experimental.enable_op_determinism(),
    "functions_run_eagerly": lambda: tf.config.run_functions_eagerly(True),
    "logs_placement": lambda: tf.debugging.set_log_device_placement(True),
    "mixed_precision": lambda: keras.mixed_precision.set_global_policy("mixed_bfloat16"),
    "numeric_checks": lambda: tf.debugging.enable_check_numerics(),
    "debugs_datasets": lambda: tf.data.experimental.enable_debug_mode(),
}
AT_THE_END: dict[str, Callable[[], object]] = {
    "counts_threads": lambda: print("threads", sorted(thread.name for thread in threading.enumerate())),
    "joins_threads": lambda: [
        one.join() for one in threading.enumerate() if one is not threading.current_thread()
    ],
    "dumps_stacks": lambda: faulthandler.dump_traceback(os.open(os.devnull, os.O_WRONLY), all_threads=True),
}


def arrays():
    x = np.random.default_rng(0).random((ROWS, 4), "float32")
    return x, x.sum(1, keepdims=True)


def data(**how):
    return tf.data.Dataset.from_tensor_slices(arrays()).shuffle(20, seed=3).batch(BATCH, **how)


def model_of(kind=None):
    kind = kind or keras
    layers = kind.layers
    return kind.Sequential([layers.Input((4,)), layers.Dense(3), layers.Dropout(0.2), layers.Dense(1)])


def compiled(**how):
    model = model_of()
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"], **how)
    return model


def fitted(*data, model=None, epochs=2, **how):
    model = model or compiled()
    history = model.fit(*data, epochs=epochs, verbose=0, **how)
    print({name: [float(value) for value in values] for name, values in history.history.items()})
    return model


class Loop:
    def __init__(self, graph=True, **how):
        self.model, self.optimizer = model_of(), keras.optimizers.Adam(0.01)
        self.step = tf.function(self.once, **how) if graph else self.once

    def gradients(self, x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.model(x, training=True) - y))
        return loss, tape.gradient(loss, self.model.trainable_variables)

    def once(self, x, y):
        loss, gradients = self.gradients(x, y)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))
        return loss


SHAPES.update(
    fit_arrays=lambda: fitted(*arrays(), batch_size=BATCH),
    fit_dataset=lambda: fitted(data()),
    fit_validated=lambda: fitted(*arrays(), validation_split=0.2, validation_freq=2, epochs=3),
    fit_several_steps_a_call=lambda: fitted(data(), model=compiled(steps_per_execution=3)),
)


@shape
def fit_saves():
    callbacks = [
        keras.callbacks.ModelCheckpoint("best.weights.h5", save_weights_only=True),
        keras.callbacks.CSVLogger("log.csv"),
        keras.callbacks.EarlyStopping("loss", patience=1),
        keras.callbacks.ReduceLROnPlateau("loss", patience=1),
    ]
    model = fitted(data(), callbacks=callbacks, epochs=3)
    os.remove("best.weights.h5")  # it has the time in it
    return model


@shape
def fit_with_a_callback_that_fails():
    def fail(*_):
        raise LookupError("the script's own")

    return fitted(data(), callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=fail)])


@shape
def fit_own_step():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = model_of()

        def call(self, x):
            return self.inner(x)

        def train_step(self, batch):
            x, y = batch
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self.inner(x) - y) ** 2)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply(gradients, self.trainable_variables)
            return {"loss": loss}

    model = Own()
    model.compile("sgd")
    return fitted(data(), model=model)


@shape
def fit_mirrored():
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = compiled()
    return fitted(data(), model=model)


@shape
def fit_legacy():
    import tf_keras

    tf_keras.utils.set_random_seed(1)
    model = model_of(tf_keras)
    model.compile("sgd", "mse")
    return fitted(data(), model=model)


@shape
def on_batches():
    model = compiled()
    for x, y in data():
        print([float(value) for value in model.train_on_batch(x, y)])
    return model


@shape
def graph_loop():
    loop = Loop()
    for _ in range(2):
        for x, y in data():
            print(float(loop.step(x, y)))
    return loop.model


@shape
def eager_loop():
    loop = Loop(graph=False)
    for x, y in data():
        loop.step(x, y)
    return loop.model


@shape
def next_in_the_graph():
    loop, batches = Loop(graph=False), iter(data().repeat())

    @tf.function
    def step():
        return loop.step(*next(batches))

    for _ in range(9):
        print(float(step()))
    return loop.model


@shape
def loop_in_the_graph():
    loop = Loop(graph=False)

    @tf.function
    def epoch(batches):
        for x, y in batches:
            loop.step(x, y)

    epoch(data())
    return loop.model


@shape
def strategy():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        loop = Loop(graph=False)

    @tf.function
    def step(batches):
        return strategy.run(loop.once, next(batches))

    batches = iter(strategy.experimental_distribute_dataset(data()))
    for _ in range(4):
        step(batches)
    return loop.model


@shape
def by_hand():
    weights = tf.Variable(tf.ones((4, 1)))
    for x, y in data():
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean(tf.square(x @ weights - y))
            other = loss * 2
        weights.assign_sub(0.01 * tape.gradient(loss, weights) + 0.0 * tape.gradient(other, weights))
    return weights


@shape
def in_a_thread():
    loop = Loop()
    thread = threading.Thread(target=lambda: [loop.step(x, y) for x, y in data()])
    thread.start()
    thread.join()
    return loop.model


@shape
def wrong_shapes():
    Loop().step(np.ones((2, 5), "float32"), np.ones((2, 1), "float32"))


@shape
def checkpoints():
    loop = Loop()
    batches = iter(data())
    checkpoint = tf.train.Checkpoint(model=loop.model, optimizer=loop.optimizer, batches=batches)
    loop.step(*next(batches))
    path = checkpoint.save("./state")
    print([name for name, _ in tf.train.list_variables(path)])
    loop.step(*next(batches))
    checkpoint.restore(path)
    for each in os.listdir("."):
        if each.startswith(("state", "checkpoint")):
            os.remove(each)
    loop.step(*next(batches))
    return loop.model


@shape
def five_models_end():
    """Each model, and its optimizer, ends with the last reference of the script."""
    import weakref

    def kept(train):
        model = train()
        return weakref.ref(model), weakref.ref(getattr(model, "optimizer", None) or model)

    for train in ("fit_dataset", "graph_loop"):
        refs = [ref for _ in range(5) for ref in kept(SHAPES[train])]
        keras.backend.clear_session()
        gc.collect()
        print(train, "alive:", sum(ref() is not None for ref in refs))


@shape
def exported():
    import shutil

    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.loop = Loop()

        @tf.function(input_signature=[tf.TensorSpec((None, 4)), tf.TensorSpec((None, 1))])
        def train(self, x, y):
            return self.loop.once(x, y)

        @tf.function(input_signature=[tf.TensorSpec((None, 4))])
        def predict(self, x):
            return self.loop.model(x)

    module = Module()
    for x, y in data():
        module.train(x, y)
    tf.saved_model.save(module, "saved", signatures={"train": module.train, "predict": module.predict})
    graph = tf.saved_model.load("saved").signatures["train"].graph.as_graph_def()
    print(len(graph.node), sorted(len(function.node_def) for function in graph.library.function))
    print(len(tf.lite.TFLiteConverter.from_saved_model("saved", ["predict"]).convert()))
    shutil.rmtree("saved")
    return module.loop.model


@shape
def with_the_reports():
    """Steps that the script reports, if it can: `tfmon` is found in a lane, or where it is installed."""
    from tfmon import report

    loop, batches = Loop(), report.input(list(data()))
    assert len(batches) == 5
    for _ in range(3):
        for x, y in batches:
            loss = loop.step(x, y)
            report.step(examples=len(x), loss=loss)
    print(report.knob("width", 3, choices=(3, 4)))
    return loop.model


@shape
def fit_padded():
    """It has causes whose cost tfmon measures with operations, which a log of placements would show."""
    padded = np.zeros((256, 64), "int32")
    padded[:, :9] = np.arange(256 * 9).reshape(256, 9)
    layers = [keras.layers.Embedding(20_000, 16), keras.layers.Flatten(), *map(keras.layers.Dense, (64, 1))]
    model = keras.Sequential([keras.Input((64,), dtype="int32"), *layers])
    model.compile("adam", "mse")
    return fitted(tf.constant(padded), tf.zeros((256, 1)), model=model, batch_size=8)


@shape
def fails_in_every_way():
    """Print each error that passes through a hook."""
    loop, trained = Loop(), threading.Event()
    x, y = (part[:2] for part in arrays())
    weights = loop.model.trainable_variables

    class Own(keras.Model):
        def train_step(self, data):
            raise ValueError("in train_step")

    def in_fit():
        inputs = keras.Input((4,))
        own = Own(inputs, keras.layers.Dense(1)(inputs))
        own.compile("sgd", "mse")
        own.fit(data(), verbose=0)

    def in_the_data():
        for x, y in data().map(lambda x, y: (tf.debugging.check_numerics(x / 0.0, "by zero"), y)):
            loop.step(x, y)

    @tf.function
    def after_the_update():
        tf.debugging.assert_less(loop.once(x, y), -1e9)

    @tf.function
    def of_the_gradient():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.linalg.inv(x[:, tf.newaxis] * tf.zeros((4, 4)) * weights[0][:, :1]))
        return tape.gradient(loss, weights)

    def without_variables():
        with tf.GradientTape() as tape:
            loss = tf.ones(())
        loop.optimizer.apply(tape.gradient(loss, weights), weights)

    def at_the_end_of_the_data():
        batches = iter(data().take(1))
        batches.get_next()
        batches.get_next()

    def interrupts():
        yield x
        trained.wait()
        # The loop must be in TensorFlow, waiting for the next batch.
        while sys._current_frames()[threading.main_thread().ident].f_code.co_name != "iterator_get_next":
            time.sleep(0.01)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        yield x

    def interrupted():
        for rows in tf.data.Dataset.from_generator(interrupts, output_signature=tf.TensorSpec((2, 4))):
            loop.step(rows, y)
            trained.set()

    for rows, target in data().repeat(4):
        loop.step(rows, target)
    warnings.warn("the script's own", stacklevel=1)
    for fail in (
        in_fit,
        in_the_data,
        after_the_update,
        of_the_gradient,
        without_variables,
        at_the_end_of_the_data,
        lambda: loop.optimizer.apply([tf.ones((3, 3))], [weights[0]]),
        lambda: weights[0].assign(np.ones((7, 7))),
        interrupted,
    ):
        try:
            fail()
        except BaseException:  # noqa: BLE001 - one is a KeyboardInterrupt
            traceback.print_exc()
            print("----")
    return loop.model


def train(name):
    np.random.seed(1)
    keras.utils.set_random_seed(1)
    try:
        model = SHAPES[name]()
    except Exception as error:  # noqa: BLE001 - what the shape raises is compared
        print(name, type(error).__name__, str(error)[:80])
        return
    if model is not None:
        weights = [model.numpy()] if hasattr(model, "numpy") else model.get_weights()
        with open(f"{name}.weights", "wb") as file:
            file.write(b"".join(weight.tobytes() for weight in weights))
    print(name, "trained")


if __name__ == "__main__":
    oddities, shapes = (argument.split(",") for argument in sys.argv[1:3])
    for name in oddities:
        if name in ODDITIES:
            ODDITIES[name]()
    import keras
    import numpy as np
    import tensorflow as tf

    for name in oddities:
        if name in AFTER_IMPORT:
            AFTER_IMPORT[name]()
    for each in before:
        each()
    for number, name in enumerate(shapes):
        train(name)
        if number == 0:
            for each in between:
                each()
    for name in oddities:
        if name in AT_THE_END:
            AT_THE_END[name]()
    print("the end", flush=True)
    if "raises" in oddities:
        raise RuntimeError("the script's own error")
    if "interrupts" in oddities:
        raise KeyboardInterrupt
    if "aborts" in oddities:
        time.sleep(0)
        sys.stdout.flush()
        os._exit(7)
    for name in oddities:
        if name in ENDS:
            sys.exit(ENDS[name])
