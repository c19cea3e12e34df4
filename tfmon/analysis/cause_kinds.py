"""The table of causes and remedies; `docs/causes.md` is made from it."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.knobs import BATCH_SIZE, VARIANT, KnobValue
from tfmon.model.lane_events import (
    BATCH,
    CACHE,
    COMPILES,
    DATASET,
    DIFFERS,
    EAGER,
    ENDLESS,
    FILE_CACHE,
    FIT,
    FITS,
    FUNCTIONS_EAGERLY,
    MADE,
    MOVABLE,
    ON_BATCH,
    RANDOM,
    READ,
    RUN_EAGERLY,
    SEES_BATCHES,
    SEQUENTIAL,
    SHORT,
    SHUFFLE,
    SHUFFLED,
    SPARE,
    UNCACHED,
    UNROLLS,
)

RUNS, EPOCHS, OBSERVED = "runs", "epochs", "observed"
NOT = "not "
"""Prefix of a forbidden trait."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change for scripts with these traits."""

    needs: tuple[str, ...]
    mends: str = ""
    code: tuple[str, ...] = ()

    def fits(self, traits: Collection[str]) -> bool:
        """Return whether the remedy fits these traits."""
        return all((need.removeprefix(NOT) in traits) != need.startswith(NOT) for need in self.needs)


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseKind:
    """A cause: observed in a script, or supposed (`SUPPOSED`)."""

    title: str = ""
    """Text about {subject}. Empty if never observed."""
    mends: str = ""
    code: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    """The code of applicable remedies comes before `code`."""
    needs: tuple[tuple[str, ...], ...] = ((),)
    """Supposed if a script has all traits of a tuple."""
    knob: str = ""
    values: tuple[KnobValue, ...] = ()
    least_share: float = 0.03
    least_s: float = 0.0
    least_count: int = 1
    of_input: bool = False
    of_step: bool = False
    """Whether the cause replaces the advice of `OF_STEP`."""
    gain: float | None = None
    """Saved share of the cost, unless observed."""

    def supposed_with(self, traits: Collection[str]) -> bool:
        """Return whether a script with these traits may have the cause."""
        return any(Remedy(needs).fits(traits) for needs in self.needs)

    def advice(self, traits: Collection[str]) -> tuple[str, tuple[str, ...]]:
        """Return the remedy and its code."""
        remedies = [remedy for remedy in self.remedies if remedy.fits(traits)]
        mends = [self.mends, *(remedy.mends for remedy in remedies)]
        return "; ".join(filter(None, mends)), (*(line for remedy in remedies for line in remedy.code), *self.code)


_Input = functools.partial(CauseKind, least_share=0.1, of_input=True)
_Python = functools.partial(_Input, gain=1.0)
_Retrace = functools.partial(CauseKind, gain=1.0)
_Call = functools.partial(CauseKind, least_share=0.05)
_Gpu = functools.partial(CauseKind, least_share=0.0)
_ONE_SHAPE = Remedy(
    (BATCH,),
    code=("dataset = dataset.batch(batch_size, drop_remainder=True)  # no smaller batch at the end of an epoch",),
)
_ONE_ITERATOR = (
    "model.fit(dataset.repeat(), steps_per_epoch=steps, epochs=epochs)  # one iterator for all epochs",
)
INPUT_SYMPTOMS = ("epoch_first", "epoch_batch", "epoch_later")
"""Explained by causes with `of_input`."""
_CACHE = ("dataset = dataset.map(prepare).cache()  # after what takes long, before shuffle, repeat and batch",)

