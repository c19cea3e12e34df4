"""A custom loop with GradientTape, which reports its steps."""

import keras
import numpy as np
import tensorflow as tf

from tfmon import report

COUNT, EPOCHS = 2_010, 8
batch_size = report.knob("batch_size", 32, choices=(16, 32, 64))
x = np.random.default_rng(0).random((COUNT, 20)).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1, keepdims=True))).batch(batch_size)
model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.01)


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss


steps = 0
for _ in range(EPOCHS):
    for x_batch, y_batch in report.input(data):
        with report.step(examples=len(x_batch)) as step:
            step.loss = train_step(x_batch, y_batch)
        steps += 1
print("trained", COUNT * EPOCHS, "examples in", steps, "steps")
