"""A GAN from scratch: two functions, each with an update, on one batch."""

import keras
import numpy as np
import tensorflow as tf

COUNT, BATCH, EPOCHS, LATENT = 1_280, 64, 2, 8
discriminator = keras.Sequential([keras.Input((16,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
generator = keras.Sequential([keras.Input((LATENT,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(16)])
one, other = keras.optimizers.Adam(3e-4), keras.optimizers.Adam(4e-4)
loss_of = keras.losses.BinaryCrossentropy(from_logits=True)


@tf.function
def train_discriminator(real):
    made = generator(tf.random.normal((BATCH, LATENT)))
    labels = tf.concat([tf.ones((BATCH, 1)), tf.zeros((tf.shape(real)[0], 1))], axis=0)
    with tf.GradientTape() as tape:
        loss = loss_of(labels, discriminator(tf.concat([made, real], axis=0)))
    one.apply(tape.gradient(loss, discriminator.trainable_weights), discriminator.trainable_weights)
    return loss


@tf.function
def train_generator():
    with tf.GradientTape() as tape:
        made = generator(tf.random.normal((BATCH, LATENT)))
        loss = loss_of(tf.zeros((BATCH, 1)), discriminator(made))
    other.apply(tape.gradient(loss, generator.trainable_weights), generator.trainable_weights)
    return loss, made


data = tf.data.Dataset.from_tensor_slices(np.random.default_rng(6).random((COUNT, 16), "float32"))
data = data.shuffle(COUNT).batch(BATCH)
steps = 0
for _ in range(EPOCHS):
    for step, real in enumerate(data):
        loss = train_discriminator(real)
        fooled, made = train_generator()
        steps += 1
        if step % 10 == 0:
            print(f"step {step}: discriminator {float(loss):.3f}, generator {float(fooled):.3f}, {made.shape}")
print("trained", COUNT * EPOCHS, "examples in", steps, "steps")
