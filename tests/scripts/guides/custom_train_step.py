"""A model with a `train_step` of its own, trained by `fit`."""

import keras
import numpy as np
import tensorflow as tf

COUNT, BATCH, EPOCHS = 1_500, 32, 3


class Own(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=predicted)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        for metric in self.metrics:
            metric.update_state(loss) if metric.name == "loss" else metric.update_state(y, predicted)
        return {metric.name: metric.result() for metric in self.metrics}


inputs = keras.Input((32,))
model = Own(inputs, keras.layers.Dense(1)(inputs))
model.compile("adam", "mse", metrics=["mae"])
x = np.random.default_rng(2).random((COUNT, 32), "float32")
model.fit(x, x[:, :1], batch_size=BATCH, epochs=EPOCHS, verbose=2)
print("trained", COUNT * EPOCHS, "examples in", -(-COUNT // BATCH) * EPOCHS, "steps")
