"""Slow trainings of several kinds, each of which is named on the command line."""

import sys
import tempfile
import time

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(1)
rows = np.random.default_rng(1).random((640, 8), dtype="float32")
x, y = np.ones((1600, 16), "float32"), np.ones((1600, 1), "float32")
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse")


def step_of(model):
    optimizer, weights = keras.optimizers.SGD(0.001), model.trainable_weights

    @tf.function
    def step(rows, target):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(rows) - target) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    return step


def seldom(row):
    time.sleep(0.0025)
    return row


def slow(rows, target):
    return tf.ensure_shape(tf.numpy_function(seldom, [rows], tf.float32), (16,)), target


class Reports(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        time.sleep(0.8)


def first_epoch():
    """Fill a cache in the first epoch."""
    data = tf.data.Dataset.from_tensor_slices((x, y)).map(slow).cache().batch(32)
    model.fit(data, epochs=6, verbose=0)


def pauses():
    """Validate, report, and fill a buffer of a shuffle at each epoch."""
    data = tf.data.Dataset.from_tensor_slices((x, y)).map(slow).shuffle(400).take(320).batch(32)
    valid = tf.data.Dataset.from_tensor_slices((x, y)).map(slow).batch(32)
    model.fit(data, epochs=4, verbose=0, callbacks=[Reports()], validation_data=valid.take(20))


def later_epochs():
    """Read slowly from the second epoch on, in a loop by hand."""
    passes, train = [0], step_of(model)

    def rows():
        passes[0] += 1
        for _ in range(30):
            time.sleep(0.001 if passes[0] == 1 else 0.04)
            yield x[:32], y[:32]

    spec = tf.TensorSpec((32, 16)), tf.TensorSpec((32, 1))
    options = tf.data.Options()
    options.autotune.enabled = False  # to free an iterator waits for it, for up to seconds
    data = tf.data.Dataset.from_generator(rows, output_signature=spec).with_options(options)
    for _ in range(6):
        for number, (rows_, target) in enumerate(data, 1):
            train(rows_, target)
            if number == 30:
                time.sleep(0.3)  # the pull of the data's end then follows a window's end
        time.sleep(0.2)


def small_steps():
    """Train many small steps, and predict for one sample at a time."""
    model.fit(x, y, epochs=150, verbose=0)
    for _ in range(30):
        model.predict(x[:1], verbose=0)


def predicts():
    """Call `predict` between the epochs of a loop, then train batches of three sizes."""
    train = step_of(model)
    for _ in range(12):
        for batch in tf.data.Dataset.from_tensor_slices(x[:60]).batch(10):
            train(batch, 0.0)
        model.predict(x[:5], verbose=0)
    for step in range(200):
        model.train_on_batch(x[: 16 - step % 3], y[: 16 - step % 3])


def compiles():
    """Call one graph with a new size each epoch: XLA compiles it again without a trace."""
    train = step_of(model)

    @tf.function(jit_compile=True, input_signature=[tf.TensorSpec([None, 3])])
    def score(x):
        for _ in range(1000):
            x = x * 1.0001
        return tf.reduce_sum(x)

    for epoch in range(8):
        for _ in range(30):
            train(x[:8], y[:8])
        score(tf.ones((10 + epoch, 3)))
        score(tf.ones((10, 3)))


def retraces():
    """Have functions traced again in each way that there is."""
    weights, optimizer = tf.Variable(tf.ones((20, 1))), keras.optimizers.SGD(0.001)
    optimizer.build([weights])

    def deep(x, operations=60):
        """Take a while to trace."""
        for _ in range(operations):
            x = x * 1.0001
        return x

    def update(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((deep(x) @ weights - y) ** 2)
        optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])
        return loss

    @tf.function
    def by_step(x, y, step):
        return update(x, y) + 0 * step

    @tf.function
    def by_batch(x, y):
        return update(deep(x, 2000), y)

    @tf.function
    def by_object(x, config):
        return tf.reduce_sum(deep(x, 400)) * config.scale

    @tf.function(jit_compile=True)
    def by_xla(x):
        return tf.reduce_sum(deep(x, 400))

    class Config:
        scale = 1.0

    data = tf.data.Dataset.from_tensor_slices((tf.ones((36, 20)), tf.ones((36, 1)))).batch(16)
    model = keras.Sequential([keras.layers.Dense(4) for _ in range(30)])
    configs = []
    for epoch in range(8):
        for step, (x, y) in enumerate(data):
            by_batch(x, y)
            by_step(x[:4], y[:4], 3 * epoch + step)
        configs.append(Config())
        by_object(tf.ones(3), configs[-1])
        by_xla(tf.ones(10 + epoch))
        made = tf.function(lambda x: tf.reduce_sum(deep(x, 300)))
        made(tf.ones(3))
        model.compile("sgd", "mse")
        model.predict(np.ones((4, 4), "float32"), verbose=0)


def network(*layers, **compiled):
    model = keras.Sequential([keras.Input((8,)), *layers, keras.layers.Dense(3, activation="softmax")])
    model.compile(**{"optimizer": "sgd", "loss": "mse", **compiled})
    return model


