"""A functional model with two inputs and two outputs, `steps_per_execution`, custom callbacks, a strategy."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

COUNT, BATCH, EPOCHS, AT_ONCE = 5_000, 32, 3, 5
seen = []


class Own(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        seen.append(batch)


with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
    title, body = keras.Input((8,), name="title"), keras.Input((24,), name="body")
    joined = layers.concatenate([layers.Dense(8)(title), layers.Dense(16)(body)])
    priority = layers.Dense(1, name="priority")(joined)
    department = layers.Dense(4, name="department")(joined)
    model = keras.Model([title, body], {"priority": priority, "department": department})
    model.compile(
        keras.optimizers.Adam(0.01),
        loss={
            "priority": keras.losses.BinaryCrossentropy(from_logits=True),
            "department": keras.losses.CategoricalCrossentropy(from_logits=True),
        },
        steps_per_execution=AT_ONCE,
    )
random = np.random.default_rng(0)
x = {"title": random.random((COUNT, 8)), "body": random.random((COUNT, 24))}
y = {"priority": random.integers(0, 2, (COUNT, 1)), "department": np.eye(4)[random.integers(0, 4, COUNT)]}
model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, validation_split=0.2, callbacks=[Own()], verbose=0)
trained = COUNT * 4 // 5
assert len(seen) == EPOCHS * -(-(trained // BATCH) // AT_ONCE), len(seen)
print("trained", trained * EPOCHS, "examples in", trained // BATCH * EPOCHS, "steps")
