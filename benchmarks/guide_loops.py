"""Small trainings in the manner of public guides, for guides.py: `guide_loops.py KIND FILE`.

The CPU seconds of this process, from the first step on and in total, are written into FILE.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(1)
RANDOM = np.random.default_rng(1)
dense = keras.layers.Dense


def network(inputs: int, outputs: int, width: int = 32, last: str | None = None) -> keras.Model:
    return keras.Sequential(
        [keras.Input((inputs,)), dense(width, "relu"), dense(width, "relu"), dense(outputs, last)]
    )


def some(*shape: int) -> tf.Tensor:
    return tf.constant(RANDOM.normal(size=shape), tf.float32)


def update_by(optimizer: keras.Optimizer, tape: tf.GradientTape, loss: tf.Tensor, variables: list) -> None:
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))


def ddpg() -> None:
    """Eager actions, two networks with their targets, updates in a function, targets by `assign`."""
    actor, critic, actor_target, critic_target = network(3, 1), network(4, 1), network(3, 1), network(4, 1)
    actor_optimizer, critic_optimizer = keras.optimizers.Adam(0.001), keras.optimizers.Adam(0.002)
    states, actions = RANDOM.normal(size=(1_000, 3)).astype("float32"), some(1_000, 1)

    @tf.function
    def update(state: tf.Tensor, action: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            aim = 0.99 * critic_target(tf.concat([state, actor_target(state)], 1))
            loss = tf.reduce_mean(tf.square(aim - critic(tf.concat([state, action], 1))))
        update_by(critic_optimizer, tape, loss, critic.trainable_variables)
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(critic(tf.concat([state, actor(state)], 1)))
        update_by(actor_optimizer, tape, loss, actor.trainable_variables)

    for _ in range(900):
        float(actor(states[:1])[0, 0])
        chosen = RANDOM.integers(0, 1_000, 64)
        update(tf.constant(states[chosen]), tf.gather(actions, chosen))
        for target, model in ((actor_target, actor), (critic_target, critic)):
            for slow, fast in zip(target.variables, model.variables, strict=True):
                slow.assign(fast * 0.005 + slow * 0.995)


def actor_critic() -> None:
    """One tape around each episode of eager calls."""
    body, policy, value = dense(64, "relu"), dense(2), dense(1)
    optimizer = keras.optimizers.Adam(0.01)
    for _ in range(70):
        with tf.GradientTape() as tape:
            chances, values, state = [], [], some(1, 4)
            for _ in range(40):
                common = body(state)
                chance = tf.nn.softmax(policy(common))
                action = int(RANDOM.random() < float(chance[0, 0]))
                chances.append(tf.math.log(chance[0, action]))
                values.append(value(common)[0, 0])
                state = state + 0.1 * (action - 0.5)
            returns = tf.range(40.0, 0.0, -1.0)
            gain = returns - tf.stack(values)
            loss = tf.reduce_sum(-tf.stack(chances) * gain) + tf.reduce_sum(tf.square(gain))
        variables = [*body.trainable_variables, *policy.trainable_variables, *value.trainable_variables]
        update_by(optimizer, tape, loss, variables)


def gan() -> None:
    """Two models and two optimizers in one function."""
    generator, critic = network(16, 64), network(64, 1)
    optimizers = keras.optimizers.Adam(1e-4), keras.optimizers.Adam(1e-4)
    entropy = keras.losses.BinaryCrossentropy(from_logits=True)

    @tf.function
    def step(real: tf.Tensor) -> None:
        with tf.GradientTape() as one, tf.GradientTape() as two:
            fake = generator(tf.random.normal([tf.shape(real)[0], 16]), training=True)
            told_real, told_fake = critic(real, training=True), critic(fake, training=True)
            makes = entropy(tf.ones_like(told_fake), told_fake)
            finds = entropy(tf.ones_like(told_real), told_real) + entropy(tf.zeros_like(told_fake), told_fake)
        update_by(optimizers[0], one, makes, generator.trainable_variables)
        update_by(optimizers[1], two, finds, critic.trainable_variables)

    data = tf.data.Dataset.from_tensor_slices(some(6_400, 64)).shuffle(6_400).batch(64)
    for _ in range(15):
        for batch in data:
            step(batch)


def seq2seq() -> None:
    """An encoder and a decoder whose words follow in a loop within the function."""
    encoder, cell, words = keras.layers.GRU(32, return_state=True), keras.layers.GRUCell(32), dense(50)
    embed, optimizer = keras.layers.Embedding(50, 16), keras.optimizers.Adam()
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            _, state = encoder(embed(source))
            loss = 0.0
            for place in range(1, 8):
                output, state = cell(embed(target[:, place - 1]), state)
                loss += entropy(target[:, place], words(output))
        layers = (encoder, cell, words, embed)
        variables = [variable for layer in layers for variable in layer.trainable_variables]
        update_by(optimizer, tape, loss, variables)
        return loss

    texts = tf.constant(RANDOM.integers(0, 50, (3_200, 8)))
    for _ in range(4):
        for source, target in tf.data.Dataset.from_tensor_slices((texts, texts)).batch(32):
            float(step(source, target))


def tuner() -> None:
    """A search: a new model and a short `fit` for each setting."""
    inputs, targets = some(2_048, 16), some(2_048, 1)
    for width in (8, 16, 32, 64, 96, 128):
        model = network(16, 1, width)
        model.compile("adam", "mse")
        model.fit(inputs, targets, validation_split=0.2, epochs=5, batch_size=32, verbose=0)


def callbacks() -> None:
    """`fit` with callbacks, validation and a stop at the best epoch."""
    model = network(32, 10, 64, "softmax")
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    inputs, targets = RANDOM.normal(size=(6_400, 32)), RANDOM.integers(0, 10, 6_400)
    watching = [
        keras.callbacks.EarlyStopping(patience=99, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau(patience=3),
        keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: None),
    ]
    model.fit(inputs, targets, epochs=12, validation_split=0.1, verbose=2, callbacks=watching)


def towers() -> None:
    """Two devices with an own loop, by tf.distribute."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model, optimizer = network(32, 1, 64), keras.optimizers.SGD(0.01)

    def replica(inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(inputs) - targets))
        update_by(optimizer, tape, loss, model.trainable_variables)
        return loss

    @tf.function
    def step(inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        losses = strategy.run(replica, args=(inputs, targets))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    data = tf.data.Dataset.from_tensor_slices((some(6_400, 32), some(6_400, 1))).batch(64)
    for _ in range(8):
        for batch in strategy.experimental_distribute_dataset(data):
            step(*batch)


def accumulation() -> None:
    """Eager gradients of four small batches for each update."""
    model, optimizer = network(32, 1, 64), keras.optimizers.Adam()
    data, sums, held = tf.data.Dataset.from_tensor_slices((some(6_400, 32), some(6_400, 1))).batch(16), None, 0
    for _ in range(2):
        for inputs, targets in data:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(inputs) - targets)) / 4
            gradients = tape.gradient(loss, model.trainable_variables)
            sums = gradients if sums is None else [old + new for old, new in zip(sums, gradients, strict=True)]
            held += 1
            if held == 4:
                optimizer.apply_gradients(zip(sums, model.trainable_variables, strict=True))
                sums, held = None, 0


