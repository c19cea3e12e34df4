"""The NVIDIA probe against a scripted driver, through the real pynvml."""

import threading
import time

import psutil
import pynvml
import pytest
from support.nvml import BUSY, IDLE, SECOND, TWO_GPUS, take
from support.waiting import PATIENCE_S, wait_for

from tfmon.model.gpu_samples import GpuSample
from tfmon.model.race import Machine
from tfmon.model.readings import Missing
from tfmon.model.session import Session
from tfmon.probes.base import Gpu, Ticker
from tfmon.probes.nvidia.nvml import NOT_FOUND, WRONG_PACKAGE, Nvml, NvmlFailure, open_nvml
from tfmon.probes.nvidia.probe import NvidiaProbe

pytestmark = pytest.mark.process

GB = 1_000_000_000


def readings(sample: GpuSample):
    memory = sample.memory.used_bytes, sample.memory.total_bytes
    return (sample.load.busy_pct, *memory, sample.power.power_w, sample.power.power_limit_w, sample.temperature_c)


def reasons(sample: GpuSample) -> set[str]:
    """Return the reasons of a sample without any reading."""
    assert all(isinstance(reading, Missing) for reading in readings(sample)), sample
    return {reading.reason for reading in readings(sample)}


def test_two_gpus(probe, clock):
    busy, idle = take(probe)
    assert (busy.key, busy.index, busy.name, busy.at_ns) == (BUSY.uuid, 0, "NVIDIA Busy", clock.now_ns)
    assert readings(busy) == (87, 39 * GB, 80 * GB, 412.345, 700, 61)
    assert busy.load.source == "driver window"
    assert busy.processes.used_by_pid == {4242: 38 * GB}
    # A true zero of an idle GPU is a number, not a missing value.
    assert readings(idle) == (0, 0, 80 * GB, 61, 700, 34)
    assert (idle.key, idle.index, idle.processes.used_by_pid) == (IDLE.uuid, 1, {})
    missing = [(sample.key, reasons(sample)) for sample in probe.missing("broken")]
    assert missing == [(gpu.uuid, {"broken"}) for gpu in (BUSY, IDLE)]


def test_the_chosen_gpu_is_sampled_under_its_own_number_or_all_that_are_listed(driver, clock):
    samples = take(NvidiaProbe(clock_ns=clock))
    assert [(sample.key, sample.index) for sample in samples] == [(BUSY.uuid, 0), (IDLE.uuid, 1)]
    second_as_first = Gpu(index=0, uuid=IDLE.uuid, name=IDLE.name, physical_gpu=1)
    (sample,) = take(NvidiaProbe([second_as_first], clock_ns=clock))
    assert (sample.key, sample.index, sample.load.busy_pct) == (IDLE.uuid, 0, 0)


class TestUtilisation:
    def test_mean_of_the_samples_of_this_tick(self, driver, probe, clock):
        driver.play(TWO_GPUS + "sample 0 100 10\nsample 0 200 20\n")
        first, _ = take(probe)
        assert first.load.source == "driver window", "samples of before the start do not count"
        assert first.load.busy_max_pct == Missing("the driver reports only the mean of its window")
        driver.play(TWO_GPUS + "sample 0 200 20\nsample 0 300 50\nsample 0 350 4000000000\nsample 0 400 100\n")
        busy, idle = take(probe)
        assert (busy.load.busy_pct, busy.load.busy_max_pct, busy.load.source) == (75, 100, "samples")
        assert (idle.load.busy_pct, idle.load.source) == (0, "driver window")
        busy, _ = take(probe)  # nothing newer than the cursor
        assert (busy.load.busy_pct, busy.load.source) == (87, "driver window")

    def test_sizing_call_that_promises_nothing(self, driver, probe):
        driver.play(TWO_GPUS + "zero 0\n")
        take(probe)
        busy, _ = take(probe)
        assert (busy.load.busy_pct, busy.load.source) == (87, "driver window")
        driver.play(TWO_GPUS + "sample 0 100 1\n")
        take(probe)
        driver.play(TWO_GPUS + "sample 0 200 9\n")
        assert take(probe)[0].load.source == "samples", "a tick without samples must not switch them off"


