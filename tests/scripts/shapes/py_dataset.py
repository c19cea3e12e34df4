"""Batches made in Python, slowly: a PyDataset, then a generator with `steps_per_epoch`."""

import time

import keras
import numpy as np
from keras import layers

BATCH, BATCHES, EPOCHS = 16, 20, 3


class Slow(keras.utils.PyDataset):
    def __len__(self):
        return BATCHES

    def __getitem__(self, index):
        time.sleep(0.08)
        return np.full((BATCH, 12), index / BATCHES, "float32"), np.zeros((BATCH, 1), "float32")


def generator():
    while True:
        time.sleep(0.08)
        yield np.ones((BATCH, 12), "float32"), np.zeros((BATCH, 1), "float32")


model = keras.Sequential([keras.Input((12,)), layers.Dense(8), layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(Slow(), epochs=EPOCHS, verbose=2)
model.fit(generator(), steps_per_epoch=BATCHES, epochs=EPOCHS, verbose=2)
for _ in range(5):
    model.train_on_batch(np.ones((BATCH, 12)), np.zeros((BATCH, 1)))
print("trained", (2 * EPOCHS * BATCHES + 5) * BATCH, "examples in", 2 * EPOCHS * BATCHES + 5, "steps")
