"""What a cause is, and those of slow input and of devices that are not used well; see `causes`. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tfmon.model.knobs import KnobValue

LEAST_SHARE = 0.03
"""A cause is told from this share of the time on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseKind:
    """A cause that can be observed."""

    id: str
    """Stays the same from version to version."""
    title: str
    """A few words, for one line of a pane."""
    says: str
    """Its sentence. {subject}, {what}, {times}, {count}, {cost}, {share} and {place} are filled in."""
    mends: str
    """What to do about it, in a sentence."""
    code: tuple[str, ...] = ()
    """The lines to write; those of the knob where there are none."""
    knob: tuple[str, KnobValue] | None = None
    """What may be tried while the script trains, where the lane offers it."""
    recognised: str
    """How it is observed."""
    asked: tuple[str, ...] = ()
    """Public threads of people who had it."""
    least_share: float = LEAST_SHARE
    least_s: float = 0.0
    least_count: int = 1
    of_input: bool = False
    """Whether it takes a part of what the lane waits for input, its figure `of_input`, or hides some of that,
    `of_overlap`; and no time of its own."""


LEAST_OF_INPUT = 0.1
"""A line of an input pipeline is told from this share of the lane's time on."""
_WAITS = "; the lane waits for it {share} of its time"

INPUT = (
    CauseKind(
        id="input_generator",
        title="{subject} makes the input in Python",
        says="{subject} makes one example at a time in Python" + _WAITS,
        mends="yield whole batches, and leave out the `batch` after it; or let tf.data read and prepare the data",
        code=(
            "yield x[i : i + 32], y[i : i + 32]  # whole batches; the output_signature begins with None",
            "dataset = tf.data.Dataset.from_generator(batches, output_signature=...).prefetch(tf.data.AUTOTUNE)",
            "dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)  # or without Python, where it fits",
        ),
        recognised="The pipeline begins with a Python generator, whose elements are batched later, and tf.data's "
        "own statistics say how much of its work is in it.",
        asked=("tensorflow#39494",),
        least_share=LEAST_OF_INPUT,
        of_input=True,
    ),
    CauseKind(
        id="input_generator_batches",
        title="{subject} makes the input in Python",
        says="{subject} makes batches in Python, one after the other" + _WAITS,
        mends="compute whole batches with NumPy; or let tf.data do it, or the workers of a PyDataset",
        code=(
            "dataset = tf.data.Dataset.from_tensor_slices(paths).map(read, num_parallel_calls=tf.data.AUTOTUNE)",
            "model.fit(Data(..., workers=4, use_multiprocessing=True))  # a keras.utils.PyDataset",
        ),
        recognised="The pipeline begins with a Python generator, whose elements are batches, and tf.data's own "
        "statistics say how much of its work is in it.",
        asked=("tensorflow#39494", "keras#20032"),
        least_share=LEAST_OF_INPUT,
        of_input=True,
    ),
    CauseKind(
        id="input_python_function",
        title="{subject} runs Python for each element",
        says="{subject} calls {what}, which runs one element at a time, however many parallel calls" + _WAITS,
        mends="write it in TensorFlow's operations; or call it on whole batches, after `batch`",
        code=(
            "x = tf.image.resize(x, (64, 64))  # operations of TensorFlow run in parallel, Python does not",
            "dataset = dataset.batch(32).map(prepare)  # or Python once for each batch",
        ),
        recognised="The function of a `map` has an operation that calls Python, and tf.data's own statistics say "
        "how much of its work is in that map.",
        asked=("tensorflow#39494",),
        least_share=LEAST_OF_INPUT,
        of_input=True,
    ),
    CauseKind(
        id="input_py_dataset",
        title="{subject} makes its batches one after the other",
        says="{subject} makes its batches in one thread ({what})" + _WAITS,
        mends="give it workers; processes (use_multiprocessing=True) where it computes in Python",
        code=("data = Data(..., workers=4, max_queue_size=16)  # and super().__init__(**kwargs) in its __init__",),
        recognised="`fit` reads a PyDataset or Sequence without workers, and tf.data's own statistics say how "
        "much of the work is in it.",
        asked=("keras#17118", "keras#20032", "keras#20425"),
        least_share=LEAST_OF_INPUT,
        of_input=True,
    ),
    CauseKind(
        id="input_map_after_cache",
        title="{subject} runs again in each epoch",
        says="{subject} runs again in each epoch, though its data is kept before it and it has nothing random"
        + _WAITS,
        mends="cache after it, if its results fit in memory",
        code=("dataset = dataset.map(decode).cache().shuffle(1000).batch(32)",),
        recognised="A `map` whose function has no operation with a state reads from a `cache`, and tf.data's own "
        "statistics say how much of its work is in that map.",
        asked=("tensorflow#39494",),
        least_share=LEAST_OF_INPUT,
        of_input=True,
    ),
    CauseKind(
        id="input_map_before_batch",
        title="{subject} is called for each example",
        says="{subject} is called for each example, and would do the same for a batch of {what} at once" + _WAITS,
        mends="batch first: its operations work on a batch as on each example",
        code=("dataset = dataset.batch(32).map(prepare, num_parallel_calls=tf.data.AUTOTUNE)",),
        recognised="A `map` before `batch` takes less than 0.2 ms for an example, and has only operations that "
        "work on each value by itself; tf.data's own statistics say how much of its work is in it.",
        asked=("tensorflow#39494",),
        least_share=LEAST_OF_INPUT,
        of_input=True,
    ),
    CauseKind(
        id="input_sequential_map",
        title="{subject} prepares one element at a time",
        says="{subject} prepares one element at a time" + _WAITS,
        mends="let it prepare several at once",
        code=("dataset = dataset.map(prepare, num_parallel_calls=tf.data.AUTOTUNE)",),
        recognised="A `map` has no `num_parallel_calls`, and tf.data runs it in one thread: it does that where "
        "the function has a state, such as random operations.",
        asked=("tensorflow#31654",),
        least_share=LEAST_OF_INPUT,
        of_input=True,
    ),
    CauseKind(
        id="input_no_prefetch",
        title="{subject} makes no batch ahead",
        says="no batch is made while a step runs: {subject} does not end with `prefetch` ({what}); it could hide "
        "{share} of the time",
        mends="end it with `prefetch`",
        code=("dataset = dataset.batch(32).prefetch(tf.data.AUTOTUNE)",),
        knob=("prefetch", "auto"),
        recognised="The pipeline ends without `prefetch`, and its options keep tf.data from adding one.",
        asked=("tensorflow#39494",),
        least_share=LEAST_OF_INPUT / 2,
        of_input=True,
    ),
    CauseKind(
        id="input_arrays",
        title="each `fit` makes its dataset again",
        says="`fit` made a dataset of its arrays {times} more; that took {cost}, {share} of the time",
        mends="make the dataset once, before the loop; or call `fit` once with all epochs",
        code=(
            "data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).batch(32)  # once, before the loop",
            "model.fit(data)",
        ),
        recognised="A model is fitted again with arrays; what it took is the time from the call to the beginning "
        "of the training, from the second call on.",
        least_count=2,
    ),
)
"""Lines of a script that make its input slow."""

