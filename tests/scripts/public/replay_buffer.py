"""Deep Q-learning: an environment, a replay buffer of NumPy, actions by the model, updates in a tf.function."""

import collections
import random

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(9)
BATCH, ACTIONS, FRAMES = 32, 2, 900


class Cart:
    def reset(self):
        self.state = np.random.uniform(-0.05, 0.05, 4)
        return self.state

    def step(self, action):
        position, speed, angle, turn = self.state
        push = 1.0 if action else -1.0
        speed, turn = speed + 0.02 * push, turn + 0.02 * (9.8 * np.sin(angle) - push)
        self.state = np.array([position + 0.02 * speed, speed, angle + 0.02 * turn, turn])
        return self.state, 1.0, bool(abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21)


def network():
    dense = keras.layers.Dense
    return keras.Sequential([keras.Input((4,)), dense(24, "relu"), dense(24, "relu"), dense(ACTIONS)])


model, target = network(), network()
target.set_weights(model.get_weights())
optimizer, loss_function = keras.optimizers.Adam(0.001, clipnorm=1.0), keras.losses.Huber()
memory = collections.deque(maxlen=500)


@tf.function
def update(states, actions, rewards, next_states, done):
    best = rewards + 0.99 * tf.reduce_max(target(next_states), axis=1) * (1.0 - done)
    with tf.GradientTape() as tape:
        chosen = tf.reduce_sum(model(states) * tf.one_hot(actions, ACTIONS), axis=1)
        loss = loss_function(best, chosen)
    optimizer.apply_gradients(
        zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=False)
    )
    return loss


game, updates = Cart(), 0
state = game.reset()
for frame in range(FRAMES):
    if random.random() < max(0.1, 1 - frame / 400):
        action = random.randrange(ACTIONS)
    else:
        action = int(tf.argmax(model(tf.convert_to_tensor(state[None], tf.float32), training=False)[0]))
    after, reward, over = game.step(action)
    memory.append((state, action, reward, after, float(over)))
    state = game.reset() if over else after
    if frame % 2 == 0 and len(memory) >= BATCH:
        states, actions, rewards, next_states, done = map(
            np.array, zip(*random.sample(memory, BATCH), strict=False)
        )
        loss = update(
            tf.constant(states, tf.float32),
            tf.constant(actions),
            tf.constant(rewards, tf.float32),
            tf.constant(next_states, tf.float32),
            tf.constant(done, tf.float32),
        )
        updates += 1
    if frame % 200 == 0:
        target.set_weights(model.get_weights())
print("loss", repr(float(loss)))
print(f"trained {updates * BATCH} examples in {updates} steps")
