"""The training step in every form that the knobs ask for, over one set of weights.

Variables stay in 32 bits and are the same objects in every form, so a lane goes over from one form to another
with its weights and its optimizer's state. A tf.function keeps the precision it was traced with; traces are
kept, so going back costs nothing.
"""

from __future__ import annotations

import functools
import itertools
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfmon.model.knobs import STEP, KnobError, KnobValue, Settings
from tfmon.trainer.loader import ScenarioError
from tfmon.trainer.pipeline import BatchFeed, Pipelines
from tfmon.trainer.scenario import Scenario

_POLICIES = {"off": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


class Steps:
    """Makes the training step of one scenario.

    Thread: one at a time.
    """

    def __init__(self, scenario: Scenario, signature: list[Any]) -> None:
        self.knobs = tuple(knob for knob in STEP if scenario.has(knob.name))
        """The knobs that another step brings into force."""
        self._scenario = scenario
        self._signature = signature
        self._model = scenario.model()
        self._made: dict[tuple[object, ...], Callable[..., Any]] = {}
        if self._model is not None:
            self._build()

    @property
    def parameters(self) -> int:
        """Trainable values of the model."""
        if self._model is None:
            return 0
        return sum(int(weight.shape.num_elements()) for weight in self._model.trainable_weights)

    def check(self, settings: Settings) -> None:
        """Refuse settings that no step can be made for.

        Errors: KnobError.
        """
        if settings.get("xla") and not settings.get("graph", True):
            raise KnobError("xla=on compiles a graph; it needs graph=on")

    def make(self, settings: Settings) -> Callable[..., Any]:
        """Return the step for these settings, traced but not yet compiled."""
        import tensorflow as tf

        graph, xla = bool(settings.get("graph", True)), bool(settings.get("xla", False))
        policy = _POLICIES[str(settings.get("mixed_precision", "off"))]
        self._set_policy(policy)
        key = (graph, xla, policy)
        if key not in self._made:
            step = self._scenario.step(self._model_for(policy))
            if graph and not getattr(step, "runs_in_python", False):
                step = tf.function(step, input_signature=self._signature or None, jit_compile=xla)
                step.get_concrete_function()
            self._made[key] = step
        return self._made[key]

    def _build(self) -> None:
        """Make the variables of the model and of its optimizer, before a tf.function needs them."""
        model = self._model
        if getattr(model, "optimizer", None) is None:
            raise ScenarioError("`model` must return a compiled model: call model.compile(optimizer, loss)")
        if not model.built:
            model.build(self._signature[0].shape)
        model.optimizer.build(model.trainable_variables)

    def _set_policy(self, policy: str) -> None:
        if self._model is None:
            return
        for layer in self._model._flatten_layers():
            if layer.dtype_policy.name != policy:
                layer.dtype_policy = policy

    def _model_for(self, policy: str) -> Any:  # noqa: ANN401
        """Give the model the optimizer that a precision needs: 16-bit floats underflow without loss scaling."""
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


# ---------------- the background threads that make ready what a knob asks for, pipelines and steps, and drop what it replaced


@dataclass(frozen=True, slots=True)
class Setup:
    """What the loop trains with under certain settings; None for what stays as it is."""

    settings: dict[str, KnobValue]
    feed: BatchFeed | None
    step: Callable[..., Any] | None


class _Worker(threading.Thread):
    """Works off jobs, the urgent ones first."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._jobs: queue.PriorityQueue[tuple[int, int, Callable[[], None]]] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._worked = self._known = 0

    def put(self, urgency: int, job: Callable[[], None]) -> None:
        """Have a job done; those of the same urgency in the order that they came in."""
        self._jobs.put((urgency, next(self._numbers), job))

    @property
    def idle(self) -> bool:
        """True when nothing is to be done."""
        return self._jobs.unfinished_tasks == 0

    def took_time(self) -> bool:
        """Return whether a job was under way since the last call."""
        worked, known = self._worked, self._known
        self._known = worked - worked % 2
        return worked != known

    def run(self) -> None:
        """Work for ever."""
        while True:
            job = self._jobs.get()[2]
            self._worked += 1  # odd while a job is under way
            job()
            del job
            self._worked += 1
            self._jobs.task_done()


class Preparer:
    """Makes setups in the background and delivers them; drops the old pipelines, which takes time as well.

    What one key press may ask for next is made ready ahead of time, as far as that is cheap: pipelines are,
    tracing another step is not. What is dropped has a thread of its own: it may take as long as the pipeline
    needs for a batch, and a request would wait for it.
    """

    def __init__(
        self, pipelines: Pipelines, steps: Steps, deliver: Callable[[int, Setup | BaseException], None]
    ) -> None:
        self._pipelines = pipelines
        self._steps = steps
        self._deliver = deliver
        self._maker, self._dropper = self._workers = _Worker("tfmon-preparer"), _Worker("tfmon-drop")

    def start(self) -> None:
        """Begin to work."""
        for worker in self._workers:
            worker.start()

    @property
    def idle(self) -> bool:
        """True when nothing is to be done."""
        return all(worker.idle for worker in self._workers)

    def took_time(self) -> bool:
        """Return whether anything was done since the last call: it may have taken time from the steps."""
        return any([worker.took_time() for worker in self._workers])

    def make(self, settings: Settings, before: Settings | None = None) -> Setup:
        """Make what differs from the settings before, in the calling thread; everything if there are none."""

        def differ(names: tuple[str, ...]) -> bool:
            return before is None or any(settings[name] != before[name] for name in names)

        feed = self._pipelines.open(settings) if differ(_names(self._pipelines)) else None
        step = self._steps.make(settings) if differ(_names(self._steps)) else None
        return Setup(dict(settings), feed, step)

    def order(self, request: int, settings: Settings, before: Settings | None) -> None:
        """Make a setup as soon as possible and deliver it under the request's number.

        It holds what differs from the settings before, which must be those in force when it is used.
        """

        def job() -> None:
            try:
                self._deliver(request, self.make(settings, before))
            except Exception as error:  # noqa: BLE001 - the user's code may raise anything; the loop says so
                self._deliver(request, error)

        self._maker.put(0, job)

    def prepare_neighbours(self, settings: Settings) -> None:
        """Make ready the pipelines that one press of a key may ask for next."""
        for knob in self._pipelines.knobs:
            for direction in (+1, -1) if not knob.choices else (+1,):
                high = self._pipelines.examples if knob.name == "batch_size" else None
                wanted = {**settings, knob.name: knob.next(settings[knob.name], direction, high=high)}
                self._maker.put(1, functools.partial(self._try_to_prepare, wanted))

    def drop(self, feed: BatchFeed) -> None:
        """Let go of an open pipeline where its end delays neither a step nor a request."""
        leftovers = [feed]
        self._dropper.put(0, leftovers.clear)

    def _try_to_prepare(self, settings: Settings) -> None:
        try:
            self._pipelines.prepare(settings)
        except Exception:  # noqa: BLE001 - nobody asked for it yet; whoever does is told by `order`
            return


def _names(maker: Pipelines | Steps) -> tuple[str, ...]:
    return tuple(knob.name for knob in maker.knobs)
