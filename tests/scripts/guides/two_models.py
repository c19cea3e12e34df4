"""Two models, one after the other: a teacher by `fit`, then a student by a loop of its own, run eagerly."""

import keras
import numpy as np
import tensorflow as tf

COUNT, BATCH, EPOCHS = 1_024, 32, 2
x = np.random.default_rng(7).random((COUNT, 10), "float32")
teacher = keras.Sequential([keras.Input((10,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
teacher.compile("adam", "mse")
teacher.fit(x, x.sum(1), batch_size=BATCH, epochs=EPOCHS, verbose=0)
student = keras.Sequential([keras.Input((10,)), keras.layers.Dense(4, "relu"), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.01)
dataset = tf.data.Dataset.from_tensor_slices(x).batch(BATCH, drop_remainder=True)
steps = 0
for batch in dataset.repeat(EPOCHS):
    wanted = teacher(batch)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(student(batch, training=True) - wanted))
    optimizer.apply(tape.gradient(loss, student.trainable_variables), student.trainable_variables)
    steps += 1
print(f"loss {float(loss):.4f}")
print("trained", 2 * COUNT * EPOCHS, "examples in", COUNT // BATCH * EPOCHS + steps, "steps")
