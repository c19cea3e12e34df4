"""Every scenario that comes with tfmon trains, and every knob and variant has its documented effect."""

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.processes import run_python
from support.waiting import PATIENCE_S

from tfmon.catalog import read_scenario
from tfmon.cli.scenarios import write
from tfmon.model.race import ScenarioInfo
from tfmon.model.spec import parse_lane
from tfmon.trainer import Scenario
from tfmon.trainer.batch_feed import Pipelines
from tfmon.trainer.scenario import load
from tfmon.trainer.setups import Steps

pytestmark = [pytest.mark.tensorflow, pytest.mark.trainer]

FOLDER = Path(__file__).parents[2] / "scenarios"
SCENARIOS = [read_scenario(path, "built-in") for path in sorted(FOLDER.glob("*.py"))]
SMALL = {
    "sequential-rnn": {"sequence_length": 8},
    "resnet50": {"image_size": 32, "batch_size": 2},
    "transformer": {"sequence_length": 8, "blocks": 1},
}
"""Settings that make building quick and change nothing else. Batches are small, too."""
SLOW = (
    "resnet50", "device-choice", "transformer-128", "transformer-256", "sequential-rnn-loop",
    "sequential-rnn-unrolled", "op-placement-free", "op-placement-pinned", "retracing-python-number",
)  # fmt: skip
"""Lanes that take long to build. Of the others, `make test` trains the first of each scenario."""


def lanes() -> list[Any]:
    """Return each scenario with each of its variants and settings of its contrast, but `threads`, of a process."""
    found, quick = {}, set()
    for info in SCENARIOS:
        variants = [knob.choices for knob in info.knobs if knob.name == "variant"]
        settings = [{"variant": variant} for choices in variants for variant in choices]
        settings += [dict(parse_lane(f"cpu,{side}", info.knobs).settings) for side in info.contrast]
        for each in settings:
            each.pop("threads", None)
            small = {name: 2 for name in info.defaults() if name == "batch_size"} | SMALL.get(info.name, {})
            found["-".join(map(str, (info.name, *each.values())))] = info, {**small, **each}
        quick |= set([name for name, (one, _) in found.items() if one is info and name not in SLOW][:1])
    marks = {name: pytest.mark.slow for name in found.keys() - quick}
    return [pytest.param(*each, id=name, marks=marks.get(name, ())) for name, each in found.items()]


def built(info: ScenarioInfo, **settings: Any) -> tuple[Any, Any, list[Any], Steps]:
    """Build a scenario as a lane does: itself, its feed, the specs of a batch, and its steps."""
    settings = {**info.defaults(), **settings}
    scenario = load(info.path)(settings)
    pipelines = Pipelines(scenario)
    pipelines.check(settings)
    signature = pipelines.signature(settings)
    steps = Steps(scenario, signature)
    steps.check(settings)
    return scenario, pipelines.open(settings), signature, steps


def train(info: ScenarioInfo, settings: dict[str, Any], count: int = 3) -> list[Any]:
    """Return the losses of the first steps of a scenario."""
    scenario, feed, _, steps = built(info, **settings)
    step = steps.make(scenario._settings)
    return [step(*batch) for batch in itertools.islice(feed.batches, count)]


@pytest.mark.parametrize(("info", "settings"), lanes())
def test_a_scenario_trains(tf, info, settings):
    losses = train(info, settings)
    assert len(losses) == 3
    for loss in losses:
        assert loss is None or np.isfinite(np.mean(loss))