def only_adapts():
    scale = keras.layers.Normalization()
    scale.adapt(tf.data.Dataset.from_tensor_slices(rows).batch(1))
    return scale


def adapts():
    network(only_adapts()).fit(rows, rows[:, :3], epochs=4, verbose=0)


def adapts_to_texts():
    keras.layers.StringLookup().adapt(tf.data.Dataset.from_tensor_slices(["a", "b"] * 500))


def calls_back():
    class Watches(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            time.sleep(0.02)

    watches = Watches()
    each = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(0.02))
    with tempfile.TemporaryDirectory() as folder:
        saves = keras.callbacks.ModelCheckpoint(f"{folder}/a.keras", save_freq=5)
        network().fit(rows, rows[:, :3], epochs=4, verbose=0, callbacks=[watches, each, saves])
    assert "on_train_batch_begin" not in vars(watches)


def has_metrics():
    kinds = (keras.metrics.TruePositives, keras.metrics.FalsePositives)
    metrics = [kind(thresholds=[0.2, 0.8], name=f"{kind.__name__}{n}") for n in range(8) for kind in kinds]
    metrics += [keras.metrics.AUC(num_thresholds=20, name=f"auc{n}") for n in range(8)]
    network(metrics=metrics).fit(rows, rows[:, :3] > 0.5, epochs=4, verbose=0)


def looks_up():
    layers = [keras.layers.Embedding(200_000, 16), keras.layers.Flatten(), keras.layers.Dense(3)]
    model = keras.Sequential([keras.Input((8,), dtype="int32"), *layers])
    model.compile(keras.optimizers.RMSprop(), "mse")
    model.fit((rows * 200_000).astype("int32"), rows[:, :3], epochs=3, verbose=0)


def updates_a_table():
    table, optimizer = tf.Variable(tf.random.normal((200_000, 16))), keras.optimizers.Adam()

    @tf.function
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.gather(table, ids) ** 2)
        optimizer.apply_gradients([(tape.gradient(loss, table), table)])
        return loss

    for _ in range(40):
        step(tf.range(32))


def runs_eagerly():
    model, optimizer = network(), keras.optimizers.Adam()
    for _ in range(60):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(rows[:32]) - 1.0))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)


def runs_functions_eagerly():
    tf.config.run_functions_eagerly(True)
    network().fit(rows, rows[:, :3], epochs=3, verbose=0)
    tf.config.run_functions_eagerly(False)


def unrolls():
    weights = tf.Variable(tf.random.normal((8, 8)))

    def cell(state):
        return tf.tanh(state @ weights) + tf.sigmoid(state)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            moment = 0
            while moment < 250:
                x = cell(x)
                moment += 1
            loss = tf.reduce_mean(x)
        weights.assign_sub(0.01 * tape.gradient(loss, weights))
        return loss

    for batch in tf.data.Dataset.from_tensor_slices(rows).batch(32).repeat(3):
        step(batch)


class Data(keras.utils.PyDataset):
    def __len__(self):
        return 24

    def __getitem__(self, place):
        time.sleep(0.1)  # longer than a step, also on a busy machine
        return rows[:32], rows[:32, :3]


def generate():
    while True:
        time.sleep(0.1)
        yield rows[:16], rows[:16, :3]


def fits_made_batches():
    """Fit 72 batches of 32 rows, then 40 of 16 rows."""
    model = network()
    model.fit(Data(), epochs=3, verbose=0)
    model.fit(generate(), steps_per_epoch=20, epochs=2, verbose=0)


def fits_arrays():
    model = network()
    for _ in range(20):
        model.fit(rows, rows[:, :3], verbose=0)


def makes_models():
    kept = []
    for _ in range(7):
        kept.append(np.ones(2 << 20))
        network(keras.layers.Dense(8)).fit(rows, rows[:, :3], epochs=1, verbose=0)


def reads_in_python():
    """Read from a generator, prepare in Python, augment one element at a time, and make no batch ahead."""
    train = step_of(keras.Sequential([keras.Input((64,)), keras.layers.Dense(1)]))

    def read():
        for row in np.arange(9_600 * 64, dtype="float32").reshape(9_600, 64):
            sum(range(15_000))
            yield row / 614_400

    def standardise(row):
        sum(range(24_000))
        return row - row.mean()

    def prepare(x):
        return tf.ensure_shape(tf.numpy_function(standardise, [x], tf.float32), (64,))

    def augment(x):
        image = tf.image.resize(tf.reshape(x, (8, 8, 1)), (360, 360)) + tf.random.uniform(())
        return tf.reshape(tf.image.resize(image, (8, 8)), (64,))

    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    dataset = tf.data.Dataset.from_generator(read, output_signature=tf.TensorSpec((64,), tf.float32))
    dataset = dataset.map(prepare, num_parallel_calls=2)
    dataset = dataset.prefetch(32)
    dataset = dataset.map(augment)
    dataset = dataset.batch(32).with_options(options)
    for batch in dataset:  # once, because freeing an iterator can take seconds on a busy machine
        train(batch, 1.0)


for name in sys.argv[1:]:
    globals()[name]()
