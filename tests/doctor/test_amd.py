"""The check of AMD GPUs, with the fault and without."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfmon.doctor.checks import BROKEN, NOT_APPLICABLE, OK
from tfmon.probes.base import Gpu
from tfmon.probes.wheel import Wheel

from .bench import find

MI210 = Gpu(0, "AMD-8fa5d41e0b2c7301", "AMD Instinct MI210 (gfx90a)", physical_gpu=0)
ROCM = Wheel("tensorflow-rocm", "2.18.1", False, "", rocm=True)


@pytest.fixture
def server(bench):
    """Facts of a machine with an AMD GPU and a TensorFlow for it."""
    facts = bench.facts()
    return replace(facts, wheel=ROCM, visibility=replace(facts.visibility, amd_gpus=(MI210,)))


def test_nothing_is_wrong_with_a_server(server):
    finding = find("amd-gpus", server)
    assert (finding.status, finding.found) == (OK, MI210.name)
    assert finding.evidence == ("gpu:0 AMD-8fa5d41e0b2c7301 AMD Instinct MI210 (gfx90a)",)
    assert find("driver", server).status == NOT_APPLICABLE
    assert (find("gpu-build", server).status, server.obstacle) == (OK, None)


def test_a_build_without_rocm_and_a_variable_that_hides_it(server, bench):
    other = replace(server, wheel=Wheel("tensorflow", "2.21.0", True, ""))
    finding = find("amd-gpus", other)
    assert (finding.status, "tensorflow-rocm" in finding.fix) == (BROKEN, True)
    assert other.obstacle is not None
    assert "not built for ROCm" in other.obstacle.reason
    hidden = replace(server.visibility, amd_gpus=(), amd_hidden='HIP_VISIBLE_DEVICES="-1"')
    finding = find("amd-gpus", replace(server, visibility=hidden))
    assert (finding.status, finding.fix) == (BROKEN, "unset HIP_VISIBLE_DEVICES")
    assert bench.find("amd-gpus").status == NOT_APPLICABLE
