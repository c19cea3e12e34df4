"""Why a script is slow, named: each cause that its process can observe, its sentence, and what mends it. Pure.

A cause is named only where it was observed (`CauseSeen`), and where it takes a share of the time that is worth a
change. `docs/causes.md` is made from this table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tfmon import units
from tfmon.analysis.advice import Advice, code_for
from tfmon.analysis.cause_kinds import GPU, INPUT, CauseKind
from tfmon.analysis.shares import shares_of
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import known
from tfmon.model.script_events import CauseSeen

CAUSES = (
    CauseKind(
        id="retrace_value",
        title="a Python number retraces {subject}",
        says="{subject} was traced {times} more for a Python value, {what}; that took {cost}, {share} of the time",
        mends="pass a tensor: a Python value makes a new graph for each value",
        code=("step = tf.constant(step)  # a Python number makes a new graph for each value; a tensor does not",),
        recognised="TensorFlow traces a function again, and the first argument that differs from the trace before "
        "is a number or a string of Python; what it took is the trace and the first run.",
        asked=("tensorflow#34025", "tensorflow#38002"),
        least_count=2,
    ),
    CauseKind(
        id="retrace_shape",
        title="a new shape retraces {subject}",
        says="{subject} was traced {times} more for another shape, {what}; that took {cost}, {share} of the time",
        mends="give batches one shape, or let one graph take all sizes",
        code=(
            "dataset = dataset.batch(batch_size, drop_remainder=True)  # no smaller batch at the end of an epoch",
            "@tf.function(input_signature=[tf.TensorSpec([None, 100]), ...])  # None: any batch size, one graph",
            "@tf.function(reduce_retracing=True)  # TensorFlow finds the sizes that vary",
        ),
        recognised="TensorFlow traces a function again, and the first argument that differs from the trace before "
        "has another shape; the last batch of an epoch is told by the end of the data right after it.",
        asked=("tensorflow#67033", "tensorflow#34025"),
    ),
    CauseKind(
        id="retrace_dtype",
        title="a new dtype retraces {subject}",
        says="{subject} was traced {times} more for another type, {what}; that took {cost}, {share} of the time",
        mends="give it values of one type",
        code=("x = tf.cast(x, tf.float32)  # before the call, in each place that calls it",),
        recognised="TensorFlow traces a function again, and the first argument that differs from the trace before "
        "has another dtype.",
        asked=("tensorflow#34025",),
    ),
    CauseKind(
        id="retrace_object",
        title="a new object retraces {subject}",
        says="{subject} was traced {times} more for another object, {what}; that took {cost}, {share} of the time",
        mends="make the object once and pass the same one, or pass tensors",
        code=("config = Config()  # once, before the loop: each new object is a new graph",),
        recognised="TensorFlow traces a function again, and the first argument that differs from the trace before "
        "is another Python object, or has another structure.",
        asked=("tensorflow#38002",),
        least_count=2,
    ),
    CauseKind(
        id="retrace_function",
        title="{subject} is made a tf.function again and again",
        says="{subject} was made a tf.function and traced {times} more, {what}; that took {cost}, {share} of the "
        "time",
        mends="make the tf.function once, outside of the loop or method: each new one has its own graphs",
        code=("train_step = tf.function(train_step)  # once, before the loop",),
        recognised="The same Python function is traced for the first time again and again, called from one line: "
        "a new tf.function is made of it each time.",
        asked=("tensorflow#67033",),
    ),
    CauseKind(
        id="retrace_xla",
        title="XLA compiles {subject} for each shape",
        says="{subject}, which XLA compiles, was compiled {times} more for another shape, {what}; that took "
        "{cost}, {share} of the time",
        mends="give batches one shape: XLA compiles again for each",
        code=(
            "dataset = dataset.batch(batch_size, drop_remainder=True)  # no smaller batch at the end of an epoch",
            "x = tf.pad(x, [[0, size - len(x)], [0, 0]])  # or to a few sizes, such as powers of two",
        ),
        recognised="TensorFlow traces a function with jit_compile=True again for another shape; what it took is "
        "the trace and the first run, in which XLA compiles.",
        asked=("keras#18456", "keras#19809", "keras-cv#2406"),
    ),
    CauseKind(
        id="retrace_keras",
        title="Keras traces {subject} again and again",
        says="Keras traced {subject} {times} more, {what}; that took {cost}, {share} of the time",
        mends="build and compile the model once, before the loop, and call it with arrays of one shape",
        code=(
            'model.compile("adam", "mse")  # once, before the loop: it forgets what was traced',
            "y = model(x, training=False)  # in a loop, in place of model.predict(x)",
        ),
        recognised="Keras' own step of `fit`, `evaluate` or `predict` is traced again for another shape, or for "
        "the first time again and again from one line: the model was made or compiled again.",
        asked=("tensorflow#34025", "tensorflow#38002", "tensorflow#67033"),
    ),
    CauseKind(
        id="epoch_first",
        title="the first epoch is slow",
        says="the first epoch took {cost} more than later ones, {share} of the time: {what}",
        mends="that comes once: judge the speed by later epochs; a wait is mostly a `shuffle` buffer or a cache "
        "that fills",
        code=(
            "dataset = dataset.shuffle(1_000).batch(batch_size).prefetch(tf.data.AUTOTUNE)  # a smaller buffer",
            "dataset = dataset.map(prepare, num_parallel_calls=tf.data.AUTOTUNE).cache()  # fills it in parallel",
        ),
        recognised="The first epoch took at least 1.5 times as long as as many steps of later epochs; its first "
        "step, the wait for its first batch and the rest of its waits are compared with theirs.",
        asked=("tensorflow#60425", "tensorflow#85667"),
        least_share=0.05,
        least_s=3.0,
    ),
    CauseKind(
        id="epoch_later",
        title="epochs are slower from the second on",
        says="from the second epoch on a step takes {what}; that took {cost}, {share} of the time",
        mends="what they read otherwise was not observed; it may be a cache in a file on a slow disk",
        code=(
            "dataset = dataset.cache()  # in memory; a cache in a file is read from its disk in each later epoch",
            "dataset = dataset.prefetch(tf.data.AUTOTUNE)  # at its end",
        ),
        recognised="In each of three or more later epochs a step took at least 1.3 times as long as in the first, "
        "without the first step of an epoch, and at least half of that is more waiting for input.",
        asked=("tensorflow#45114", "tensorflow#44050"),
    ),
    CauseKind(
        id="epoch_batch",
        title="each epoch waits for its first batch",
        says="later epochs waited {cost} for their first batches, {share} of the time in {count} epochs",
        mends="a smaller buffer of `shuffle` fills sooner; a dataset that repeats goes on without a gap",
        code=(
            "dataset = dataset.shuffle(1_000)  # a buffer that is filled again at the beginning of each epoch",
            "model.fit(dataset.repeat(), steps_per_epoch=steps, epochs=epochs)  # one iterator for all epochs",
        ),
        recognised="What is waited for input in the first step of each epoch but the first.",
        asked=("tensorflow#60425",),
    ),
    CauseKind(
        id="epoch_validation",
        title="validation takes {share}",
        says="validation took {cost}, {share} of the time, in {count} epochs",
        mends="validate less often, with larger batches, or on a part of the data",
        code=(
            "model.fit(..., validation_freq=5)  # every fifth epoch",
            "model.fit(..., validation_batch_size=1024, validation_steps=50)",
        ),
        recognised="The time between the beginning and the end of Keras' evaluation in `fit`.",
        asked=("tensorflow#85667",),
        least_share=0.2,
    ),
    CauseKind(
        id="epoch_callback",
        title="the callback {subject} takes {share}",
        says="the callback {subject} took {cost} at the end of {count} epochs, {share} of the time",
        mends="call it less often, or have it do its work in another thread",
        code=(
            "keras.callbacks.ModelCheckpoint(path, save_best_only=True, save_weights_only=True)",
            "if epoch % 5 == 0:  # in a callback of your own",
        ),
        recognised="The time in `on_epoch_end` of each callback that the script gives to `fit`, by its class.",
        asked=("tensorflow#85667",),
        least_share=0.05,
    ),
    CauseKind(
        id="epoch_pause",
        title="a pause between epochs",
        says="between {count} epochs {cost} passed without a step, {share} of the time; what the script did then "
        "was not observed",
        mends="a stack (S) in such a pause shows it; a validation, a checkpoint or a new dataset can be made less "
        "often",
        code=("if epoch % 5 == 0:  # validate and save every fifth epoch",),
        recognised="The time from the last step of an epoch to the next pull, but for what has a name.",
        asked=("tensorflow#85667",),
        least_share=0.15,
    ),
    CauseKind(
        id="steps_small",
        title="small steps: Keras' Python around them takes {share}",
        says="steps are small, {what}: Keras' Python between the calls took {cost}, {share} of the time",
        mends="run several steps in one call, and callbacks of batches once for all of them; "
        "--lane cpu,steps_per_execution=32 beside --lane cpu tries it",
        code=('model.compile("adam", "mse", steps_per_execution=32)  # callbacks of batches run every 32 steps',),
        recognised="A step of `fit` takes less than 10 ms with steps_per_execution=1; the time of an epoch "
        "without the calls of the train function is what is told.",
        asked=("keras#20451", "tf-keras#593"),
        least_share=0.05,
    ),
    CauseKind(
        id="one_sample",
        title="{subject} is called for one sample",
        says="`{subject}` was called {times} for one sample; that took {cost}, {share} of the time",
        mends="call the model itself, or collect samples and call it once: a call makes a dataset and callbacks",
        code=(
            "y = model(x, training=False)  # in place of model.predict(x) for one sample",
            "y = model.predict(np.stack(samples), batch_size=1024)  # once for many",
        ),
        recognised="`predict` or `train_on_batch` of a Keras model is called with one row, at one line.",
        asked=("keon/deep-q-learning#28",),
        least_share=0.05,
        least_count=20,
    ),
    *INPUT,
    *GPU,
)
"""The table; the order is that of the page in the manual."""
KINDS = {one.id: one for one in CAUSES}


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause that was observed in a lane."""

    id: str
    text: str
    """What was observed, with its figures."""
    place: str
    """The user's instruction: file, line and text."""
    count: int
    cost_s: float | None
    """What it took; None where that is not known."""
    share_pct: float | None
    """Of the time since TensorFlow was loaded."""
    advice: str
    code: tuple[str, ...]
    knob: str | None
    """What may be tried while it trains, such as "prefetch auto"."""
    brief: str
    """It in a few words with the file and the line, for one line of a pane."""


