"""Reads the transformations of datasets, and tf.data's counts.

tf.data makes a map parallel unless its function has a state, and fuses a map with the batch after it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

from tfmon.hooks.inspection import line_at, users_frame
from tfmon.model.fast_dataclass import dataclass

MADE_AT = "_tfmon_at"
MAPS = ("_MapDataset", "_ParallelMapDataset")
BATCHES = ("_BatchDataset", "_ParallelBatchDataset")
BETWEEN = (
    "_OptionsDataset", "_PrefetchDataset", "_RepeatDataset", "_ShuffleDataset", "_TakeDataset", "_SkipDataset",
)  # fmt: skip
"""Transformations that do not change elements."""
PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
GENERATOR = "tensorflow.python.data.ops.from_generator_op"
MOST_OPERATIONS = 10_000
CHEAP_NS = 200_000
"""A cheaper map spends most of its time on starting its function."""
STAGES_OF_MAPS = ("Map", "ParallelMap", "ParallelMapV2", "MapAndBatch")
_STAGES = {
    **dict.fromkeys(MAPS, STAGES_OF_MAPS),
    "_SkipDataset": ("FiniteSkip",),
    "_FilterDataset": ("Filter", "ParallelFilter"),
    "_ShardDataset": ("Shard",),
    "CacheDataset": ("MemoryCache", "FileCache"),
    "_PaddedBatchDataset": ("PaddedBatchV2",),
}
_NESTED = ("FlatMap", "Interleave", "ParallelInterleave")
_PASSES_ON = (
    "Root",
    "Prefetch",
    "Shuffle",
    "ShuffleAndRepeat",
    "FiniteSkip",
    "FiniteTake",
    "FiniteRepeat",
    "Shard",
)
"""Stages that only pass on elements. On a busy machine, their counted time is waiting for a core."""
_CALLS = frozenset((
    "PartitionedCall", "StatefulPartitionedCall", "If", "StatelessIf", "While", "StatelessWhile", "Case",
    "StatelessCase", "MapDefun",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class PipelineStage:
    """tf.data's counts for one stage."""

    kind: str
    elements: int
    busy_ns: float
    """Time without inputs, divided by the number of threads."""
    parallel: bool
    bytes: int = 0
    """Size of all produced elements."""
    consumed: int = 0
    """Size of all consumed elements."""
    below: tuple[PipelineStage, ...] = ()
    """The inputs, down to the sources."""

    @property
    def filling(self) -> bool:
        """Whether a cache reads from its input."""
        return any(not part.kind.endswith("Impl") for part in self.below)


def made(dataset: Any) -> None:
    """Store the script's current line on a dataset."""
    frame = users_frame()
    setattr(dataset, MADE_AT, (frame.f_code.co_filename, frame.f_lineno))


def line_of_dataset(dataset: Any) -> str:
    """Return the line that made a dataset."""
    path, number = getattr(dataset, MADE_AT, ("", 0))
    return line_at(path, number) if path else ""


def chain_of(dataset: Any, without: Container[int] = ()) -> Iterator[Any]:
    """Yield a dataset and its inputs, but not the inputs of datasets in `without`."""
    ahead = [dataset]
    while ahead:
        yield (node := ahead.pop())
        if id(node) not in without:
            ahead += reversed(node._inputs())


def batch_size_of(dataset: Any) -> int:
    """Return the last batches' size, or 0."""
    sizes = (int(node._batch_size) for node in chain_of(dataset) if type(node).__name__ in BATCHES)
    return next(sizes, 0)


def stages_of(iterator: Any) -> tuple[PipelineStage, ...]:
    """Return the stages, last first, if tf.data counts them."""
    import tensorflow as tf
    from tensorflow.python.data.ops.iterator_ops import OwnedIterator

    if not isinstance(iterator, OwnedIterator) or not tf.executing_eagerly():
        return ()
    try:
        model = tf.data.experimental.get_model_proto(iterator)
    except tf.errors.NotFoundError:
        return ()

    def read(key: int) -> tuple[PipelineStage, ...]:
        node = model.nodes[key]
        inputs = list(node.inputs)
        if node.name.rstrip("V234") in _NESTED:
            inputs = [*inputs[:1], *(input_ for input_ in inputs[1:] if model.nodes[input_].name == "Generator")]
        below = tuple(stage for input_ in inputs for stage in read(input_))
        threads = next((parameter for parameter in node.parameters if parameter.name == "parallelism"), None)
        busy_ns = node.processing_time / max(1.0, threads.value if threads is not None else 1.0)
        if node.name.rstrip("V234") in _PASSES_ON:
            busy_ns = 0.0
        parallel = threads is not None and (threads.tunable or threads.value > 1)
        sizes = node.bytes_produced, node.bytes_consumed
        stage = PipelineStage(node.name, node.num_elements, busy_ns, parallel, *sizes, below)
        return (stage, *below)

    return read(model.output)