def test_the_starter_file_trains(tf, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    info = read_scenario(write("my-net").resolve(), "file")
    assert all(np.isfinite(train(info, {})))


def test_claims_have_ids_of_their_own_and_lanes_that_exist():
    claims = [(info, claim) for info in SCENARIOS for claim in info.claims]
    assert len(claims) >= 20
    assert len({claim.id for _, claim in claims}) == len(claims)
    for info, claim in claims:
        assert claim.source and claim.says
        assert bool(claim.first) == bool(claim.second)
        assert claim.first or claim.corrected, claim.id
        for lane in (claim.first, claim.second):
            if lane:
                spec = parse_lane(lane, info.knobs)
                assert spec.kind == "cpu" or claim.needs in ("gpu", "mac"), claim.id


def of(name: str, **settings: Any) -> tuple[Any, Any, list[Any], Steps]:
    return built(next(info for info in SCENARIOS if info.path.stem == name), **settings)


def graph(steps: Steps, **settings: Any) -> Any:
    return steps.make({**steps._scenario._settings, **settings}).get_concrete_function().graph


def kinds_of(steps: Steps) -> list[str]:
    """Return the types of all operations of a step and of its functions."""
    operations = graph(steps).get_operations()
    functions = graph(steps).as_graph_def().library.function
    return [op.type for op in operations] + [node.op for function in functions for node in function.node_def]


def mapped(function: Any) -> Callable[..., Any]:
    """Return a function that opens a scenario, whose `prepare` calls a Python function, for some settings."""
    import tensorflow as tf

    class Mapped(Scenario):
        def data(self) -> Any:
            return np.arange(4.0)

        def prepare(self, x: Any) -> Any:
            return tf.numpy_function(function, [x], tf.float64)

    usual = {"batch_size": 2, "prefetch": "off", "parallel_calls": "off", "cache": False}
    pipelines = Pipelines(Mapped(usual))
    return lambda **settings: pipelines.open({**usual, **settings}).batches


def test_parallel_calls_prepares_examples_side_by_side_and_off_one_after_the_other(tf):
    inside, met = itertools.count(1), threading.Event()

    def meet(x: Any) -> Any:
        if next(inside) == 2:
            met.set()
        assert met.wait(PATIENCE_S), "the second example was not begun while the first one was worked on"
        return x

    next(mapped(meet)(parallel_calls=2))
    assert met.is_set()
    busy = threading.Lock()

    def enter(x: Any) -> Any:
        assert busy.acquire(blocking=False)
        threading.Event().wait(0.02)
        busy.release()
        return x

    assert len(list(itertools.islice(mapped(enter)(), 4))) == 4


def test_cache_prepares_each_example_once_and_only_the_latest_caches_are_kept(tf):
    """A dataset holds its own cache, with all the data, for as long as it lives."""
    seen: list[float] = []

    def note(x: Any) -> Any:
        seen.append(float(x))
        return x

    batches = mapped(note)
    list(itertools.islice(batches(), 6))
    assert len(seen) == 12

    def prepared(batch_size: int) -> int:
        before = len(seen)
        list(itertools.islice(batches(cache=True, batch_size=batch_size), 8))
        return len(seen) - before

    assert [prepared(size) for size in (1, 2, 1, 2)] == [4, 4, 0, 0], "one press back is quick"
    assert [prepared(size) for size in (4, 1)] == [4, 4]


@pytest.mark.slow
def test_threads_limits_what_one_op_may_use():
    code = (
        "from tfmon.trainer import runtime; import tensorflow as tf; "
        "runtime.choose_device('cpu', 3); tf.constant(1.0) + 1; "
        "print('threads', tf.config.threading.get_intra_op_parallelism_threads())"
    )
    done = run_python("-c", code, folder=FOLDER.parent)
    assert "threads 3" in done.stdout, done.stderr


def test_variants_change_the_batches_or_the_step(tf):
    for variant, dtype in (("in-model", "string"), ("in-tf-data", "int64")):
        assert of("text_tiny", variant=variant)[2][0].dtype.name == dtype
    for variant in ("1023", "1024"):
        _, _, signature, steps = of("tensor_core_shapes", variant=variant)
        assert signature[0].shape[1] == int(variant)
        assert max(weight.shape[0] for weight in steps._model.trainable_weights) == int(variant)
    for variant, same in (("host-feed", False), ("host-batch", True), ("device-resident", True)):
        _, feed, _, _ = of("host_transfer", variant=variant, element_kib=4)
        first, second = itertools.islice(feed.batches, 1, 3)
        assert (first[0] is second[0]) is same
        assert first[0][0].numpy().nbytes == 4 * 1024
    for variant, pinned in (("pinned", True), ("free", False)):
        operations = graph(of("op_placement", variant=variant)[-1]).get_operations()
        assert any("CPU:0" in op.device for op in operations if op.type == "Relu") is pinned
    for variant, python in (("loop", True), ("tf-data", False)):
        scenario, feed, _, steps = of("python_feed", variant=variant)
        assert getattr(steps.make(scenario._settings), "runs_in_python", False) is python
        assert isinstance(next(feed.batches)[0], np.ndarray) is python


@pytest.mark.parametrize(
    ("name", "variant", "kind", "counts"),
    [
        ("sequential_rnn", "unrolled", "While", [0]),
        ("sequential_rnn", "loop", "While", range(1, 9)),
        ("slow_preprocess", "map", "TopKV2", [0]),
        ("slow_preprocess", "in-step", "TopKV2", range(1, 9)),
        ("slow_preprocess", "sleep", "TopKV2", [0]),
        ("fine_grained_ops", "add", "AddV2", [100]),
        ("fine_grained_ops", "matmul", "MatMul", [100]),
    ],
)
def test_the_step_of_a_variant_has_the_operations_of_its_description(tf, name, variant, kind, counts):
    settings = {"sequential_rnn": {"sequence_length": 8}, "fine_grained_ops": {"size": 12}}.get(name, {})
    found = [op for op in kinds_of(of(name, variant=variant, **settings)[-1]) if op.endswith(kind)]
    assert len(found) in counts, found


def test_model_creation_clones_or_builds_and_lets_go(tf, monkeypatch):
    cloned: list[Any] = []
    clone = tf.keras.models.clone_model
    monkeypatch.setattr(tf.keras.models, "clone_model", lambda model: cloned.append(model) or clone(model))
    for variant, clones in (("warm", 2), ("cold", 0)):
        cloned.clear()
        scenario, _, _, steps = of("model_creation", variant=variant, width=16, depth=3)
        step = steps.make(scenario._settings)
        step()
        step()
        assert len(cloned) == clones
    assert [layer.units for layer in scenario.build().layers] == [16, 16, 16, 10]
