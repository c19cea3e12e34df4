"""A controller in the manner of orbit: loops of steps in one graph under a strategy, and evaluations."""

import tensorflow as tf

tf.keras.utils.set_random_seed(4)
STEPS_PER_LOOP, LOOPS, BATCH = 25, 12, 16


class Trainer(tf.Module):
    def __init__(self, strategy):
        super().__init__()
        self.strategy = strategy
        with strategy.scope():
            self.model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(8, "relu")])
            self.model.add(tf.keras.layers.Dense(1))
            self.optimizer = tf.keras.optimizers.SGD(0.01)
            self.optimizer.build(self.model.trainable_variables)
            self.train_loss = tf.keras.metrics.Mean()
        x = tf.random.stateless_uniform((160, 8), (1, 2))
        data = tf.data.Dataset.from_tensor_slices((x, tf.reduce_sum(x, 1, keepdims=True)))
        data = data.repeat().batch(BATCH, drop_remainder=True)
        self.iterator = iter(strategy.experimental_distribute_dataset(data))
        self.eval_data = strategy.experimental_distribute_dataset(data.take(4))

    def step(self, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.model(x, training=True) - y) ** 2)
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=False))
        self.train_loss.update_state(loss)

    @tf.function
    def train_loop(self, iterator, steps):
        for _ in tf.range(steps):
            self.strategy.run(self.step, args=(next(iterator),))

    @tf.function
    def eval_step(self, batch):
        return self.strategy.run(lambda x, y: tf.reduce_mean((self.model(x) - y) ** 2), args=batch)


class Controller:
    def __init__(self, trainer):
        self.trainer, self.global_step = trainer, tf.Variable(0, dtype=tf.int64)

    def train(self, steps):
        while self.global_step < steps:
            self.trainer.train_loss.reset_state()
            self.trainer.train_loop(self.trainer.iterator, tf.constant(STEPS_PER_LOOP))
            self.global_step.assign_add(STEPS_PER_LOOP)
            if int(self.global_step) % (4 * STEPS_PER_LOOP) == 0:
                losses = [self.trainer.eval_step(batch) for batch in self.trainer.eval_data]
                print("eval", float(sum(losses)) / len(losses))


trainer = Trainer(tf.distribute.get_strategy())
Controller(trainer).train(LOOPS * STEPS_PER_LOOP)
print("loss", repr(float(trainer.train_loss.result())))
print(f"trained {LOOPS * STEPS_PER_LOOP * BATCH} examples in {LOOPS * STEPS_PER_LOOP} steps")
