"""Calls `fit` with arrays again and again, or with a PyDataset without workers."""

import sys
import time

import keras
import numpy as np

keras.utils.set_random_seed(1)
x = np.random.default_rng(1).random((640, 8), dtype="float32")
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")


class Data(keras.utils.PyDataset):
    def __len__(self):
        return 24

    def __getitem__(self, place):
        time.sleep(0.1)  # longer than a step, also on a busy machine
        return x[:32], x[:32, :1]


def arrays():
    for _ in range(20):
        model.fit(x, x[:, :1], verbose=0)


def dataset():
    model.fit(Data(), epochs=3, verbose=0)


for name in sys.argv[1:]:
    globals()[name]()
