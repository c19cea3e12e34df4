"""Text classification: raw strings, a TextVectorization in the pipeline, an Embedding, a custom `train_step`."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

COUNT, BATCH, EPOCHS = 3_000, 50, 3
words = np.random.default_rng(0).choice(["good", "bad", "fine", "awful", "so", "so", "very"], (COUNT, 40))
texts = np.array([" ".join(line) for line in words])
labels = (words == "good").sum(1) > (words == "bad").sum(1)
vectorize = layers.TextVectorization(max_tokens=64, output_sequence_length=40)
vectorize.adapt(texts)
data = tf.data.Dataset.from_tensor_slices((texts, labels.astype("float32"))).batch(BATCH)
data = data.map(lambda text, label: (vectorize(text), label)).prefetch(1)


class Classifier(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner = keras.Sequential(
            [layers.Embedding(64, 16), layers.GlobalAveragePooling1D(), layers.Dense(1, activation="sigmoid")]
        )

    def call(self, x):
        return self.inner(x)

    def train_step(self, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y[:, None], y_pred=self(x, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


model = Classifier()
model.compile("adam", "binary_crossentropy")
model.fit(data, epochs=EPOCHS, verbose=0)
model.fit(data, epochs=EPOCHS, verbose=2)
print("scores", model.evaluate(data, verbose=0), model.predict(data, verbose=0).shape)
print("trained", 2 * COUNT * EPOCHS, "examples in", 2 * -(-COUNT // BATCH) * EPOCHS, "steps")
