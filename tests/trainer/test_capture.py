"""Real captures of real training: each lane's profile says what bounds it, and agrees with TensorFlow's reader."""

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfmon.model.profile import Profile
from tfmon.model.readings import Missing, known
from tfmon.profile.breakdown import read_profile
from tfmon.trainer.capture import Capture, CaptureError

pytestmark = [pytest.mark.tensorflow, pytest.mark.trainer]
CALM_MOMENTS = 4
"""Profiles that are taken until the machine is calm enough for one."""


@pytest.fixture
def capture(tf: Any, tmp_path: Path) -> Iterator[Capture]:
    one = Capture(tmp_path)
    yield one
    one.abandon()


def data() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    return random.normal(size=(512, 32)).astype("float32"), random.integers(0, 10, 512)


def dense(tf: Any) -> Any:
    layers = tf.keras.layers
    return tf.keras.Sequential([tf.keras.Input((32,)), layers.Dense(64, activation="relu"), layers.Dense(10)])


def training(tf: Any, model: Any) -> Callable[..., Any]:
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    adam = tf.keras.optimizers.Adam(1e-3)
    weights = model.trainable_variables
    adam.build(weights)

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        adam.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    return step


def take(capture: Capture, step: Callable[..., Any], batches: Iterator[Any], steps: int = 12) -> Path:
    """Train some steps to get warm, then some that are captured."""
    for _ in range(3):
        loss = step(*next(batches))
    loss.numpy()
    capture.start()
    for _ in range(steps):
        with capture.step():
            loss = step(*next(batches))
    loss.numpy()
    return capture.stop()


def judged(
    capture: Capture, bottleneck: str, step: Callable[..., Any], batches: Iterator[Any], steps: int = 12
) -> Profile:
    """Return a profile with this bottleneck, or the last of some: other programs may bound the others."""
    for _ in range(CALM_MOMENTS):
        profile = read_profile(take(capture, step, batches, steps))
        if profile.bottleneck.kind == bottleneck:
            break
    return profile


def python_map(tf: Any) -> Iterator[Any]:
    """A pipeline that calls Python for each batch, and takes 20 ms for it: much more than the step."""

    def slow(x: Any, y: Any) -> tuple[Any, Any]:
        time.sleep(0.02)  # the work of the pipeline under test; no assertion depends on it
        return x, y

    def through_python(x: Any, y: Any) -> tuple[Any, Any]:
        slowed = tf.numpy_function(slow, [x, y], (tf.float32, tf.int64))
        return tf.ensure_shape(slowed[0], (10, 32)), tf.ensure_shape(slowed[1], (10,))

    dataset = tf.data.Dataset.from_tensor_slices(data()).repeat().batch(10, drop_remainder=True)
    return iter(dataset.map(through_python).prefetch(2))


def adding_up(profile: Profile) -> None:
    call = profile.call
    assert not isinstance(call, Missing) and not isinstance(call.compute_ns, Missing)
    waits = known(profile.input.wait_ns) or 0.0
    parts = call.compute_ns + call.dispatch_ns + call.tracing_ns + call.compile_ns
    assert parts == pytest.approx(call.total_ns)
    assert waits + call.total_ns + profile.other_ns == pytest.approx(profile.step_ns)


class TestVerdicts:
    def test_python_in_the_pipeline_is_bound_by_input(self, tf, capture):
        step = tf.function(training(tf, dense(tf)))
        profile = judged(capture, "input", step, python_map(tf))
        assert profile.bottleneck.kind == "input"
        # The longest part of the pipeline is the stage that sleeps, and its time is known to be Python's.
        assert profile.input.stages[0].name.endswith("Map")
        assert profile.input.python_ns / 1e6 > 15
        assert not [op for op in profile.ops.top if "PyFunc" in op.kind]
        adding_up(profile)

    def test_an_eager_step_is_bound_by_starting_operations(self, tf, capture):
        x, y = data()
        ready = itertools.repeat((tf.constant(x[:10]), tf.constant(y[:10])))
        profile = judged(capture, "eager", training(tf, dense(tf)), ready, steps=5)
        assert (profile.mode, profile.bottleneck.kind) == ("eager", "eager")
        assert profile.ops.runs / profile.steps > 100
        assert {"MatMul", "ReadVariableOp"} <= {op.kind for op in profile.ops.top}
        adding_up(profile)

    def test_xla_shows_its_operations_and_that_it_compiled(self, tf, capture):
        x, y = data()
        sizes = itertools.chain([10] * 5, [12] * 3)
        batches = ((tf.constant(x[:size]), tf.constant(y[:size])) for size in sizes)
        signature = [tf.TensorSpec([None, 32]), tf.TensorSpec([None], tf.int64)]
        step = tf.function(training(tf, dense(tf)), jit_compile=True, input_signature=signature)
        profile = read_profile(take(capture, step, batches, steps=5))
        assert profile.mode == "xla"
        assert [(compile_.function, compile_.count) for compile_ in profile.compiles] == [("step", 1)]
        assert (profile.retraces, profile.retraced_steps, profile.bottleneck.kind) == ((), 1, "retracing")
        # All of such a call but its operations counts as compiling, TensorFlow's own part of it too.
        assert 5 * profile.call.compile_ns > profile.compiles[0].cost_ns > 1e6
        assert not isinstance(profile.ops, Missing)
        adding_up(profile)


class TestCapture:
    def test_batches_and_steps_are_marked_where_a_lanes_clocks_are(self, tf, capture):
        """The wait and the call are known although the trace contains no iterator and no tf.function there."""

        def batches() -> Iterator[Any]:
            for _ in range(4):
                time.sleep(0.005)  # the work of the pipeline under test; no assertion depends on it
                yield (np.ones(3, np.float32),)

        def step(x: Any) -> Any:
            time.sleep(0.01)
            return tf.reduce_sum(x)

        capture.start()
        feed = batches()
        for _ in range(4):
            with capture.step():
                batch = next(feed)
                with capture.call():
                    assert float(step(*batch)) == 3.0
        profile = read_profile(capture.stop())
        assert profile.steps >= 4 and not isinstance(profile.call, Missing)
        assert profile.call.total_ns * profile.steps / 1e6 >= 4 * 10
        assert profile.input.wait_ns * profile.steps / 1e6 >= 4 * 5
        assert profile.call.dispatch_ns * profile.steps / 1e6 >= 4 * 10, "sleeping is no operation"

    def test_the_profiler_is_free_after_an_abandoned_one_and_after_a_folder_that_cannot_be_made(
        self, capture, tmp_path
    ):
        with pytest.raises(CaptureError, match="no profile is being taken"):
            capture.stop()
        capture.start()
        capture.abandon()
        capture.abandon()
        assert not list(tmp_path.rglob("*.xplane.pb"))
        (tmp_path / "file").touch()
        blocked = Capture(tmp_path / "file" / "below")
        with pytest.raises(CaptureError):
            blocked.start()
            blocked.stop()
        capture.start()
        assert capture.stop().exists()
