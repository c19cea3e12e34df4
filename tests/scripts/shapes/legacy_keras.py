"""Legacy Keras, which TF_USE_LEGACY_KERAS=1 makes `tf.keras`: `fit` with validation, then a custom loop."""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import tensorflow as tf

COUNT, BATCH, EPOCHS = 960, 32, 2
x = np.random.default_rng(8).random((COUNT, 12), "float32")
model = tf.keras.Sequential(
    [tf.keras.layers.Input((12,)), tf.keras.layers.Dense(8, "relu"), tf.keras.layers.Dense(1)]
)
model.compile(tf.keras.optimizers.Adam(0.01), "mse", steps_per_execution=4)
model.fit(x, x[:, :1], batch_size=BATCH, epochs=EPOCHS, validation_split=0.2, verbose=0)
trained = COUNT * 4 // 5
assert model.__class__.__module__.startswith("tf_keras")


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
    model.optimizer.minimize(loss, model.trainable_variables, tape=tape)
    return loss


steps = 0
for x_batch, y_batch in tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(BATCH):
    loss = train_step(x_batch, y_batch)
    steps += 1
print("trained", trained * EPOCHS + COUNT, "examples in", trained // BATCH * EPOCHS + steps, "steps")
