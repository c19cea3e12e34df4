"""What scenarios claim of a GPU, and how lanes over several GPUs scale."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tfmon.analysis.analysis import analyse
from tfmon.api.options import Purpose, RaceOptions
from tfmon.api.program import Program
from tfmon.api.run_base import run_until_over
from tfmon.api.verification import SHORTEST_S, verify_claims
from tfmon.catalog import find_scenario, list_scenarios
from tfmon.probes.find_gpus import GpuSearch

from .ledger import Ledger, Step
from .racing import SCENARIO

pytestmark = [pytest.mark.process, pytest.mark.tensorflow, pytest.mark.timeout(480)]

ONE_S = 20.0
"""A claim takes so long at most: TensorFlow is loaded twice, then the race."""
SCALING_S = 20.0


def test_lanes_over_several_gpus_scale(step: Step, search: GpuSearch):
    pairs = [(a.index, b.index) for a, b in itertools.combinations(search.whole, 2) if a.name == b.name]
    if not pairs:
        pytest.skip("it needs two GPUs of one model that are not split up")
    one, two = pairs[0]
    options = RaceOptions(
        lanes=(f"gpu:{one}", f"gpu:{one}+{two}"), settings=("batch_size=4096",), seconds=SCALING_S, record=False
    )
    program = Program(options, Purpose(watched=False))
    program.plan(find_scenario(SCENARIO))
    assert run_until_over(program, quiet=True) == ""
    found = analyse(program.session.snapshot())
    assert [lane.trouble for lane in found.snapshot.lanes] == [None, None]
    assert found.verdict.scaling, found.verdict.answer
    step.notes.append(found.verdict.answer)


def test_the_claims_that_need_a_gpu(step: Step, ledger: Ledger, search: GpuSearch):
    infos = [(info, claim) for info in list_scenarios() for claim in info.claims if claim.needs == "gpu"]
    assert infos
    counts: dict[str, int] = {}
    for place, (info, claim) in enumerate(infos):
        if ledger.left_s < ONE_S:
            step.notes.append(f"{len(infos) - place} claims were not reached within the eight minutes")
            break
        (result,), interrupted = verify_claims([replace(info, claims=(claim,))], Path(sys.executable), SHORTEST_S)
        assert interrupted == ""
        counts[result.outcome] = counts.get(result.outcome, 0) + 1
        found = result.reason or ("" if result.ratio is None else f"ratio {result.ratio.value:.2f}")
        step.notes.append(f"{info.name}, {claim.says}: {result.outcome} ({found})")
    step.notes.append(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    assert counts and set(counts) != {"not testable here"}, "no claim could be measured"