def causes_of(lane: LaneState) -> tuple[Cause, ...]:
    """Return the causes that were observed in a lane and that are worth a change, the costliest first."""
    told = [_cause(KINDS[one.cause], one) for one in _of_lane(lane) if one.cause in KINDS and _matters(one)]
    return tuple(sorted(told, key=lambda one: -(one.cost_s or 0.0)))


def _of_lane(lane: LaneState) -> Iterator[CauseSeen]:
    """Yield what was observed; what makes input slow with its part of the time that the lane waits for it."""
    shares = shares_of(lane) if lane.script.causes else None
    waits = (known(shares.input_pct) or 0.0) / 100 if shares is not None else 0.0
    for one in lane.script.causes:
        if one.cause in KINDS and KINDS[one.cause].of_input:
            # Work that is done ahead hides behind the rest of a step at most.
            overlap = min(waits, 1 - waits) * one.figures.get("of_overlap", 0.0)
            share = min(1.0, waits * one.figures.get("of_input", 0.0) + overlap)
            cost_ns, of_ns = round(lane.steady.span_ns * share), lane.steady.span_ns
            yield replace(one, cost_ns=cost_ns, of_ns=of_ns, count=max(1, one.count))
        else:
            yield one


def _share(seen: CauseSeen) -> float:
    return min(1.0, seen.cost_ns / seen.of_ns) if seen.of_ns else 0.0


