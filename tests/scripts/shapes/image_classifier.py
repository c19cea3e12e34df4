"""An image classifier as in Keras' examples, with images made by tf.data in place of files."""

import keras
import tensorflow as tf
from keras import layers

COUNT, BATCH, EPOCHS = 420, 32, 4


def image(seed):
    pixels = tf.random.stateless_uniform((32, 32, 3), seed=(0, seed), maxval=255.0)
    return pixels, tf.cast(seed % 3, tf.int32)


train = tf.data.Dataset.range(COUNT).map(image, num_parallel_calls=tf.data.AUTOTUNE).shuffle(128).batch(BATCH)
valid = tf.data.Dataset.range(64).map(image).batch(BATCH)
model = keras.Sequential(
    [
        keras.Input((32, 32, 3)),
        layers.RandomFlip("horizontal"),
        layers.Rescaling(1.0 / 255),
        layers.Conv2D(8, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(3),
    ]
)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
history = model.fit(train.prefetch(tf.data.AUTOTUNE), validation_data=valid, epochs=EPOCHS)
assert "val_accuracy" in history.history
print("trained", COUNT * EPOCHS, "examples in", -(-COUNT // BATCH) * EPOCHS, "steps")