class TestMemory:
    def test_used_that_contains_the_reserve(self, driver, probe):
        driver.play(TWO_GPUS.replace("mem 0 80000000000 500000000 40500000000 39000000000",
                                     "mem 0 80000000000 500000000 40500000000 39500000000"))  # fmt: skip
        assert take(probe)[0].memory.used_bytes == 39 * GB
        driver.play(TWO_GPUS + "ret DeviceGetMemoryInfo_v2 13\n")  # an older driver
        assert (take(probe)[0].memory.used_bytes, take(probe)[0].memory.total_bytes) == (39.5 * GB, 80 * GB)

    def test_a_total_of_zero_is_the_memory_of_the_machine(self, driver, probe):
        driver.play(TWO_GPUS.replace("mem 0 80000000000 500000000 40500000000 39000000000", "mem 0 0 0 0 0"))
        busy, idle = take(probe)
        assert (busy.memory.total_bytes, busy.memory.unified) == (psutil.virtual_memory().total, True)
        assert 0 < busy.memory.used_bytes < busy.memory.total_bytes
        assert busy.memory.reserved_bytes == Missing("the GPU uses the machine's own memory")
        assert (idle.memory.total_bytes, idle.memory.unified) == (80 * GB, False)
        assert idle.memory.reserved_bytes == 0.5 * GB


class TestPower:
    def test_mean_from_the_energy_counter(self, driver, probe, clock):
        driver.play(TWO_GPUS + "energy 0 5000500\n")
        first, _ = take(probe)
        assert (first.power.power_w, first.power.energy_j) == (Missing("first sample"), 5000.5)
        clock.pass_s(2)
        driver.play(TWO_GPUS + "energy 0 5900500\n")
        busy, idle = take(probe)
        assert (busy.power.power_w, busy.power.source) == (pytest.approx(450), "energy counter")
        assert (idle.power.power_w, idle.power.source) == (61, "driver")
        assert idle.power.energy_j == Missing("not supported by this GPU")

    def test_the_mean_of_the_driver_and_the_energy_every_5_s(self, driver, probe, clock):
        for energy, told in ((5_000, 5), (9_000, 5), (12_000, 12)):
            driver.play(TWO_GPUS + f"energy 0 {energy}\nfield 0 185 1 {energy * 50}\n")
            power = take(probe)[0].power
            assert (power.power_w, power.energy_j, power.source) == (energy / 20, told, "driver, 1 s")
            clock.pass_s(3)
        driver.play(TWO_GPUS + "energy 0 5900500\n")
        assert take(probe)[1].power.source == "driver"

    def test_quick_ticks_still_span_a_second(self, driver, probe, clock):
        powers = []
        for tick in range(9):  # 100 W for the first second, then 300 W
            joules = tick * 25 if tick <= 4 else 100 + (tick - 4) * 75
            driver.play(TWO_GPUS + f"energy 0 {joules * 1000}\n")
            powers.append(take(probe)[0].power.power_w)
            clock.pass_s(0.25)
        assert powers[:4] == [Missing("first sample")] * 4
        assert powers[4:] == pytest.approx([100, 150, 200, 250, 300])

    def test_counter_that_goes_back(self, driver, probe, clock):
        for millijoules, power in ((9_000_000, Missing("first sample")), (10, Missing("first sample"))):
            driver.play(TWO_GPUS + f"energy 0 {millijoules}\n")
            assert take(probe)[0].power.power_w == power
            clock.pass_s(1)
        driver.play(TWO_GPUS + "energy 0 70010\n")
        assert take(probe)[0].power.power_w == pytest.approx(70)


