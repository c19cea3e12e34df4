"""Segments images: augmentation layers in `map`, a repeated dataset, a U-Net, a callback that predicts."""

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(6)
rng = np.random.default_rng(6)
images = rng.random((100, 16, 16, 3)).astype("float32")
masks = (images.mean(axis=-1, keepdims=True) > 0.5).astype("int32")
BATCH, STEPS, EPOCHS = 8, 10, 6


class Augment(keras.layers.Layer):
    def __init__(self, seed=42):
        super().__init__()
        self.augment_inputs = keras.layers.RandomFlip(mode="horizontal", seed=seed)
        self.augment_labels = keras.layers.RandomFlip(mode="horizontal", seed=seed)

    def call(self, inputs, labels):
        return self.augment_inputs(inputs), self.augment_labels(labels)


train = tf.data.Dataset.from_tensor_slices((images[:80], masks[:80]))
test = tf.data.Dataset.from_tensor_slices((images[80:], masks[80:])).batch(BATCH)
batches = train.cache().shuffle(80, seed=1).batch(BATCH).repeat().map(Augment()).prefetch(tf.data.AUTOTUNE)
inputs = keras.Input((16, 16, 3))
down = keras.layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(inputs)
lower = keras.layers.Conv2D(16, 3, strides=2, padding="same", activation="relu")(down)
up = keras.layers.Conv2DTranspose(8, 3, strides=2, padding="same", activation="relu")(lower)
up = keras.layers.Concatenate()([up, down])
model = keras.Model(inputs, keras.layers.Conv2DTranspose(2, 3, strides=2, padding="same")(up))
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])


class DisplayCallback(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        mask = self.model.predict(images[:1], verbose=0).argmax(axis=-1)
        print("epoch", epoch + 1, mask.shape)


history = model.fit(
    batches,
    epochs=EPOCHS,
    steps_per_epoch=STEPS,
    validation_steps=2,
    validation_data=test,
    callbacks=[DisplayCallback()],
    verbose=0,
)
print("loss", repr(history.history["loss"][-1]))
print(f"trained {EPOCHS * STEPS * BATCH} examples in {EPOCHS * STEPS} steps")
