"""Forecasts a series: `timeseries_dataset_from_array`, an LSTM, early stopping, a checkpoint of the best."""

import pathlib
import tempfile

import keras
import numpy as np

keras.utils.set_random_seed(2)
PAST, BATCH = 48, 64
series = np.sin(np.arange(2_000)[:, None] / np.array([5.0, 9.0, 23.0])).astype("float32")
split = 1_500


def windows(part):
    return keras.utils.timeseries_dataset_from_array(
        part[:-PAST], part[PAST:, 0], sequence_length=PAST, sampling_rate=2, batch_size=BATCH
    )


train, validation = windows(series[:split]), windows(series[split:])
for batch in train.take(1):
    inputs, targets = batch
first = keras.layers.Input(shape=(inputs.shape[1], inputs.shape[2]))
model = keras.Model(first, keras.layers.Dense(1)(keras.layers.LSTM(16)(first)))
model.compile(optimizer=keras.optimizers.Adam(learning_rate=0.001), loss="mse")
best = str(pathlib.Path(tempfile.mkdtemp()) / "best.weights.h5")
callbacks = [
    keras.callbacks.EarlyStopping(monitor="val_loss", min_delta=0, patience=2),
    keras.callbacks.ModelCheckpoint(
        monitor="val_loss", filepath=best, save_weights_only=True, save_best_only=True
    ),
]
history = model.fit(train, epochs=8, validation_data=validation, callbacks=callbacks, verbose=0)
model.load_weights(best)
for x, _ in validation.take(2):
    model.predict(x, verbose=0)
epochs, steps = len(history.epoch), len(train)
examples = sum(len(x) for x, _ in train)
print("loss", repr(history.history["loss"][-1]))
print(f"trained {epochs * examples} examples in {epochs * steps} steps")
