"""Instances of a GPU that is split up (MIG): how a lane gets one, and their readings."""

import ctypes

import pynvml
import pytest
from support.mig import FIRST, LOADS, SECOND, SPLIT
from support.nvml import BUSY, IDLE, TWO_GPUS, take
from support.waiting import PATIENCE_S

from tfmon.model.readings import Missing
from tfmon.probes.base import FIRST_SAMPLE
from tfmon.probes.find_gpus import GpuSearch, conclude, read_visibility
from tfmon.probes.nvidia.activity import NO_LOAD
from tfmon.probes.nvidia.probe import NvidiaProbe

pytestmark = pytest.mark.process


class TestFound:
    @pytest.fixture
    def search(self, driver, tmp_path):
        driver.play(SPLIT)

        def look(**environ: str) -> GpuSearch:
            seen = read_visibility(
                environ=environ, library=str(driver.library), root=tmp_path, system="Linux", timeout_s=PATIENCE_S
            )
            return conclude(seen, lambda: None)

        return look

    def test_the_split_gpu_is_listed_and_its_instances_can_be_used(self, search):
        found = search()
        assert [(gpu.uuid, gpu.split) for gpu in found.gpus] == [(BUSY.uuid, True), (IDLE.uuid, False)]
        assert found.instances == (FIRST, SECOND)
        assert found.usable == (IDLE, FIRST, SECOND)
        assert pynvml._nvmlLib_refcount == 0

    def test_the_variable_names_gpus_or_instances(self, search):
        assert search(CUDA_VISIBLE_DEVICES=IDLE.uuid).instances == ()
        assert search(CUDA_VISIBLE_DEVICES="0").usable == (FIRST, SECOND)
        found = search(CUDA_VISIBLE_DEVICES=f"MIG-2222,{FIRST.uuid},MIG-9")
        assert (found.gpus, found.usable) == ((), (SECOND, FIRST))
        found = search(CUDA_VISIBLE_DEVICES="MIG-9")
        assert (found.usable, found.reason) == (
            (),
            'CUDA_VISIBLE_DEVICES="MIG-9" names no MIG instance that is there',
        )

    def test_a_split_gpu_without_instances_is_none(self, search, driver):
        driver.play("count 1\nname 0 NVIDIA_Split\nmig 0 1\n")
        found = search()
        assert (found.usable, found.reason) == ((), "NVIDIA Split is split up (MIG), but has no instance")
        assert "nvidia-smi mig -i 0 -cgi 0 -C" in found.hint
        driver.play(TWO_GPUS + "mig 0 1\n")
        assert (search().usable, search().reason) == ((IDLE,), "")


class TestLoad:
    @pytest.fixture
    def probe(self, driver, clock):
        driver.play(SPLIT + LOADS)
        probe = NvidiaProbe([FIRST, SECOND], clock_ns=clock)
        yield probe
        probe.close()
        assert ctypes.CDLL(str(driver.library)).fakeGpmSamples() == 0, "every sample is released"

    def test_is_that_of_each_instance_since_the_sample_before(self, probe, driver, clock):
        one, two = take(probe)
        assert one.load.busy_pct == two.load.busy_pct == FIRST_SAMPLE
        clock.pass_s(1)
        one, two = take(probe)
        assert (one.load.busy_pct, one.load.source, two.load.busy_pct) == (62.5, "gpm", 0)
        assert isinstance(one.load.busy_max_pct, Missing)
        clock.pass_s(0.05)
        driver.play(SPLIT + LOADS.replace("62.5", "10"))
        assert take(probe)[0].load.busy_pct == 62.5, "two samples need 0.1 s between them"
        clock.pass_s(1)
        assert take(probe)[0].load.busy_pct == 10
        clock.pass_s(1)
        driver.play(SPLIT + LOADS.replace("62.5", "nan"))
        one, two = take(probe)
        assert (one.load.busy_pct, two.load.busy_pct) == (Missing("the driver has no data"), 0)
        clock.pass_s(1)
        driver.play(SPLIT + LOADS + "ret GpmMigSampleGet 4\n")
        assert take(probe)[0].load.busy_pct == Missing("no permission to use the NVIDIA driver")


@pytest.mark.parametrize("flags", [(), ("-DWITHOUT_GPM",)], ids=["an older GPU", "an older driver"])
def test_without_gpm_the_load_is_missing_and_the_rest_is_read(load_driver, clock, flags):
    load_driver(*flags).play(SPLIT)
    probe = NvidiaProbe([FIRST], clock_ns=clock)
    for _ in range(2):
        (one,) = take(probe)
        clock.pass_s(1)
    assert (one.load.busy_pct, one.load.source) == (NO_LOAD, "")
    assert (one.memory.used_bytes, one.memory.total_bytes, one.temperature_c) == (
        3_000_000_000,
        10_000_000_000,
        61,
    )
    probe.close()
