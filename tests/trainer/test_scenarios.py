"""Every scenario that comes with tfmon: it is read, built in each variant, and trains."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfmon.catalog import ScenarioInfo, read_scenario
from tfmon.cli.scenarios import write
from tfmon.model.spec import parse_lane
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
"""Settings that make building quick and change nothing else."""
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
            found["-".join(map(str, (info.name, *each.values())))] = info, {**each, **SMALL.get(info.name, {})}
        quick |= set([name for name, (one, _) in found.items() if one is info and name not in SLOW][:1])
    marks = {name: pytest.mark.slow for name in found.keys() - quick}
    return [pytest.param(*each, id=name, marks=marks.get(name, ())) for name, each in found.items()]


def train(info: ScenarioInfo, settings: dict[str, Any], steps: int = 3) -> list[Any]:
    """Build a scenario as a lane does, and return the losses of its first steps."""
    settings = {**info.defaults(), **settings}
    scenario = load(info.path)(settings)
    pipelines = Pipelines(scenario)
    pipelines.check(settings)
    maker = Steps(scenario, pipelines.signature(settings))
    maker.check(settings)
    feed, step = pipelines.open(settings), maker.make(settings)
    return [step(*batch) for batch in itertools.islice(feed.batches, steps)]


def test_the_table_of_scenarios_is_there():
    assert {info.name for info in SCENARIOS} == {
        "text-tiny", "text-conv", "slow-preprocess", "fine-grained-ops", "host-transfer", "op-placement",
        "tensor-core-shapes", "sequential-rnn", "model-creation", "small-dense", "large-dense", "python-feed",
        "eager-graph", "device-choice", "retracing", "resnet50", "transformer",
    }  # fmt: skip
    for info in SCENARIOS:
        assert 10 < len(info.title) <= 100 and len(info.doc) > 100 and len(info.contrast) == 2, info.name


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
