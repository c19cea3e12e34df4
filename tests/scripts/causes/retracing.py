"""A loop that has its functions traced again in each way that there is."""

import keras
import numpy as np
import tensorflow as tf

weights = tf.Variable(tf.ones((20, 1)))
optimizer = keras.optimizers.SGD(0.001)
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
