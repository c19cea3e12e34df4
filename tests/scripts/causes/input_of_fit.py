"""Calls `fit` with arrays again and again, then with a PyDataset without workers."""

import time

import keras
import numpy as np

keras.utils.set_random_seed(1)
x = np.random.default_rng(1).random((640, 8), dtype="float32")
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
for _ in range(20):
    model.fit(x, x[:, :1], verbose=0)


class Data(keras.utils.PyDataset):
    def __len__(self):
        return 40

    def __getitem__(self, place):
        time.sleep(0.04)
        return x[:32], x[:32, :1]


model.fit(Data(), epochs=4, verbose=0)
