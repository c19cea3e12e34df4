"""Classifies texts: a TextVectorization layer adapted to them, a mapped dataset, `fit`, and a model end to end."""

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
rng = np.random.default_rng(7)
POSITIVE, NEGATIVE = ["good", "great", "fine"], ["bad", "poor", "awful"]
NEUTRAL = ["film", "plot", "actor", "scene", "music", "the", "a", "of", "and"]
labels = rng.integers(0, 2, 1_210)
texts = [" ".join([*rng.choice(NEUTRAL, 20), *rng.choice(POSITIVE if label else NEGATIVE, 4)]) for label in labels]
raw_train = tf.data.Dataset.from_tensor_slices((texts[:1_000], labels[:1_000])).batch(32)
raw_test = tf.data.Dataset.from_tensor_slices((texts[1_000:], labels[1_000:])).batch(32)

vectorize = keras.layers.TextVectorization(max_tokens=200, output_sequence_length=24)
vectorize.adapt(raw_train.map(lambda text, label: text))


def to_tokens(text, label):
    return vectorize(tf.expand_dims(text, -1)), label


train = raw_train.map(to_tokens).cache().prefetch(buffer_size=10)
test = raw_test.map(to_tokens).cache().prefetch(buffer_size=10)
inputs = keras.Input(shape=(None,), dtype="int64")
x = keras.layers.Embedding(200, 32)(inputs)
x = keras.layers.Dropout(0.2)(x)
x = keras.layers.Conv1D(32, 5, padding="valid", activation="relu")(x)
x = keras.layers.GlobalMaxPooling1D()(x)
model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(x))
model.compile(loss="binary_crossentropy", optimizer="adam", metrics=["accuracy"])
EPOCHS = 12
history = model.fit(train, validation_data=test, epochs=EPOCHS, verbose=2)
model.evaluate(test, verbose=0)

strings = keras.Input(shape=(1,), dtype="string")
end_to_end = keras.Model(strings, model(vectorize(strings)))
end_to_end.compile(loss="binary_crossentropy", optimizer="adam", metrics=["accuracy"])
print(end_to_end.evaluate(raw_test, verbose=0))
print("loss", repr(history.history["loss"][-1]))
print(f"trained {1_000 * EPOCHS} examples in {32 * EPOCHS} steps")
