"""Every scenario that comes with tfmon: it is read, built in each variant, and trains."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfmon.catalog import Card, read_card
from tfmon.cli.scenarios import write
from tfmon.model.spec import parse_lane
from tfmon.trainer.loader import load
from tfmon.trainer.pipeline import Pipelines
from tfmon.trainer.steps import Steps

pytestmark = pytest.mark.trainer

FOLDER = Path(__file__).parents[2] / "scenarios"
CARDS = [read_card(path, "built-in") for path in sorted(FOLDER.glob("*.py"))]
LANES = [
    pytest.param(card, settings, id=f"{card.name}-{'-'.join(str(value) for value in settings.values())}")
    for card in CARDS
    for settings in [
        *({"variant": variant} for knob in card.knobs if knob.name == "variant" for variant in knob.choices),
        *(dict(parse_lane(f"cpu,{side}", card.knobs).settings) for side in card.contrast),
    ]
]


def train(card: Card, settings: dict[str, Any], steps: int = 3) -> list[Any]:
    """Build a scenario as a lane does, and return the losses of its first steps."""
    settings = {**card.defaults(), **settings}
    scenario = load(card.path)(settings)
    pipelines = Pipelines(scenario)
    pipelines.check(settings)
    maker = Steps(scenario, pipelines.signature(settings))
    maker.check(settings)
    feed, step = pipelines.open(settings), maker.make(settings)
    return [step(*batch) for batch in itertools.islice(feed.batches, steps)]


def test_the_table_of_scenarios_is_there() -> None:
    assert {card.name for card in CARDS} == {
        "text-tiny", "text-conv", "slow-preprocess", "fine-grained-ops", "host-transfer", "op-placement",
        "tensor-core-shapes", "sequential-rnn", "model-creation", "small-dense", "large-dense", "python-feed",
        "eager-graph", "device-choice", "retracing",
    }  # fmt: skip


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_a_scenario_says_what_it_is(card: Card) -> None:
    assert 10 < len(card.title) <= 100
    assert len(card.doc) > 100
    assert len(card.contrast) == 2


@pytest.mark.parametrize(("card", "settings"), LANES)
def test_a_scenario_trains(tf: Any, card: Card, settings: dict[str, Any]) -> None:
    losses = train(card, settings)
    assert len(losses) == 3
    for loss in losses:
        assert loss is None or np.isfinite(np.mean(loss))


def test_the_starter_file_trains(tf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    card = read_card(write("my-net").resolve(), "file")
    assert all(np.isfinite(train(card, {})))


def test_claims_have_ids_of_their_own_and_lanes_that_exist() -> None:
    claims = [(card, claim) for card in CARDS for claim in card.claims]
    assert len(claims) >= 20
    assert len({claim.id for _, claim in claims}) == len(claims)
    for card, claim in claims:
        assert claim.source and claim.says
        assert bool(claim.first) == bool(claim.second)
        assert claim.first or claim.corrected, claim.id
        for lane in (claim.first, claim.second):
            if lane:
                spec = parse_lane(lane, card.knobs)
                assert spec.kind == "cpu" or claim.needs in ("gpu", "mac"), claim.id
