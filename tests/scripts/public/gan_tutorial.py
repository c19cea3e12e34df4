"""A GAN in a loop of its own: two optimizers and two tapes in one tf.function, checkpoints, images each epoch."""

import pathlib
import tempfile

import tensorflow as tf

tf.keras.utils.set_random_seed(11)
layers = tf.keras.layers
BUFFER, BATCH, NOISE, EPOCHS = 600, 50, 10, 8
images = tf.random.stateless_uniform((BUFFER + 10, 12, 12, 1), (1, 2))
dataset = tf.data.Dataset.from_tensor_slices(images).shuffle(BUFFER, seed=1).batch(BATCH)
generator = tf.keras.Sequential(
    [
        tf.keras.Input((NOISE,)),
        layers.Dense(6 * 6 * 8, use_bias=False),
        layers.BatchNormalization(),
        layers.LeakyReLU(),
        layers.Reshape((6, 6, 8)),
        layers.Conv2DTranspose(1, 5, strides=2, padding="same", activation="tanh"),
    ]
)
discriminator = tf.keras.Sequential(
    [
        tf.keras.Input((12, 12, 1)),
        layers.Conv2D(8, 5, strides=2, padding="same"),
        layers.LeakyReLU(),
        layers.Dropout(0.3),
        layers.Flatten(),
        layers.Dense(1),
    ]
)
cross_entropy = tf.keras.losses.BinaryCrossentropy(from_logits=True)
generator_optimizer, discriminator_optimizer = tf.keras.optimizers.Adam(1e-4), tf.keras.optimizers.Adam(1e-4)
folder = tempfile.mkdtemp()
checkpoint = tf.train.Checkpoint(
    generator_optimizer=generator_optimizer,
    discriminator_optimizer=discriminator_optimizer,
    generator=generator,
    discriminator=discriminator,
)
seed = tf.random.stateless_normal((4, NOISE), (3, 4))


@tf.function
def train_step(images):
    noise = tf.random.normal([BATCH, NOISE])
    with tf.GradientTape() as gen_tape, tf.GradientTape() as disc_tape:
        generated = generator(noise, training=True)
        real, fake = discriminator(images, training=True), discriminator(generated, training=True)
        gen_loss = cross_entropy(tf.ones_like(fake), fake)
        disc_loss = cross_entropy(tf.ones_like(real), real) + cross_entropy(tf.zeros_like(fake), fake)
    for model, optimizer, tape, loss in (
        (generator, generator_optimizer, gen_tape, gen_loss),
        (discriminator, discriminator_optimizer, disc_tape, disc_loss),
    ):
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    return gen_loss, disc_loss


steps = examples = 0
for epoch in range(EPOCHS):
    for batch in dataset:
        losses = train_step(batch)
        steps, examples = steps + 1, examples + len(batch)
    generator(seed, training=False)
    if (epoch + 1) % 4 == 0:
        checkpoint.save(str(pathlib.Path(folder) / "ckpt"))
print("loss", *(repr(float(one)) for one in losses))
print(f"trained {examples} examples in {steps} steps")
