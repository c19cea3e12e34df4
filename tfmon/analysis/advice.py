"""What may help against a bottleneck: a knob to try at once, and the code that does the same. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tfmon.model.knobs import LEVERS, Knob, KnobError, KnobValue, find, show
from tfmon.model.lane_state import LaneState
from tfmon.model.spec import obstacle

SMALL_BATCH = 32
"""Below this a larger batch is proposed first: it is Keras' default, and other changes show their gain only when a
step has enough work."""
BATCH_FACTOR = 4
"""How much larger the proposed batch is, at least `SMALL_BATCH`: a factor of two gains too little for an
experiment."""
SHORT_EPOCH_S = 10.0
"""A cache works from the second epoch on; where an epoch is at most this long, the cache comes first."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One change that may make a lane faster."""

    knob: str
    value: KnobValue
    purpose: str
    """What it does, in a few words."""
    by_hand: bool = False
    """True where the lane, a user's script, has no such knob and only the code helps."""

    @property
    def text(self) -> str:
        """Such as "prefetch auto"."""
        return f"{self.knob.removesuffix('_size').replace('_', ' ')} {show(self.value)}"


_COMPUTE = (
    Advice("xla", True, "fuse operations"),
    Advice("mixed_precision", "bfloat16", "compute in 16 bits"),
    Advice("mixed_precision", "float16", "compute in 16 bits"),
    Advice("batch_size", 0, "fill the processor better"),
)
_TRIES = {
    "input": (
        Advice("parallel_calls", "auto", "prepare several examples at once"),
        Advice("prefetch", "auto", "make batches while the step runs"),
        Advice(
            "cache", True, "prepare each example only once; its random changes are then the same in each epoch"
        ),
    ),
    "sync": (Advice("sync_every_step", False, "let the device run ahead instead of reading each loss"),),
    "transfer": (
        Advice("prefetch", "auto", "make and copy batches while the step runs"),
        Advice("mixed_precision", "bfloat16", "half the bytes"),
    ),
    "all-reduce": (Advice("batch_size", 0, "more work between two all-reduces"),),
    "eager": (Advice("graph", True, "start one graph instead of every operation"),),
    "dispatch": (
        Advice("batch_size", 0, "more work for each start"),
        Advice("xla", True, "fewer, larger operations"),
    ),
    "compute": _COMPUTE,
    "step": _COMPUTE,
}
_VARIANTS_HELP = ("input", "transfer", "retracing", "dispatch", "eager", "other")
_CODE = {
    ("parallel_calls", "auto"): ("dataset = dataset.map(prepare, num_parallel_calls=tf.data.AUTOTUNE)",),
    ("prefetch", "auto"): ("dataset = dataset.batch(batch_size).prefetch(tf.data.AUTOTUNE)",),
    ("cache", True): ("dataset = dataset.map(prepare).cache()  # before shuffle, repeat and batch",),
    ("sync_every_step", False): (
        "loss = train_step(x, y)  # a tensor: do not call .numpy(), float() or print it in every step",
        "if step % 100 == 0:",
        "    print(float(loss))",
    ),
    ("graph", True): ("@tf.function(input_signature=[...], reduce_retracing=True)", "def train_step(x, y): ..."),
    ("xla", True): ("@tf.function(jit_compile=True)  # or model.compile(..., jit_compile=True)",),
    ("mixed_precision", "bfloat16"): ('keras.mixed_precision.set_global_policy("mixed_bfloat16")',),
    ("mixed_precision", "float16"): ('keras.mixed_precision.set_global_policy("mixed_float16")',),
}


def advice_for(kind: str, lane: LaneState, knobs: Sequence[Knob]) -> tuple[Advice, ...]:
    """Return the remedies for a kind of bottleneck that are not in effect, the likeliest first."""
    result = []
    for one in _proposals(kind, lane, knobs):
        if lane.settings.get(one.knob) != one.value and one not in result:
            result.append(one)
    first, size, trained = [], lane.settings.get("batch_size"), lane.steady
    if isinstance(size, int) and size < SMALL_BATCH:
        first.append("batch_size")
    if lane.process.data_examples is not None and trained.examples:
        epoch_ns = lane.process.data_examples / trained.examples * trained.span_ns
        first += ["cache"] if epoch_ns < 1e9 * SHORT_EPOCH_S else []
    result.sort(key=lambda one: first.index(one.knob) if one.knob in first else len(first))
    return tuple(result)


