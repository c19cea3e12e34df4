"""The step in each form, and setups built in the background.

All forms share the same 32-bit variables, so a lane keeps the weights.
"""

from __future__ import annotations

import functools
import itertools
import queue
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.knobs import STEP, KnobError, KnobValue, Settings, find
from tfmon.model.requests import SetKnob
from tfmon.system.threads import Failed, start_thread
from tfmon.trainer.batch_feed import BatchFeed, Pipelines
from tfmon.trainer.runtime import Replicas
from tfmon.trainer.scenario import Scenario, ScenarioError

_POLICIES = {"off": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


class Steps:
    """Makes a scenario's step. Thread: one at a time."""

    def __init__(self, scenario: Scenario, signature: list[Any], replicas: Replicas | None = None) -> None:
        self.knobs = tuple(knob for knob in STEP if scenario.has(knob.name))
        self._scenario = scenario
        self._signature = signature
        self._replicas = replicas or Replicas()
        self._made: dict[tuple[object, ...], Callable[..., Any]] = {}
        with self._replicas.scope():
            self._model = scenario.model()
            if self._model is not None:
                self._build()

    @property
    def parameters(self) -> int:
        """Number of trainable values."""
        if self._model is None:
            return 0
        return sum(int(weight.shape.num_elements()) for weight in self._model.trainable_weights)

    def check(self, settings: Settings) -> None:
        """Raise KnobError for impossible settings."""
        if settings.get("xla") and not settings.get("graph", True):
            raise KnobError("xla=on compiles a graph; it needs graph=on")
        self._replicas.check(settings)

    def make(self, settings: Settings) -> Callable[..., Any]:
        """Return the traced step. Raises ScenarioError if devices cannot share it."""
        import tensorflow as tf

        graph, xla = bool(settings.get("graph", True)), bool(settings.get("xla", False))
        policy = _POLICIES[str(settings.get("mixed_precision", "off"))]
        key = (graph, xla, policy)
        with self._replicas.scope():
            for layer in () if self._model is None else self._model._flatten_layers():
                if layer.dtype_policy.name != policy:
                    layer.dtype_policy = policy
            if key not in self._made:
                step = self._replicas.together(self._scenario.step(self._model_for(policy)))
                if graph and not getattr(step, "runs_in_python", False):
                    step = tf.function(step, input_signature=self._signature or None, jit_compile=xla)
                    step.get_concrete_function()
                self._made[key] = step
            return self._made[key]

    def _build(self) -> None:
        """Make all variables, which a tf.function needs."""
        model = self._model
        if getattr(model, "optimizer", None) is None:
            raise ScenarioError("`model` must return a compiled model: call model.compile(optimizer, loss)")
        if not model.built:
            model.build(self._signature[0].shape)
        model.optimizer.build(model.trainable_variables)

    def _model_for(self, policy: str) -> Any:
        """Return the model, with loss scaling for float16."""
        import keras

        model = self._model
        if model is None:
            return None
        scaled = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
        if policy == "mixed_float16" and not scaled:
            model.optimizer = keras.optimizers.LossScaleOptimizer(model.optimizer)
            model.optimizer.build(model.trainable_variables)
        elif policy != "mixed_float16" and scaled:
            model.optimizer = model.optimizer.inner_optimizer
        return model


@dataclass(frozen=True, slots=True)
class Setup:
    """The parts of the loop, `None` if unchanged. For a request, it may be an error instead."""

    settings: dict[str, KnobValue]
    feed: BatchFeed | None = None
    step: Callable[..., Any] | None = None
    request: SetKnob | None = None
    error: Exception | None = None


class _Worker:
    """Runs jobs in a thread, urgent ones first."""

    def __init__(self) -> None:
        self._jobs: queue.PriorityQueue[tuple[int, int, Callable[[], None]]] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._ticks = self._seen_ticks = 0

    def put(self, urgency: int, job: Callable[[], None]) -> None:
        self._jobs.put((urgency, next(self._numbers), job))

    @property
    def idle(self) -> bool:
        return self._jobs.unfinished_tasks == 0

    def took_time(self) -> bool:
        ticks, seen = self._ticks, self._seen_ticks
        self._seen_ticks = ticks - ticks % 2
        return ticks != seen

    def work(self) -> None:
        while True:
            job = self._jobs.get()[2]
            self._ticks += 1
            job()
            del job
            self._ticks += 1
            self._jobs.task_done()


class SetupBuilder:
    """Builds setups in the background, and destroys replaced pipelines."""

    def __init__(
        self,
        pipelines: Pipelines,
        steps: Steps,
        deliver: Callable[[Setup], object],
        failed: Failed,
    ) -> None:
        self._pipelines = pipelines
        self._steps = steps
        self._deliver = deliver
        self._settings: Settings | None = None
        self._failed = failed
        self._building, self._discarding = self._workers = _Worker(), _Worker()

    def start(self) -> None:
        """Start the threads."""
        start_thread("tfmon-build", self._building.work, self._failed)
        start_thread("tfmon-discard", self._discarding.work, self._failed)

    @property
    def idle(self) -> bool:
        """Whether no job runs or waits."""
        return all(worker.idle for worker in self._workers)

    def took_time(self) -> bool:
        """Return whether a job ran since the last call."""
        return any([worker.took_time() for worker in self._workers])

    def build(self, settings: Settings) -> Setup:
        """Return a setup now. Raises KnobError."""
        before = self._settings
        self._pipelines.check(settings)
        self._steps.check(settings)

        def changed(part: Pipelines | Steps) -> bool:
            return before is None or any(settings[knob.name] != before[knob.name] for knob in part.knobs)

        feed = self._pipelines.open(settings) if changed(self._pipelines) else None
        step = self._steps.make(settings) if changed(self._steps) else None
        self._settings = settings
        return Setup(dict(settings), feed, step)

    def request(self, request: SetKnob) -> None:
        """Build a setup with another value, and deliver it."""

        def job() -> None:
            try:
                value = find((*self._pipelines.knobs, *self._steps.knobs), request.knob).check(request.value)
                setup = replace(self.build({**(self._settings or {}), request.knob: value}), request=request)
            except Exception as error:  # noqa: BLE001 - the user's code may raise anything; the loop reports it
                setup = Setup({}, request=request, error=error)
            self._deliver(setup)

        self._building.put(0, job)

    def prepare_neighbours(self, settings: Settings) -> None:
        """Prepare the pipelines of the next key press."""
        for knob in self._pipelines.knobs:
            for direction in (+1, -1) if not knob.choices else (+1,):
                high = self._pipelines.examples if knob.name == "batch_size" else None
                next_ones = {**settings, knob.name: knob.next(settings[knob.name], direction, high=high)}
                self._building.put(1, functools.partial(self._try_to_prepare, next_ones))

    def discard(self, feed: BatchFeed) -> None:
        """Destroy a pipeline in the background, which may take as long as a batch."""
        last_references = [feed]
        self._discarding.put(0, last_references.clear)

    def _try_to_prepare(self, settings: Settings) -> None:
        try:
            self._pipelines.prepare(settings)
        except Exception:  # noqa: BLE001 - it was not requested yet; `request` reports it
            return
