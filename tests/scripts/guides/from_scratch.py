"""A training loop from scratch: a step in a graph, metrics, validation after each epoch, a log now and then."""

import time

import keras
import numpy as np
import tensorflow as tf

COUNT, HELD, BATCH, EPOCHS = 4_000, 600, 64, 2
random = np.random.default_rng(1)
images = random.random((COUNT + HELD, 8, 8), "float32")
labels = (images.mean((1, 2)) * 20).astype("int64") % 10
train = tf.data.Dataset.from_tensor_slices((images[:COUNT], labels[:COUNT])).shuffle(1_024).batch(BATCH)
held = tf.data.Dataset.from_tensor_slices((images[COUNT:], labels[COUNT:])).batch(BATCH)
inputs = keras.Input((8, 8))
outputs = keras.layers.Dense(10)(keras.layers.Dense(32, activation="relu")(keras.layers.Flatten()(inputs)))
model = keras.Model(inputs, outputs)
optimizer = keras.optimizers.Adam(0.003)
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
accuracy, held_accuracy = keras.metrics.SparseCategoricalAccuracy(), keras.metrics.SparseCategoricalAccuracy()


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        logits = model(x, training=True)
        loss = loss_of(y, logits)
    optimizer.apply(tape.gradient(loss, model.trainable_weights), model.trainable_weights)
    accuracy.update_state(y, logits)
    return loss


@tf.function
def test_step(x, y):
    held_accuracy.update_state(y, model(x, training=False))


steps = 0
for _ in range(EPOCHS):
    began = time.time()
    for step, (x, y) in enumerate(train):
        loss = train_step(x, y)
        steps += 1
        if step % 20 == 0:
            print(f"step {step}: loss {float(loss):.4f}, {(step + 1) * BATCH} examples seen")
    print(f"accuracy {float(accuracy.result()):.3f}")
    accuracy.reset_state()
    for x, y in held:
        test_step(x, y)
    print(f"held-out accuracy {float(held_accuracy.result()):.3f} after {time.time() - began:.1f} s")
    held_accuracy.reset_state()
print("trained", COUNT * EPOCHS, "examples in", steps, "steps")
