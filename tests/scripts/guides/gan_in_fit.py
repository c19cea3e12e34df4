"""A GAN in `fit`: its `train_step` makes two updates a batch."""

import keras
import numpy as np
import tensorflow as tf

COUNT, BATCH, EPOCHS, LATENT = 1_000, 50, 3, 8
discriminator = keras.Sequential([keras.Input((16,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
generator = keras.Sequential([keras.Input((LATENT,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(16)])


class Gan(keras.Model):
    def __init__(self):
        super().__init__()
        self.seed_generator = keras.random.SeedGenerator(7)
        self.tracker = keras.metrics.Mean(name="loss")

    def compile(self, one, other, loss_of):
        super().compile()
        self.one, self.other, self.loss_of = one, other, loss_of

    @property
    def metrics(self):
        return [self.tracker]

    def train_step(self, real):
        size = tf.shape(real)[0]
        noise = keras.random.normal((size, LATENT), seed=self.seed_generator)
        both = tf.concat([generator(noise), real], axis=0)
        labels = tf.concat([tf.ones((size, 1)), tf.zeros((size, 1))], axis=0)
        with tf.GradientTape() as tape:
            loss = self.loss_of(labels, discriminator(both))
        weights = discriminator.trainable_weights
        self.one.apply(tape.gradient(loss, weights), weights)
        with tf.GradientTape() as tape:
            fooled = self.loss_of(tf.zeros((size, 1)), discriminator(generator(noise)))
        weights = generator.trainable_weights
        self.other.apply(tape.gradient(fooled, weights), weights)
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


gan = Gan()
gan.compile(
    keras.optimizers.Adam(3e-4), keras.optimizers.Adam(3e-4), keras.losses.BinaryCrossentropy(from_logits=True)
)
data = tf.data.Dataset.from_tensor_slices(np.random.default_rng(5).random((COUNT, 16), "float32")).batch(BATCH)
gan.fit(data, epochs=EPOCHS, verbose=0)
print("trained", COUNT * EPOCHS, "examples in", COUNT // BATCH * EPOCHS, "steps")