GPU = (
    CauseKind(
        id="gpu_no_cudnn",
        title="{subject} does not use cuDNN",
        says="{subject} runs step by step, as a loop, and not as one kernel of cuDNN: {what}",
        mends="give it the arguments that cuDNN's kernel has; dropout between layers is possible",
        code=(
            'layers.LSTM(128, activation="tanh", recurrent_activation="sigmoid", use_bias=True, unroll=False)',
            "layers.LSTM(128, dropout=0.2, recurrent_dropout=0.0)",
            "layers.GRU(128, reset_after=True)",
        ),
        recognised="A model that `fit` trains on a GPU has an LSTM or GRU with an argument that cuDNN's kernel "
        "does not have, for which Keras falls back without a word; legacy Keras warns.",
        asked=("keras#19644", "tensorflow#46567"),
        least_share=0.0,
    ),
    CauseKind(
        id="gpu_deterministic",
        title="{subject} is on",
        says="{subject} is on: operations use slower kernels that give the same sums each time, and Keras does "
        "not compile with XLA",
        mends="turn it off where the same bits are not needed; a seed alone keeps most of it",
        code=(
            "keras.utils.set_random_seed(1)  # without tf.config.experimental.enable_op_determinism()",
            "unset TF_DETERMINISTIC_OPS  # in the shell, where it is set",
        ),
        recognised="Operations are deterministic (tf.config.experimental.enable_op_determinism) in a lane with a "
        "GPU, and the model that `fit` trains is not compiled by XLA.",
        asked=("keras#18456",),
        least_share=0.0,
    ),
    CauseKind(
        id="gpu_weights_on_cpu",
        title="weights lie on the CPU",
        says="{what} weights lie in the memory of the CPU, such as {subject}: what changes them runs there",
        mends="make the model outside of tf.device('/CPU:0')",
        code=("model = make_model()  # without a `with tf.device('/CPU:0'):` around it",),
        recognised="A model that `fit` trains in a lane with a GPU has trainable weights whose device is the CPU.",
        asked=("tensorflow#5995",),
        least_share=0.0,
    ),
)
"""What keeps a GPU from being used well."""