def agent() -> None:
    """Eager collection into a buffer, and updates from a dataset over it."""
    model, target, optimizer = network(4, 2, 64), network(4, 2, 64), keras.optimizers.Adam()
    buffer = [RANDOM.normal(size=4).astype("float32") for _ in range(500)]

    def draws():
        while True:
            yield buffer[RANDOM.integers(len(buffer))]

    spec = tf.TensorSpec((4,), tf.float32)
    batches = iter(tf.data.Dataset.from_generator(draws, output_signature=spec).batch(32).prefetch(3))

    @tf.function
    def train(states: tf.Tensor) -> tf.Tensor:
        aims = 1.0 + 0.9 * tf.reduce_max(target(states), axis=1)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(aims - tf.reduce_max(model(states), axis=1)))
        update_by(optimizer, tape, loss, model.trainable_variables)
        return loss

    for number in range(1_200):
        state = buffer[number % 500]
        buffer[number % 500] = state + 0.1 * float(tf.argmax(model(state[None])[0]))
        train(next(batches))
        if number % 100 == 0:
            target.set_weights(model.get_weights())


KINDS: dict[str, Callable[[], None]] = {
    work.__name__: work
    for work in (ddpg, actor_critic, gan, seq2seq, tuner, callbacks, towers, accumulation, agent)
}
if __name__ == "__main__":
    if sys.argv[1] == "towers":
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    started = time.process_time()
    KINDS[sys.argv[1]]()
    ended = time.process_time()
    Path(sys.argv[2]).write_text(f"{started} {ended - started}")
