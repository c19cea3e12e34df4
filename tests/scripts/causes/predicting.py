"""A custom loop that calls `predict` between its epochs, then batches of three sizes."""

import keras
import numpy as np
import tensorflow as tf

x = np.ones((60, 8), "float32")
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.001)
for _ in range(12):
    for batch in tf.data.Dataset.from_tensor_slices(x).batch(10):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(batch) ** 2)
        gradients = tape.gradient(loss, model.trainable_weights)
        optimizer.apply_gradients(zip(gradients, model.trainable_weights, strict=True))
    model.predict(x[:5], verbose=0)

model.compile("sgd", "mse")
for step in range(200):
    rows = 16 - step % 3
    model.train_on_batch(np.ones((rows, 8)), np.ones((rows, 1)))
