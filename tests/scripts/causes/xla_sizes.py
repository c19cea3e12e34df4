"""A loop that calls one graph with a new size each epoch: XLA compiles it again without a trace."""

import keras
import tensorflow as tf

weight = tf.Variable(1.0)
optimizer = keras.optimizers.SGD(0.001)
optimizer.build([weight])


@tf.function(jit_compile=True, input_signature=[tf.TensorSpec([None, 3])])
def score(x):
    for _ in range(1000):
        x = x * 1.0001
    return tf.reduce_sum(x)


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = (weight * x) ** 2
    optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])
    return loss


data = tf.data.Dataset.range(30).map(lambda x: tf.cast(x, tf.float32) / 30)
for epoch in range(8):
    for x in data:
        step(x)
    score(tf.ones((10 + epoch, 3)))
    score(tf.ones((10, 3)))