class TestProcesses:
    def test_unknown_memory_is_none(self, driver, probe):
        many = {pid: pid * 1000 for pid in range(1, 41)}
        script = "".join(f"proc 1 {pid} {used}\n" for pid, used in many.items())
        driver.play(TWO_GPUS + "proc 0 777 na\nproc 0 778 0\n" + script)
        busy, idle = take(probe)
        assert busy.processes.used_by_pid == {4242: 38 * GB, 777: None, 778: 0}
        assert idle.processes.used_by_pid == many

    @pytest.mark.parametrize(("version", "listed"), [("535.54.03", {}), ("535.104.05", {4242: 38 * GB})])
    def test_drivers_with_a_broken_list(self, driver, probe, version, listed):
        driver.play(TWO_GPUS + f"driver {version}\n")
        busy, _ = take(probe)
        assert busy.processes.used_by_pid == listed
        assert busy.load.busy_pct == 87


class TestFailures:
    def test_nothing_supported(self, driver, probe):
        driver.play("count 2\nuuid 0 GPU-b0000000-1111-2222-3333-444444444444\n"
                    "uuid 1 GPU-1d1e0000-1111-2222-3333-444444444444\n")  # fmt: skip
        for sample in take(probe):
            assert reasons(sample) == {"not supported by this GPU"}
            assert sample.load.source == ""

    def test_an_unsupported_reading_is_not_tried_again(self, driver, probe):
        driver.play(TWO_GPUS + "ret DeviceGetTemperatureV 3 0\nret DeviceGetTemperature 3 0\n")
        busy, idle = take(probe)
        assert busy.temperature_c == Missing("not supported by this GPU")
        assert (busy.load.busy_pct, idle.temperature_c) == (87, 34)
        driver.play(TWO_GPUS)
        assert take(probe)[0].temperature_c == Missing("not supported by this GPU")

    def test_a_reading_that_fails_now_and_then_is_tried_again(self, driver, probe):
        driver.play(TWO_GPUS + "ret DeviceGetPowerUsage 4 0\n")
        assert take(probe)[0].power.power_w == Missing("no permission to use the NVIDIA driver")
        driver.play(TWO_GPUS + "ret DeviceGetPowerUsage 777 0\n")
        assert take(probe)[0].power.power_w == Missing("the driver fails with code 777")
        driver.play(TWO_GPUS + "ret DeviceGetPowerUsage 999 0\n")
        busy, _ = take(probe)
        assert busy.power.power_w == Missing("the driver reports an unknown error")
        assert (busy.load.busy_pct, busy.temperature_c) == (87, 61), "one unknown error costs one reading"
        driver.play(TWO_GPUS)
        assert take(probe)[0].power.power_w == 412.345

    @pytest.mark.parametrize(
        ("code", "words", "back"),
        [(12, "no NVIDIA driver", False), (4, "no permission", True), (18, "the NVIDIA driver was upd", False)],
    )
    def test_library_that_cannot_be_opened(self, driver, probe, clock, code, words, back):
        driver.play(TWO_GPUS + f"ret InitWithFlags {code}\n")
        busy, idle = take(probe)
        (reason,) = reasons(busy)
        assert reason.startswith(words)
        assert reasons(idle) == {reason}
        assert probe.failure is not None
        assert probe.failure.hint
        driver.play(TWO_GPUS)
        clock.pass_s(100_000)
        assert (take(probe)[0].load.busy_pct == 87) is back, "what lasts is not tried again"

    def test_driver_that_is_loaded_later(self, driver, probe, clock):
        driver.play(TWO_GPUS + "ret InitWithFlags 9\n")
        reasons(take(probe)[0])
        driver.play(TWO_GPUS)
        clock.pass_s(20)
        reasons(take(probe)[0])
        clock.pass_s(11)
        assert take(probe)[0].load.busy_pct == 87
        assert probe.failure is None


