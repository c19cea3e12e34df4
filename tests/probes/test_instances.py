"""Instances of a GPU that is split up (MIG): how a lane gets one, and their readings."""

import ctypes

import pynvml
import pytest
from support.mig import FIRST, FIRST_UUID, LOADS, SECOND, SECOND_UUID, SPLIT
from support.nvml import BUSY, IDLE, TWO_GPUS, take
from support.waiting import PATIENCE_S

from tfmon.model.gpu_samples import GpuSample
from tfmon.model.readings import Missing
from tfmon.probes.base import FIRST_SAMPLE
from tfmon.probes.find_gpus import GpuSearch, conclude, read_visibility
from tfmon.probes.nvidia.activity import NO_LOAD
from tfmon.probes.nvidia.probe import NvidiaProbe

pytestmark = pytest.mark.process
GB = 1_000_000_000


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


def test_instances_are_separate_devices_with_power_clocks_and_messages_of_the_whole_gpu(read, driver, clock):
    whole, idle, one, two = read(SPLIT + "util 10 50 50\nutil 0 50 50\n")
    assert (whole.key, idle.key, one.key, two.key) == (BUSY.uuid, IDLE.uuid, FIRST_UUID, SECOND_UUID)
    assert (whole.part_of, one.part_of, idle.part_of) == ("", BUSY.uuid, "")
    assert (one.index, one.name) == (0, "NVIDIA Busy MIG 1g.10gb")
    assert (one.memory.used_bytes, one.memory.total_bytes) == (3 * GB, 10 * GB)
    assert (two.memory.used_bytes, two.memory.total_bytes) == (0, 20 * GB)
    assert one.processes.used_by_pid == {4242: 2.5 * GB}
    assert two.processes.used_by_pid == {}
    unknown = Missing("not reported for a GPU that is split up (MIG)")
    assert whole.load.busy_pct == one.processes.busy_by_pid == unknown
    assert one.load.busy_pct == Missing("the driver does not report the load of an instance (MIG) of this GPU")
    assert idle.load.busy_pct == 0
    whole, _, one, two = read(SPLIT.replace("energy 0 7000000", "energy 0 7200000") + "xid 0 94\n", 1)
    assert [[fault.code for fault in sample.faults] for sample in (whole, one, two)] == [[94]] * 3
    assert whole.power.power_w == one.power.power_w == two.power.power_w == pytest.approx(200)
    assert (one.clocks.sm_clock_mhz, one.temperature_c) == (1500, 61)
    driver.play(SPLIT.replace("mig 0 1", "mig 0 0"))
    assert [sample.key for sample in take(NvidiaProbe([BUSY], clock_ns=clock))] == [BUSY.uuid]


def test_the_load_is_that_of_each_instance_since_the_sample_before(driver, clock):
    driver.play(SPLIT + LOADS)
    probe = NvidiaProbe([FIRST, SECOND], clock_ns=clock)

    def read(script: str = SPLIT + LOADS, after_s: float = 1.0) -> list[GpuSample]:
        clock.ahead(after_s)
        driver.play(script)
        return take(probe)

    one, two = read()
    assert one.load.busy_pct == two.load.busy_pct == FIRST_SAMPLE
    one, two = read()
    assert (one.load.busy_pct, one.load.source, two.load.busy_pct) == (62.5, "gpm", 0)
    assert isinstance(one.load.busy_max_pct, Missing)
    lower = SPLIT + LOADS.replace("62.5", "10")
    assert read(lower, 0.05)[0].load.busy_pct == 62.5, "two samples need 0.1 s between them"
    assert read(lower)[0].load.busy_pct == 10
    one, two = read(SPLIT + LOADS.replace("62.5", "nan"))
    assert (one.load.busy_pct, two.load.busy_pct) == (Missing("the driver has no data"), 0)
    one, _ = read(SPLIT + LOADS + "ret GpmMigSampleGet 4\n")
    assert one.load.busy_pct == Missing("no permission to use the NVIDIA driver")
    probe.close()
    assert ctypes.CDLL(str(driver.library)).fakeGpmSamples() == 0, "every sample is released"


@pytest.mark.parametrize("flags", [(), ("-DWITHOUT_GPM",)], ids=["an older GPU", "an older driver"])
def test_without_gpm_the_load_is_missing_and_the_rest_is_read(load_driver, clock, flags):
    load_driver(*flags).play(SPLIT)
    probe = NvidiaProbe([FIRST], clock_ns=clock)
    for _ in range(2):
        (one,) = take(probe)
        clock.ahead(1)
    assert (one.load.busy_pct, one.load.source) == (NO_LOAD, "")
    assert (one.memory.used_bytes, one.memory.total_bytes, one.temperature_c) == (3 * GB, 10 * GB, 61)
    probe.close()
