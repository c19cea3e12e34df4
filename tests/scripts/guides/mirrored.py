"""A loop of its own over a distributed dataset, on two replicas."""

import keras
import numpy as np
import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
COUNT, BATCH, EPOCHS = 2_000, 64, 3
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
x = np.random.default_rng(0).random((COUNT, 12), "float32")
dataset = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).shuffle(COUNT).batch(BATCH)
dataset = strategy.experimental_distribute_dataset(dataset)
with strategy.scope():
    model = keras.Sequential([keras.Input((12,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)


def replica_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(model(x, training=True) - y)) / BATCH
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


@tf.function
def train_step(inputs):
    losses = strategy.run(replica_step, args=inputs)
    return strategy.reduce("SUM", losses, axis=None)


steps = 0
for epoch in range(EPOCHS):
    total = 0.0
    for inputs in dataset:
        total += train_step(inputs)
        steps += 1
    print(f"epoch {epoch}: loss {total:.3f}")
print("trained", COUNT * EPOCHS, "examples in", steps, "steps")
