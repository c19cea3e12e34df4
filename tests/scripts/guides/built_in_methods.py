"""`fit` with validation, callbacks and a schedule, then `evaluate` and `predict`."""

import tempfile

import keras
import numpy as np
import tensorflow as tf

COUNT, BATCH, EPOCHS = 2_000, 64, 4
random = np.random.default_rng(3)
x = random.random((COUNT, 20), "float32")
y = (x.sum(1) > 10).astype("int32")
model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(24, "relu"), keras.layers.Dense(2, "softmax")])
schedule = keras.optimizers.schedules.ExponentialDecay(0.01, decay_steps=50, decay_rate=0.9)
model.compile(keras.optimizers.RMSprop(schedule), "sparse_categorical_crossentropy", metrics=["accuracy"])
train = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(COUNT, seed=1).batch(BATCH)
held = tf.data.Dataset.from_tensor_slices((x[:300], y[:300])).batch(BATCH)
with tempfile.TemporaryDirectory() as folder:
    callbacks = [
        keras.callbacks.EarlyStopping(monitor="val_loss", patience=EPOCHS),
        keras.callbacks.ModelCheckpoint(f"{folder}/best.keras", save_best_only=True),
        keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: print(f"epoch {epoch}: {logs['loss']:.3f}")
        ),
    ]
    history = model.fit(train, epochs=EPOCHS, validation_data=held, callbacks=callbacks, verbose=0)
model.evaluate(held, verbose=0)
assert model.predict(x[:5], verbose=0).shape == (5, 2)
epochs = len(history.epoch)
print("trained", COUNT * epochs, "examples in", -(-COUNT // BATCH) * epochs, "steps")