class TestLostDevices:
    def test_lost_in_mid_run_and_back(self, driver, probe, clock):
        take(probe)
        lost = TWO_GPUS + "".join(
            f"ret Device{function} 15 0\n"
            for function in ("GetSamples", "GetUtilizationRates", "GetMemoryInfo_v2", "GetHandleByIndex")
        )
        driver.play(lost)
        clock.pass_s(1)
        busy, idle = take(probe)
        assert reasons(busy) == {"the GPU is lost: it fell off the bus"}
        assert idle.load.busy_pct == 0
        driver.play(TWO_GPUS)
        clock.pass_s(30)
        assert reasons(take(probe)[0]) == {"the GPU is lost: it fell off the bus"}  # its calls have stopped
        driver.play(lost)
        clock.pass_s(31)
        busy, idle = take(probe)  # the library is opened again, and the GPU is still lost
        assert reasons(busy) == {"the GPU is lost: it fell off the bus"}
        assert idle.load.busy_pct == 0
        driver.play(TWO_GPUS)
        clock.pass_s(61)
        assert take(probe)[0].load.busy_pct == 87
        assert pynvml._nvmlLib_refcount == 1

    def test_unknown_errors_in_a_row_open_the_library_anew_with_growing_pauses(self, driver, probe, clock):
        broken = TWO_GPUS + "".join(
            f"ret DeviceGet{function} 999 0\n"
            for function in ("Samples", "UtilizationRates", "MemoryInfo_v2", "MemoryInfo")
        )
        driver.play(broken)
        assert reasons(take(probe)[0]) == {"the driver reports an unknown error"}
        clock.pass_s(5)
        reasons(take(probe)[0])  # opened again, and broken again: the next time after 10 s
        driver.play(TWO_GPUS)
        clock.pass_s(6)
        reasons(take(probe)[0])
        clock.pass_s(5)
        assert take(probe)[0].load.busy_pct == 87

    def test_library_shut_down_by_someone_else(self, driver, probe, clock):
        take(probe)
        pynvml.nvmlShutdown()
        assert reasons(take(probe)[0]) == {"the driver's library was shut down"}
        clock.pass_s(6)
        assert take(probe)[0].load.busy_pct == 87


def test_a_hanging_call_blocks_nothing_but_its_own_thread(driver, monkeypatch):
    hang, hangs, real = threading.Event(), threading.Event(), pynvml.nvmlDeviceGetPowerUsage

    def power(handle: object) -> int:
        if hang.is_set():
            driver.play(TWO_GPUS + "hang DeviceGetPowerUsage\n")
            hangs.set()
        return real(handle)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetPowerUsage", power)
    events: list[GpuSample] = []
    session = Session(Machine(), lambda: time.monotonic_ns() + later_ns)
    later_ns = 0
    session.listen(events.append)
    ticker = Ticker(NvidiaProbe([BUSY, IDLE]), session.accept, interval_s=0.02)
    ticker.start()
    wait_for(lambda: len(events) >= 2, what="the first samples")
    hang.set()
    wait_for(hangs.is_set, what="a call that hangs")
    hang.clear()
    known = len(events)
    later_ns = 30 * SECOND
    snapshot = session.snapshot()
    assert snapshot.stale_s(snapshot.gpus[0]) > 29, "the last readings say how old they are"
    assert ticker.close(timeout_s=0.05) is False
    assert len(events) == known, "nothing new while the driver hangs"
    driver.play(TWO_GPUS)  # end the thread with the test
    assert ticker.close(PATIENCE_S) is True
    assert pynvml._nvmlLib_refcount == 0


class TestLibrary:
    def test_wrong_package_of_that_name(self, monkeypatch):
        monkeypatch.delattr(pynvml, "_nvmlGetFunctionPointer")
        failure = open_nvml()
        assert failure == NvmlFailure(WRONG_PACKAGE)
        assert "nvidia-ml-py" in failure.hint

    @pytest.mark.parametrize(
        ("error", "reason"),
        [
            (pynvml.NVMLLibraryMismatchError("x"), "not supported by this driver"),
            (AttributeError("x"), "not supported by this driver"),
            (OSError("x"), "the system blocks the NVIDIA driver"),
            (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"), "the driver's answer is not valid text"),
            (pynvml.NVMLError(0), NvmlFailure(NOT_FOUND).reason),
            (pynvml.NVMLError(15), "the GPU is lost: it fell off the bus"),
        ],
    )
    def test_every_error_of_pynvml_is_a_failure(self, monkeypatch, error, reason):
        def fail():
            raise error

        monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", fail)
        assert Nvml(pynvml).call("nvmlDeviceGetCount").reason == reason
        assert Nvml(pynvml).call("nvmlNoSuchFunction").reason == "not supported by this driver"