def _matters(seen: CauseSeen) -> bool:
    kind = KINDS[seen.cause]
    costs = seen.cost_ns >= 1e9 * kind.least_s and _share(seen) >= kind.least_share
    return costs and seen.count >= kind.least_count


def _cause(kind: CauseKind, seen: CauseSeen) -> Cause:
    share = units.percent(100 * _share(seen)) if seen.cost_ns else ""
    words: dict[str, Any] = {
        **seen.figures,
        "subject": seen.subject or "a function",
        "what": seen.what,
        "place": seen.place,
        "count": units.count(seen.count),
        "times": "once" if seen.count == 1 else f"{units.count(seen.count)} times",
        "cost": units.duration(seen.cost_ns / 1e9),
        "share": share,
    }
    advice = Advice(*kind.knob, kind.mends) if kind.knob is not None else None
    try:
        title, text = kind.title.format(**words), kind.says.format(**words)
    except (KeyError, ValueError, IndexError):
        title, text = kind.id, kind.id  # another version of tfmon observed it
    where = seen.place.partition(" ")[0]
    return Cause(
        id=kind.id,
        text=text + (f" ({seen.place})" if seen.place else ""),
        place=seen.place,
        count=seen.count,
        cost_s=seen.cost_ns / 1e9 if seen.cost_ns else None,
        share_pct=100 * _share(seen) if seen.cost_ns and seen.of_ns else None,
        advice=kind.mends,
        code=kind.code or (code_for(advice) if advice is not None else ()),
        knob=advice.text if advice is not None else None,
        brief=f"{title} ({', '.join(filter(None, (where, share)))})",
    )
