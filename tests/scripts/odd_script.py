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
from collections.abc import Callable

ENDS = {"exit-3": 3, "exit-text": "the script says so", "exit-true": True}
ROWS, BATCH = 70, 16
SHAPES: dict[str, Callable[[], object]] = {}
ODDITIES: dict[str, Callable[[], object]] = {
    "low_recursion_limit": lambda: sys.setrecursionlimit(900),
    "no_collector": gc.disable,
    "eager_collector": lambda: gc.set_threshold(300),
    "frozen_collector": gc.freeze,
    "ignores_pipes": lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL),
    "exit_handler_fails": lambda: atexit.register(lambda: 1 / 0),
    "umask": lambda: os.umask(0o077),
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
    "dumps_stacks": lambda: faulthandler.dump_traceback(open(os.devnull, "w"), all_threads=True),  # noqa: SIM115
}
before: list[Callable[[], object]] = []
between: list[Callable[[], object]] = []


def shape(run):
    SHAPES[run.__name__] = run
    return run


def oddity(run):
    ODDITIES[run.__name__] = run
    return run


@oddity
def closes_descriptors():
    def close():
        os.closerange(3, 256)
        global kept
        kept = [open(f"own{number}.bin", "wb") for number in range(40)]  # noqa: SIM115 - they take the numbers

    between.insert(0, close)


@oddity
def changes_folder():
    os.makedirs("inside", exist_ok=True)
    os.chdir("inside")


@oddity
def redirects_output():
    os.dup2(os.open("redirected.txt", os.O_CREAT | os.O_WRONLY), 1)


@oddity
def own_hook_for_errors():
    sys.excepthook = lambda kind, error, trace: print("hook", kind.__name__, error)


@oddity
def handles_signals():
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        signal.signal(number, lambda *_: print("signalled"))


@oddity
def exit_handlers():
    for number in range(3):
        atexit.register(print, "exit handler", number, flush=True)


@oddity
def forks():
    def fork():
        child = os.fork()
        if not child:
            os._exit(5)
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    between.append(fork)


@oddity
def forks_and_trains():
    def fork():
        child = os.fork()
        if not child:
            try:
                SHAPES["eager_loop"]()
            finally:
                os._exit(6)
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    before.append(fork)


@oddity
def many_threads():
    stop = threading.Event()
    for _ in range(8):
        threading.Thread(target=stop.wait, daemon=True).start()
    atexit.register(stop.set)


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


@shape
def fit_arrays():
    return fitted(*arrays(), batch_size=BATCH)


@shape
def fit_dataset():
    return fitted(data())


@shape
def fit_validated():
    return fitted(*arrays(), validation_split=0.2, validation_freq=2, epochs=3)


@shape
def fit_several_steps_a_call():
    return fitted(data(), model=compiled(steps_per_execution=3))


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

    for train in (fit_dataset, graph_loop):
        refs = [ref for _ in range(5) for ref in kept(train)]
        keras.backend.clear_session()
        gc.collect()
        print(train.__name__, "alive:", sum(ref() is not None for ref in refs))


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