KINDS: Mapping[str, CauseKind] = {
    "retrace_value": _Retrace(
        title="a Python number retraces {subject}",
        mends="pass a tensor: a Python value makes a new graph for each value",
        code=("step = tf.constant(step)",),
        least_count=2,
    ),
    "retrace_shape": _Retrace(
        title="a new shape retraces {subject}",
        mends="give batches one shape, or let one graph take all sizes",
        code=(
            "@tf.function(input_signature=[tf.TensorSpec([None, ...])])  # None: any batch size, one graph",
            "@tf.function(reduce_retracing=True)  # TensorFlow finds the sizes that vary",
        ),
        remedies=(_ONE_SHAPE,),
    ),
    "retrace_dtype": _Retrace(
        title="a new dtype retraces {subject}",
        mends="give it values of one type, in each place that calls it",
        code=("x = tf.cast(x, tf.float32)",),
    ),
    "retrace_object": _Retrace(
        title="a new object retraces {subject}",
        mends="make the object once and pass the same one, or pass tensors",
        code=("config = Config()  # once, before the loop: each new object is a new graph",),
        least_count=2,
    ),
    "retrace_function": _Retrace(
        title="{subject} is made a tf.function again and again",
        mends="make the tf.function once, outside of the loop or method: each new one has its own graphs",
        code=("train_step = tf.function(train_step)  # once, before the loop",),
    ),
    "retrace_xla": _Retrace(
        title="XLA compiles {subject} for each shape",
        mends="give batches one shape: XLA compiles again for each",
        code=("x = tf.pad(x, [[0, size - len(x)], [0, 0]])  # or to a few sizes, such as powers of two",),
        remedies=(_ONE_SHAPE,),
    ),
    "retrace_keras": _Retrace(
        title="Keras traces {subject} again and again",
        remedies=(
            Remedy(
                (MADE,),
                "build and compile the model once, before the loop, and begin each round with its first weights "
                "and state of the optimizer; if the models differ, call keras.utils.clear_session() between them",
                (
                    "model.optimizer.build(model.trainable_variables)  # once, before the loop",
                    "start, state = model.get_weights(), [one.numpy() for one in model.optimizer.variables]",
                    "model.set_weights(start)  # in each round",
                    "for variable, value in zip(model.optimizer.variables, state):",
                    "    variable.assign(value)",
                ),
            ),
            Remedy((DIFFERS,), "call it with arrays of one shape and type"),
            Remedy(
                ("of predict",), code=("y = model(x, training=False)  # in a loop, in place of model.predict(x)",)
            ),
        ),
    ),
    "epoch_first": _Call(
        title="the first epoch waits for input",
        mends="that comes once: judge the speed by later epochs",
        remedies=(Remedy((CACHE,), "the cache fills in it"),),
        least_s=3.0,
    ),
    "epoch_later": CauseKind(
        title="epochs are slower from the second on",
        remedies=(
            Remedy((NOT + FILE_CACHE,), "what they read differently was not observed"),
            Remedy(
                (FILE_CACHE,),
                "a cache in a file is read from its disk in each of them",
                ("dataset = dataset.cache()  # in memory, if it fits",),
            ),
        ),
    ),
    "epoch_batch": CauseKind(
        title="each epoch waits for its first batch",
        remedies=(
            Remedy((UNCACHED,), "keep what its maps make in a cache, if that fits in memory", _CACHE),
            Remedy(
                (SHUFFLE, SPARE),
                "a smaller buffer of `shuffle` fills sooner",
                ("dataset = dataset.shuffle(1_000)  # its order is then less random",),
            ),
            Remedy((FIT, DATASET, SHORT, NOT + ENDLESS), "a dataset that repeats has one iterator", _ONE_ITERATOR),
            Remedy((NOT + UNCACHED, NOT + SHORT), "the work before it was not observed"),
        ),
    ),
    "epoch_validation": CauseKind(
        title="validation takes long",
        mends="validate less often, with larger batches, or on a part of the data",
        code=("model.fit(..., validation_freq=5)",),
        least_share=0.2,
        gain=0.8,
    ),
    "epoch_callback": _Call(
        title="the callback {subject} takes long",
        mends="call it less often, or have it do its work in another thread",
        code=("if epoch % 5 == 0:  # in a callback of your own",),
        gain=0.8,
    ),
    "epoch_pause": CauseKind(
        title="a pause between epochs",
        mends="the work in it was not observed",
        remedies=(
            Remedy((RUNS,), "a stack (S) shows it"),
            Remedy(
                (FIT, DATASET, NOT + ENDLESS),
                "have longer epochs: Keras makes an iterator for each",
                _ONE_ITERATOR,
            ),
        ),
        least_share=0.15,
        least_s=3.0,
    ),
    "iterator_anew": CauseKind(
        title="each step makes a new iterator, and waits for its first batch",
        mends="make it once: a new iterator restarts the pipeline and refills the buffer of `shuffle`",
        code=("for batch in dataset.repeat():  # in place of next(iter(dataset)) in each step",),
        least_share=0.1,
    ),
    "iterator_freed": CauseKind(
        title="TensorFlow waits for the tf.data autotuner to wake up when it frees an iterator",
        remedies=(
            Remedy(
                (DATASET,),
                "turn the autotuner off; AUTOTUNE then means one thread for each core",
                (
                    "options = tf.data.Options()",
                    "options.autotune.enabled = False",
                    "dataset = dataset.with_options(options)",
                ),
            ),
        ),
        gain=1.0,
    ),
    "steps_small": _Call(
        title="Keras' Python between small steps takes long",
        mends="run several steps in one call; callbacks of batches are called once for all of them",
        code=('model.compile("adam", "mse", steps_per_execution={value})',),
        needs=((FIT, NOT + EAGER, NOT + SEES_BATCHES),),
        knob="steps_per_execution",
        values=(32,),
    ),
    "batch_callback": CauseKind(
        title="the callback {subject} works in each batch",
        mends='let it work in fewer batches, or once an epoch: save_freq="epoch", update_freq="epoch"',
        code=("if batch % 100 == 0:  # in its on_train_batch_end",),
        gain=0.99,
    ),
    "adapt_slow": _Call(
        title="`{subject}.adapt` goes through its data before the training",
        mends="give it large batches, or save what it has learned and load it",
        code=("layer.adapt(data.unbatch().batch(1_024))  # or a part of the data: data.take(100)",),
        remedies=tuple(
            Remedy(
                (f"of {layer}",), code=(f"keras.layers.{layer}({arguments})  # as an earlier run has learned it",)
            )
            for layer, arguments in (
                ("TextVectorization", "vocabulary=vocabulary"),
                ("StringLookup", "vocabulary=vocabulary"),
                ("IntegerLookup", "vocabulary=vocabulary"),
                ("Normalization", "mean=mean, variance=variance"),
                ("Discretization", "bin_boundaries=bin_boundaries"),
            )
        ),
    ),
    "one_sample": _Call(
        title="`{subject}` is called for one sample",
        remedies=(
            Remedy(
                ("of predict",),
                "call the model itself, or collect samples and call it once: a call makes a dataset and callbacks",
                ("y = model(x, training=False)", "y = model.predict(np.stack(samples), batch_size=1024)"),
            ),
            Remedy(
                ("of train_on_batch",),
                "collect samples and train on them at once: there are fewer, larger updates then",
                ("model.train_on_batch(np.stack(samples), np.stack(targets))",),
            ),
        ),
        least_count=20,
    ),
    "between_call": _Call(
        title="`{subject}` is called outside the steps",
        mends="call it less often, or with larger batches",
        code=("if epoch % 5 == 0:  # not after every epoch",),
        gain=0.8,
        least_count=2,
    ),
    "input_generator": _Python(
        title="{subject} makes one example at a time in Python",
        mends="yield whole batches, and leave out the `batch` after it; or let tf.data read and prepare the data",
        code=(
            "yield x[i : i + batch_size], y[i : i + batch_size]  # whole batches: [None, ...]",
            "dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch_size)  # or so, if it fits",
        ),
    ),
    "input_generator_batches": _Python(
        title="{subject} makes batches in Python, one after the other",
        mends="compute whole batches with NumPy; or let tf.data do it, or the workers of a PyDataset",
        code=(
            "dataset = tf.data.Dataset.from_tensor_slices(paths).map(read, num_parallel_calls=tf.data.AUTOTUNE)",
        ),
        remedies=(
            Remedy(
                (FIT,),
                code=("model.fit(Data(..., workers=4, use_multiprocessing=True))  # a keras.utils.PyDataset",),
            ),
        ),
    ),
    "input_python_function": _Input(
        title="{subject} runs Python for one element at a time",
        mends="write it in TensorFlow's operations; or call it on whole batches, after `batch`",
        code=("dataset = dataset.batch(batch_size).map(prepare)  # Python once for each batch",),
    ),
    "input_py_dataset": _Python(
        title="{subject} makes its batches in one thread",
        mends="compute whole batches with NumPy; or give it workers, processes where it computes in Python",
        code=(
            "data = Data(workers=4, use_multiprocessing=True)  # and super().__init__(**kwargs) in its __init__",
        ),
    ),
    "input_map_after_cache": _Input(
        title="{subject} runs again in each epoch",
        mends="cache after it, if its results fit in memory: its data is kept before it, and nothing is random",
        code=_CACHE,
    ),
    "input_map_before_batch": _Input(
        title="{subject} is called for each example",
        mends="batch first: its operations do the same for a batch as for each example",
        code=("dataset = dataset.batch(batch_size).map(prepare, num_parallel_calls=tf.data.AUTOTUNE)",),
    ),
    "input_sequential_map": _Input(
        title="{subject} prepares one element at a time",
        mends="prepare several examples at once",
        code=("dataset = dataset.map(prepare, num_parallel_calls=tf.data.AUTOTUNE)",),
        needs=((SEQUENTIAL,),),
        knob="parallel_calls",
        values=("auto",),
    ),
    "input_no_prefetch": CauseKind(
        title="no batch is made ahead",
        mends="make batches while the step runs",
        code=("dataset = dataset.batch(batch_size).prefetch(tf.data.AUTOTUNE)",),
        needs=((DATASET,),),
        knob="prefetch",
        values=("auto",),
        of_input=True,
    ),
    "input_windows": _Input(
        title="`window` and `flat_map` make a dataset for each window",
        mends="make windows by index",
        code=(
            "dataset = keras.utils.timeseries_dataset_from_array(series, targets, sequence_length=length)",
            "windows = tf.gather(series, starts[:, None] + tf.range(length))  # or in a map after batch",
        ),
    ),
    "input_dropped": _Input(
        title="{subject} drops what was prepared before it",
        remedies=(
            Remedy(
                ("of filter", MOVABLE),
                "filter before the map: the filter reads only what the map leaves as it is",
                ("dataset = dataset.filter(wanted).map(prepare, num_parallel_calls=tf.data.AUTOTUNE)",),
            ),
            Remedy(
                ("of filter", NOT + MOVABLE),
                "filter by what is known before the map; or keep what is left in a cache after the filter",
                ("dataset = dataset.map(prepare).filter(wanted).cache()",),
            ),
            Remedy(
                ("of skip",),
                "divide the data before the map, or cache before `skip`",
                ("training = data.skip(held_out).map(prepare)  # in place of data.map(prepare).skip(held_out)",),
            ),
            Remedy(
                ("of shard",), "shard before the map", ("dataset = dataset.shard(shards, index).map(prepare)",)
            ),
        ),
    ),
    "input_cache_discarded": _Input(
        title="the cache is discarded in each epoch, because it is never read to its end",
        mends="limit the data before `cache`, or read it to its end",
        code=("dataset = dataset.take(count).cache()  # in place of dataset.cache().take(count)",),
    ),
    "input_arrays": CauseKind(
        title="each `fit` makes a dataset of its arrays",
        mends="make the dataset once, before the loop; or call `fit` once with all epochs",
        code=(
            "data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).batch(batch_size)",
            "model.fit(data)",
        ),
        least_count=2,
    ),
    "input_no_cache": _Input(
        title="{subject} makes the same results in each epoch",
        remedies=(
            Remedy((NOT + FITS, OBSERVED), "keep its results in a file, from which each epoch reads them"),
            Remedy((FITS,), "keep its results in memory"),
            Remedy((NOT + OBSERVED,), "prepare each example only once, if the results fit in memory"),
            Remedy((SHUFFLED,), "shuffle after the cache, or the order is the same in each epoch"),
            Remedy((RANDOM, NOT + OBSERVED), "its random changes are then the same in each epoch"),
        ),
        code=_CACHE,
        needs=((UNCACHED, EPOCHS, NOT + READ),),
        knob="cache",
        values=(True,),
    ),
    "gpu_no_cudnn": _Gpu(
        title="{subject} runs step by step, and not as one kernel of cuDNN",
        mends="give it the arguments that cuDNN's kernel has; dropout between layers is possible",
        code=(
            'layers.LSTM(128, activation="tanh", recurrent_activation="sigmoid", use_bias=True, unroll=False)',
            "layers.LSTM(128, dropout=0.2, recurrent_dropout=0.0)",
            "layers.GRU(128, reset_after=True)",
        ),
    ),
    "gpu_deterministic": _Gpu(
        title="{subject} uses slower kernels, and keeps Keras from compiling with XLA",
        mends="turn it off unless runs must be bit-identical; with a seed alone they nearly are",
        code=(
            "keras.utils.set_random_seed(1)  # without enable_op_determinism(), and TF_DETERMINISTIC_OPS unset",
        ),
    ),
    "gpu_weights_on_cpu": _Gpu(
        title="weights lie on the CPU, such as {subject}",
        mends="make the model outside of tf.device('/CPU:0')",
        code=("model = make_model()  # without a `with tf.device('/CPU:0'):` around it",),
    ),
    "memory_objects": CauseKind(
        title="Python keeps more and more objects of {subject}",
        mends="drop what each step adds; keep numbers instead of tensors, which keep other objects alive",
        code=("losses.append(float(loss))",),
        least_share=0.0,
    ),
    "loss_read": CauseKind(
        mends="let the device run ahead instead of reading each loss",
        code=("if step % 100 == 0:", "    print(float(loss))  # no .numpy(), float() or print in every step"),
        needs=(),
        knob="sync_every_step",
        values=(False,),
    ),
    "step_eager": CauseKind(
        title="{subject} starts each operation from Python",
        of_step=True,
        mends="start one graph instead of every operation",
        remedies=(
            Remedy(
                (RUN_EAGERLY,),
                "leave run_eagerly=True out of `compile`",
                ('model.compile("adam", "mse")  # without run_eagerly=True',),
            ),
            Remedy(
                (FUNCTIONS_EAGERLY,),
                "leave out tf.config.run_functions_eagerly(True)",
                ("tf.config.run_functions_eagerly(False)",),
            ),
            Remedy((EAGER, NOT + RUN_EAGERLY, NOT + FUNCTIONS_EAGERLY), "make the step a tf.function"),
            Remedy(
                (NOT + RUN_EAGERLY, NOT + FUNCTIONS_EAGERLY),
                code=("@tf.function(reduce_retracing=True)", "def train_step(x, y): ..."),
            ),
        ),
        needs=((EAGER,),),
        knob="graph",
        values=(True,),
    ),
    "step_metrics": CauseKind(
        title="metrics are most of each step",
        mends="compute them on validation data at the end of an epoch, or all classes in one metric",
        code=(
            'model.compile("adam", "mse", metrics=["accuracy"])  # the others in on_epoch_end of a callback',
            "keras.metrics.F1Score(average=None)  # one metric with a value for each class",
        ),
        of_step=True,
    ),
    "update_dense": CauseKind(
        title="the optimizer updates all rows of {subject} in each step",
        mends="use an optimizer without moments for it, hash into fewer rows, or train on larger batches",
        code=(
            'model.compile(keras.optimizers.SGD(0.1), "mse")  # no momentum: only the rows of a batch',
            "keras.layers.Hashing(num_bins=20_000)  # before the embedding",
        ),
        of_step=True,
    ),
    "trace_unrolled": _Call(
        title="a Python loop is unrolled in the graph",
        mends="keep the loop in the graph, whose body is traced once; steps take longer, so it pays in short runs",
        remedies=(
            Remedy((NOT + UNROLLS,), code=("for moment in tf.range(length):  # in place of range(length)",)),
            Remedy((UNROLLS,), code=("keras.layers.SimpleRNN(units)  # without unroll=True",)),
        ),
    ),
    "step_map_fn": CauseKind(
        title="tf.map_fn runs its function for one example after the other",
        mends="write it for the whole batch, or let tf.vectorized_map do that",
        code=("y = tf.vectorized_map(function, x)  # or operations on all of x: x @ w in place of row @ w",),
        of_step=True,
        gain=0.9,
    ),
    "step_augmentation": CauseKind(
        title="augmentation layers run in each step",
        mends="run them in the input pipeline, on the CPU beside the step",
        code=(
            "data = data.map(lambda x, y: (augment(x, training=True), y), num_parallel_calls=tf.data.AUTOTUNE)",
            "data = data.prefetch(tf.data.AUTOTUNE)  # and a model without these layers",
        ),
        of_step=True,
    ),
    "step_16_bits": CauseKind(
        title="this CPU emulates {subject}",
        mends="compute in float32 on a CPU, and in 16 bits on a GPU only",
        code=('keras.mixed_precision.set_global_policy("float32")  # or leave the policy out',),
        of_step=True,
    ),
    "step_padding": CauseKind(
        title="most of each batch is padding",
        mends="batch examples of like length, or cut the few long ones",
        code=(
            "data = data.bucket_by_sequence_length(lambda x, y: tf.shape(x)[0], [32, 64], [32, 32, 8])",
            "x = keras.utils.pad_sequences(sequences, maxlen=64)  # a length that few exceed",
        ),
        of_step=True,
    ),
    "validation_shared": CauseKind(
        title="validation shares examples with training",
        mends="do not trust its accuracy; shuffle the data once, divide it, and shuffle only the training part",
        code=(
            "data = data.shuffle(size, seed=1, reshuffle_each_iteration=False)  # then take and skip",
            "training = data.skip(held_out).shuffle(size)  # a new order in each epoch, after it is divided",
        ),
        least_share=0.0,
    ),
    "step_not_fused": CauseKind(
        mends="fewer, larger operations",
        remedies=(
            Remedy((NOT + FIT,), code=("@tf.function(jit_compile=True)",)),
            Remedy((FIT,), code=("model.compile(..., jit_compile=True)",)),
        ),
        needs=((FIT, COMPILES),),
        knob="xla",
        values=(True,),
    ),
    "step_float32": CauseKind(
        mends="compute in 16 bits, which are half the bytes",
        code=('keras.mixed_precision.set_global_policy("mixed_{value}")',),
        needs=((FIT, NOT + EAGER), (ON_BATCH, NOT + EAGER)),
        knob="mixed_precision",
        values=("bfloat16", "float16"),
    ),
    "batch_small": CauseKind(
        mends="more work in each step",
        code=("dataset = dataset.batch({value})  # a larger batch may need another learning rate",),
        knob=BATCH_SIZE.name,
    ),
    "variant": CauseKind(
        mends="the same work in another way",
        code=("# as variant {value} of the scenario; tfmon show names its file",),
        knob=VARIANT.name,
    ),
}
"""Causes by permanent id, in the order of the manual."""
OF_STEP = ("step_eager", "step_not_fused", "step_float32", "batch_small", "steps_small")
"""Not advised after an observed cause with `of_step`."""
_STEP = ("step_not_fused", "step_float32", "batch_small")
SUPPOSED: Mapping[str, tuple[str, ...]] = {
    "input": ("input_sequential_map", "input_no_prefetch", "input_no_cache", "variant"),
    "transfer": ("input_no_prefetch", "step_float32", "variant"),
    "sync": ("loss_read",),
    "all-reduce": ("batch_small",),
    "eager": ("step_eager", "variant"),
    "dispatch": ("steps_small", "batch_small", "step_not_fused", "variant"),
    "compute": _STEP,
    "step": ("step_eager", *_STEP),
    "retracing": ("variant", "retrace_value", "retrace_shape"),
    "other": ("steps_small", "variant"),
}
"""Causes by bottleneck, the likeliest first."""
