"""Transfer learning: `fit` with a frozen base, then with some of it unfrozen, compiled again, that goes on."""

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(5)
rng = np.random.default_rng(5)
images, labels = rng.random((330, 32, 32, 3)).astype("float32"), rng.integers(0, 2, 330).astype("float32")
train = tf.data.Dataset.from_tensor_slices((images[:250], labels[:250])).shuffle(250, seed=1).batch(32)
train = train.prefetch(tf.data.AUTOTUNE)
validation = tf.data.Dataset.from_tensor_slices((images[250:], labels[250:])).batch(32)
augment = keras.Sequential(
    [keras.layers.RandomFlip("horizontal", seed=1), keras.layers.RandomRotation(0.2, seed=2)]
)
base = keras.Sequential(
    [keras.Input((32, 32, 3))]
    + [keras.layers.Conv2D(8, 3, activation="relu", padding="same") for _ in range(3)]
    + [keras.layers.BatchNormalization()]
)
base.trainable = False
inputs = keras.Input((32, 32, 3))
x = base(augment(inputs), training=False)
x = keras.layers.Dropout(0.2)(keras.layers.GlobalAveragePooling2D()(x))
model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(x))
model.compile(optimizer=keras.optimizers.Adam(1e-3), loss="binary_crossentropy", metrics=["accuracy"])
model.evaluate(validation, verbose=0)
first = model.fit(train, epochs=6, validation_data=validation, verbose=0)
base.trainable = True
for layer in base.layers[:2]:
    layer.trainable = False
model.compile(optimizer=keras.optimizers.RMSprop(1e-4), loss="binary_crossentropy", metrics=["accuracy"])
second = model.fit(train, epochs=12, initial_epoch=first.epoch[-1] + 1, validation_data=validation, verbose=0)
print("loss", repr(first.history["loss"][-1]), repr(second.history["val_loss"][-1]))
print(f"trained {12 * 250} examples in {12 * 8} steps")