def code_for(advice: Advice, lane: LaneState | None = None) -> tuple[str, ...]:
    """Return the lines of TensorFlow that do in a program what a knob does here.

    Of a script without TensorFlow it is the line in which it offers the knob.
    """
    if lane is not None and lane.script.command and not lane.process.versions["tensorflow"]:
        return _lines_to_keep(advice.knob, advice.value, offered=True)
    if advice.knob == "batch_size":
        return (f"dataset = dataset.batch({advice.value})  # a larger batch may need another learning rate",)
    if advice.knob == "variant":
        return (f"# as variant {advice.value} of the scenario; tfmon show names its file",)
    lines = _CODE.get((advice.knob, advice.value), (f"# {advice.knob} = {show(advice.value)} in the scenario",))
    if (
        lane is not None
        and lane.script.command
        and advice.by_hand
        and any(one.name == advice.knob for one in LEVERS)
    ):
        place = lane.spec.place
        return (*lines, f"# to try it: --lane {place} --lane {place},{advice.knob}={show(advice.value)}")
    return lines


def code_to_keep(lane: LaneState, knobs: Sequence[Knob]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each value of a script's lane that is not the script's own, and the lines that set it for good."""
    for knob in knobs if lane.script.command else ():
        value = lane.settings.get(knob.name, knob.default)
        if value != knob.default and knob.name != "stop_after_epoch":
            offered = not lane.process.versions["tensorflow"]
            yield Advice(knob.name, value, "").text, _lines_to_keep(knob.name, value, offered=offered)


def _lines_to_keep(name: str, value: KnobValue, *, offered: bool) -> tuple[str, ...]:
    end = "dataset = dataset.with_options(options)"
    match "" if offered else name:
        case "prefetch" if value == "off":
            no_prefetch = "options.experimental_optimization.inject_prefetch = False"
            return "options = tf.data.Options()", no_prefetch, f"{end}  # and no prefetch at its end"
        case "prefetch":
            size = "tf.data.AUTOTUNE" if value == "auto" else value
            return (f"dataset = dataset.prefetch({size})  # at its end",)
        case "input_threads":
            threads = 0 if value == "auto" else value
            return "options = tf.data.Options()", f"options.threading.private_threadpool_size = {threads}", end
        case "learning_rate":
            return (f"optimizer.learning_rate = {show(value)}  # or where the optimizer is made",)
        case "batch_size":
            return code_for(Advice(name, value, ""))
    return (f'{name} = report.knob("{name}", {value!r})',)


def _proposals(kind: str, lane: LaneState, knobs: Sequence[Knob]) -> Iterator[Advice]:
    for one in _TRIES.get(kind, ()):
        knob = _find(knobs, one.knob)
        by_code = lane.script.command and lane.process.versions["tensorflow"] and one.knob != "batch_size"
        if knob is None and by_code and _makes_sense(lane, one):
            yield replace(one, by_hand=True)
        if knob is None or not _makes_sense(lane, one):
            continue
        value = _larger_batch(knob, lane) if one.knob == "batch_size" else one.value
        if value is not None:
            yield replace(one, value=value)
    variant = _find(knobs, "variant")
    if variant is not None and kind in _VARIANTS_HELP:
        for choice in variant.remedies:
            yield Advice("variant", choice, "the same work in another way")


def _makes_sense(lane: LaneState, one: Advice) -> bool:
    if one.knob == "xla" and not lane.settings.get("graph", True):
        return False
    if one.knob != "batch_size" and obstacle({**lane.settings, one.knob: one.value}, lane.spec.devices):
        return False
    # A CPU emulates 16 bits unless it is recent, and float16 nearly always.
    return not (one.value == "float16" and lane.spec.kind == "cpu")


def _larger_batch(knob: Knob, lane: LaneState) -> KnobValue | None:
    value = lane.settings.get("batch_size")
    if not isinstance(value, int):
        return None
    larger = max(SMALL_BATCH, value * BATCH_FACTOR)
    if lane.process.data_examples is not None:
        larger = min(larger, lane.process.data_examples)
    try:
        return knob.check(larger) if larger > value else None
    except KnobError:
        return None


def _find(knobs: Sequence[Knob], name: str) -> Knob | None:
    try:
        return find(knobs, name)
    except KnobError:
        return None
