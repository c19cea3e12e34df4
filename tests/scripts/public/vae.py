"""A variational autoencoder: a sampling layer, a model with its own `train_step` and several losses by name."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

keras.utils.set_random_seed(3)


class Sampling(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed_generator = keras.random.SeedGenerator(1337)

    def call(self, inputs):
        mean, log_var = inputs
        shape = (ops.shape(mean)[0], ops.shape(mean)[1])
        return mean + ops.exp(0.5 * log_var) * keras.random.normal(shape=shape, seed=self.seed_generator)


images = keras.Input(shape=(14, 14, 1))
x = layers.Conv2D(8, 3, activation="relu", strides=2, padding="same")(images)
x = layers.Dense(16, activation="relu")(layers.Flatten()(x))
mean, log_var = layers.Dense(2, name="z_mean")(x), layers.Dense(2, name="z_log_var")(x)
encoder = keras.Model(images, [mean, log_var, Sampling()([mean, log_var])], name="encoder")
latent = keras.Input(shape=(2,))
x = layers.Reshape((7, 7, 8))(layers.Dense(7 * 7 * 8, activation="relu")(latent))
x = layers.Conv2DTranspose(8, 3, activation="relu", strides=2, padding="same")(x)
decoder = keras.Model(
    latent, layers.Conv2DTranspose(1, 3, activation="sigmoid", padding="same")(x), name="decoder"
)


class VAE(keras.Model):
    def __init__(self, encoder, decoder, **kwargs):
        super().__init__(**kwargs)
        self.encoder, self.decoder = encoder, decoder
        self.trackers = [keras.metrics.Mean(name=name) for name in ("loss", "reconstruction_loss", "kl_loss")]

    @property
    def metrics(self):
        return self.trackers

    def train_step(self, data):
        with tf.GradientTape() as tape:
            mean, log_var, z = self.encoder(data)
            error = keras.losses.binary_crossentropy(data, self.decoder(z))
            reconstruction = ops.mean(ops.sum(error, axis=(1, 2)))
            kl = ops.mean(ops.sum(-0.5 * (1 + log_var - ops.square(mean) - ops.exp(log_var)), axis=1))
            total = reconstruction + kl
        grads = tape.gradient(total, self.trainable_weights)
        self.optimizer.apply_gradients(zip(grads, self.trainable_weights, strict=False))
        for tracker, value in zip(self.trackers, (total, reconstruction, kl), strict=False):
            tracker.update_state(value)
        return {one.name: one.result() for one in self.trackers}


digits = np.random.default_rng(0).random((1_300, 14, 14, 1)).astype("float32")
vae = VAE(encoder, decoder)
vae.compile(optimizer=keras.optimizers.Adam())
history = vae.fit(digits, epochs=6, batch_size=128, verbose=0)
for row in range(3):
    vae.decoder.predict(np.array([[0.1 * row, 0.2]]), verbose=0)
print("loss", repr(history.history["loss"][-1]))
print(f"trained {6 * 1_300} examples in {6 * 11} steps")
