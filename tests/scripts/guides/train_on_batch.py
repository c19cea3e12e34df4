"""`train_on_batch` over a dataset, with `test_on_batch` between epochs."""

import keras
import numpy as np
import tensorflow as tf

COUNT, BATCH, EPOCHS = 1_200, 32, 2
x = np.random.default_rng(4).random((COUNT, 16), "float32")
dataset = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(BATCH)
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
model.compile("sgd", "mse", metrics=["mae"])
steps = 0
for _ in range(EPOCHS):
    model.reset_metrics()
    for x_batch, y_batch in dataset:
        result = model.train_on_batch(x_batch, y_batch, return_dict=True)
        steps += 1
    print({name: round(float(value), 3) for name, value in result.items()})
    for x_batch, y_batch in dataset.take(3):
        model.test_on_batch(x_batch, y_batch)
print("trained", COUNT * EPOCHS, "examples in", steps, "steps")