class Transformation:
    """A dataset, with its inputs and tf.data's counts. Iterating yields it and all inputs, last first."""

    def __init__(self, dataset: Any, stage: PipelineStage | None, inputs: list[Transformation]) -> None:
        self.dataset, self.stage = dataset, stage
        self.kind, self.is_generator = type(dataset).__name__, is_generator(dataset)
        self._inputs = inputs

    def __iter__(self) -> Iterator[Transformation]:
        ahead = [self]
        while ahead:
            yield (node := ahead.pop())
            ahead += reversed(node._inputs)

    @property
    def line(self) -> str:
        """The line that made it."""
        return line_of_dataset(self.dataset)

    @property
    def function(self) -> Any:
        """The Python function that it calls, if any."""
        wrapped = getattr(self.dataset, "_map_func", None) or getattr(self.dataset, "_predicate", None)
        return getattr(wrapped, "_func", None)

    @property
    def name(self) -> str:
        """The function's name, or `lambda`."""
        name = str(getattr(self.function, "__name__", ""))
        return name if name.isidentifier() else "lambda"

    @property
    def operations(self) -> list[Any] | None:
        """The operations of a map, if readable."""
        return operations(self.dataset._map_func.function.graph)


def transformations(dataset: Any, stages: tuple[PipelineStage, ...] = ()) -> list[Transformation]:
    """Return a dataset's transformations with their stages, last first."""
    filled = filled_caches(dataset, stages)
    counted: dict[int, PipelineStage] = {}
    for kinds in dict.fromkeys(_STAGES.values()):
        datasets = [node for node in chain_of(dataset, filled) if _STAGES.get(type(node).__name__) == kinds]
        stages_of_kind = [stage for stage in stages if stage.kind in kinds]
        if len(datasets) == len(stages_of_kind):
            counted |= {id(node): stage for node, stage in zip(datasets, stages_of_kind, strict=True)}
    made: dict[int, Transformation] = {}
    for node in reversed(list(chain_of(dataset))):
        if id(node) not in made:  # branches may share a dataset
            inputs = [made[id(input_)] for input_ in node._inputs()]
            made[id(node)] = Transformation(node, counted.get(id(node)), inputs)
    return list(made[id(dataset)])


def filled_caches(dataset: Any, stages: tuple[PipelineStage, ...]) -> set[int]:
    """Return the ids of filled caches."""
    caches = [stage for stage in stages if stage.kind in _STAGES["CacheDataset"]]
    every = [node for node in chain_of(dataset) if type(node).__name__ == "CacheDataset"]
    return {id(node) for node, stage in zip(every, caches, strict=False) if not stage.filling}


def operations(graph: Any, most: int = MOST_OPERATIONS) -> list[Any] | None:
    """Return the operations of a function and its callees. None if unreadable or too many."""
    result: list[Any] = []
    ahead, seen = [graph], set()
    while ahead:
        for operation in ahead.pop().get_operations():
            result.append(operation)
            if len(result) > most:
                return None
            for name in _called(operation) if operation.type in _CALLS else ():
                called = graph._functions.get(name)
                if called is None:
                    return None
                if name not in seen:
                    seen.add(name)
                    ahead.append(called.graph)
    return result


def _called(operation: Any) -> Iterator[str]:
    for value in operation.node_def.attr.values():
        yield from (function.name for function in (value.func, *value.list.func) if function.name)


def has_state(operation: Any) -> bool:
    """Return whether an operation is stateful."""
    return bool(operation.op_def.is_stateful) and operation.type not in ("Placeholder", *_CALLS)


def is_generator(dataset: Any) -> bool:
    """Return whether a dataset is a Python generator."""
    function = getattr(getattr(dataset, "_map_func", None), "_func", None)
    return getattr(function, "__module__", "") == GENERATOR
