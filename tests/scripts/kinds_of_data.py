"""Batches of every kind: of known and unknown lengths, ragged, sparse, strings, nested; and `run_eagerly`."""

import keras
import numpy as np
import tensorflow as tf
import tf_keras

COUNT, BATCH = 70, 16


class Anything(keras.Model):
    """Trains one weight with any data."""

    def __init__(self):
        super().__init__()
        self.weight = self.add_weight(shape=(), initializer="ones")

    def train_step(self, batch):
        with tf.GradientTape() as tape:
            loss = tf.square(self.weight)
        self.optimizer.apply(tape.gradient(loss, [self.weight]), [self.weight])
        return {"loss": loss}


rows = tf.data.Dataset.range(COUNT)
wide = rows.map(lambda row: tf.fill((3, 5), tf.cast(row, tf.float32)))
long = rows.map(lambda row: tf.fill((1 + row % 4,), 1.0))
sparse = tf.sparse.from_dense(np.eye(COUNT, dtype="float32"))
ragged = tf.RaggedTensor.from_row_lengths(tf.ones([2 * COUNT]), [1, 3] * (COUNT // 2))
kinds = [
    wide.batch(BATCH),
    long.padded_batch(BATCH),
    long.ragged_batch(BATCH),
    tf.data.Dataset.from_tensor_slices(sparse).batch(BATCH),
    tf.data.Dataset.from_tensor_slices(ragged).batch(BATCH),
    rows.map(tf.strings.as_string).batch(BATCH),
    tf.data.Dataset.zip({"left": wide, "right": rows}, rows).batch(BATCH),
]
examples = steps = 0
for kind in kinds:
    for eagerly in (False, True):
        model = Anything()
        model.compile("sgd", run_eagerly=eagerly)
        model.fit(kind, epochs=2, verbose=0)
        examples, steps = examples + 2 * COUNT, steps + 2 * -(-COUNT // BATCH)
model = Anything()
model.compile("sgd")
model.fit(wide.batch(BATCH, drop_remainder=True), epochs=2, verbose=0)

model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
model.compile("adam", "mse")  # its graph counts an update where the data end, too
pairs = rows.filter(lambda row: row >= 0).map(lambda row: (tf.fill((5,), tf.cast(row, tf.float32) / COUNT), 1.0))
model.fit(pairs.batch(BATCH), epochs=4, verbose=0)
model.predict(pairs.batch(BATCH), verbose=0)
examples, steps = examples + 4 * COUNT, steps + 4 * -(-COUNT // BATCH)
several = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
several.compile("sgd", "mse", steps_per_execution=3)  # 5 batches an epoch, whose number Keras does not know
several.fit(pairs.batch(BATCH), epochs=2, verbose=0)
assert int(several.optimizer.iterations) == 2 * -(-COUNT // BATCH)
examples, steps = examples + 2 * COUNT, steps + 2 * -(-COUNT // BATCH)


class Nested(tf_keras.Model):
    """A model of legacy Keras with a part that is not built before its first step."""

    def __init__(self):
        super().__init__()
        self.body = tf_keras.Sequential([tf_keras.layers.Dense(1)])

    def call(self, batch):
        return self.body(batch)


for several_at_once in (1, 2, 4):
    nested = Nested()
    nested.compile("sgd", "mse", steps_per_execution=several_at_once)
    nested.fit(np.ones((COUNT, 5)), np.ones(COUNT), batch_size=BATCH, verbose=0)
    examples, steps = examples + COUNT, steps + -(-COUNT // BATCH)
print("trained", examples + 2 * (COUNT // BATCH) * BATCH, "examples in", steps + 2 * (COUNT // BATCH), "steps")
