"""The NVIDIA probe against a scripted driver, through the real pynvml."""

import threading
import time
from unittest.mock import Mock

import psutil
import pynvml
import pytest
from support.events import SECOND
from support.nvml import BUSY, IDLE, TWO_GPUS, take
from support.waiting import PATIENCE_S, wait_for

from tfmon.model.gpu_samples import ClockReason, GpuSample
from tfmon.model.race import Machine
from tfmon.model.readings import Missing
from tfmon.model.session import Session
from tfmon.probes.base import Gpu, Ticker
from tfmon.probes.nvidia.explain import explain_xid
from tfmon.probes.nvidia.nvml import WRONG_PACKAGE, CallFailedError, Nvml, NvmlFailure, open_nvml
from tfmon.probes.nvidia.probe import NvidiaProbe

pytestmark = pytest.mark.process

GB = 1_000_000_000
UNSUPPORTED = Missing("not supported by this GPU")
FIRST = Missing("first sample")


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
    gone = Gpu(index=1, uuid="GPU-gone", name="NVIDIA Gone", physical_gpu=1)
    sample, missing = take(NvidiaProbe([second_as_first, gone], clock_ns=clock))
    assert reasons(missing) == {"the driver no longer lists this GPU"}
    assert (sample.key, sample.index, sample.load.busy_pct) == (IDLE.uuid, 0, 0)


def test_the_load_is_the_mean_of_the_samples_of_this_tick(read, probe):
    first, _ = read("sample 0 100 10\nsample 0 200 20\n")
    assert first.load.source == "driver window", "samples of before the start do not count"
    assert first.load.busy_max_pct == Missing("the driver reports only the mean of its window")
    busy, idle = read("sample 0 200 20\nsample 0 300 50\nsample 0 350 4000000000\nsample 0 400 100\n")
    assert (busy.load.busy_pct, busy.load.busy_max_pct, busy.load.source) == (75, 100, "samples")
    assert (idle.load.busy_pct, idle.load.source) == (0, "driver window")
    busy, _ = take(probe)  # nothing newer than the cursor
    assert (busy.load.busy_pct, busy.load.source) == (87, "driver window")
    busy, _ = read("zero 0\n")
    assert (busy.load.busy_pct, busy.load.source) == (87, "driver window"), "a sizing call promises nothing"
    busy, _ = read("sample 0 500 9\n")
    assert busy.load.source == "samples", "a tick without samples must not switch them off"


def test_a_total_of_zero_is_the_memory_of_the_machine_and_used_memory_may_contain_the_reserve(read):
    script = TWO_GPUS.replace("mem 0 80000000000 500000000 40500000000 39000000000", "mem 0 0 0 0 0")
    busy, idle = read(script.replace("79500000000 0\n", "40500000000 39500000000\n"))
    assert (busy.memory.total_bytes, busy.memory.unified) == (psutil.virtual_memory().total, True)
    assert 0 < busy.memory.used_bytes < busy.memory.total_bytes
    assert busy.memory.reserved_bytes == Missing("the GPU uses the machine's own memory")
    assert (idle.memory.total_bytes, idle.memory.unified) == (80 * GB, False)
    assert (idle.memory.used_bytes, idle.memory.reserved_bytes) == (39 * GB, 0.5 * GB)


class TestPower:
    def test_the_mean_of_the_driver_and_the_energy_every_5_s(self, read, clock):
        for energy, told in ((5_000, 5), (9_000, 5), (12_000, 12)):
            power = read(f"energy 0 {energy}\nfield 0 185 1 {energy * 50}\n")[0].power
            assert (power.power_w, power.energy_j, power.source) == (energy / 20, told, "driver, 1 s")
            clock.ahead(3)
        assert read("energy 0 5900500\n")[1].power.source == "driver"

    def test_the_mean_of_the_energy_counter_spans_a_second_also_after_quick_ticks(self, read, clock):
        powers = []
        for tick in range(9):  # 100 W for the first second, then 300 W
            joules = tick * 25 if tick <= 4 else 100 + (tick - 4) * 75
            busy, idle = read(f"energy 0 {joules * 1000}\n")
            powers.append(busy.power.power_w)
            clock.ahead(0.25)
        assert powers[:4] == [FIRST] * 4
        assert powers[4:] == pytest.approx([100, 150, 200, 250, 300])
        assert (busy.power.energy_j, busy.power.source) == (400, "energy counter")
        assert (idle.power.energy_j, idle.power.power_w, idle.power.source) == (UNSUPPORTED, 61, "driver")
        assert read("energy 0 10\n", 1)[0].power.power_w == FIRST, "a counter that goes back"
        assert read("energy 0 70010\n", 1)[0].power.power_w == pytest.approx(70)


@pytest.mark.parametrize(
    ("version", "listed"), [("535.54.03", {}), ("535.104.05", {4242: 38 * GB, 777: None, 778: 0})]
)
def test_processes_whose_memory_is_unknown_and_drivers_with_a_broken_list(read, version, listed):
    many = {pid: pid * 1000 for pid in range(1, 41)}
    script = "".join(f"proc 1 {pid} {used}\n" for pid, used in many.items())
    busy, idle = read(f"driver {version}\nproc 0 777 na\nproc 0 778 0\n" + script)
    assert (busy.processes.used_by_pid, busy.load.busy_pct) == (listed, 87)
    assert idle.processes.used_by_pid == (many if listed else {})


class TestFailures:
    def test_an_unsupported_reading_is_not_tried_again_and_one_that_fails_now_and_then_is(self, read):
        for code, reason in (
            (4, "no permission to use the NVIDIA driver"),
            (777, "the driver fails with code 777"),
            (999, "the driver reports an unknown error"),
        ):
            temperature = "ret DeviceGetTemperatureV 3 0\nret DeviceGetTemperature 3 0\n"
            busy, idle = read(f"{temperature}ret DeviceGetPowerUsage {code} 0\n")
            assert (busy.power.power_w, busy.temperature_c) == (Missing(reason), UNSUPPORTED)
            assert (busy.load.busy_pct, idle.temperature_c) == (87, 34), "one error costs one reading"
        busy, _ = read("")
        assert (busy.power.power_w, busy.temperature_c) == (412.345, UNSUPPORTED)

    @pytest.mark.parametrize(
        ("code", "words", "back"),
        [
            (9, "the NVIDIA driver is not loaded", True),
            (12, "no NVIDIA driver", False),
            (18, "the NVIDIA driver was upd", False),
        ],
    )
    def test_library_that_cannot_be_opened(self, read, probe, code, words, back):
        busy, idle = read(f"ret InitWithFlags {code}\n")
        (reason,) = reasons(busy)
        assert reason.startswith(words)
        assert reasons(idle) == {reason}
        assert probe.failure is not None
        assert probe.failure.hint
        reasons(read("", 20)[0])
        assert (read(after_s=11)[0].load.busy_pct == 87) is back, "what lasts is not tried again"
        assert (probe.failure is None) is back


class TestLostDevices:
    def test_lost_in_mid_run_and_back(self, read, probe):
        take(probe)
        lost = TWO_GPUS + "".join(
            f"ret Device{function} 15 0\n"
            for function in ("GetSamples", "GetUtilizationRates", "GetMemoryInfo_v2", "GetHandleByIndex")
        )
        busy, idle = read(lost + "xid 0 79\n", 1)
        assert reasons(busy) == {"the GPU is lost: it fell off the bus"}
        assert [fault.code for fault in busy.faults] == [79], "it keeps its faults"
        assert idle.load.busy_pct == 0
        assert reasons(read("", 29)[0]) == {"the GPU is lost: it fell off the bus"}  # its calls have stopped
        busy, idle = read(lost, 31)  # the library is opened again, and the GPU is still lost
        assert reasons(busy) == {"the GPU is lost: it fell off the bus"}
        assert idle.load.busy_pct == 0
        assert read("", 61)[0].load.busy_pct == 87
        assert pynvml._nvmlLib_refcount == 1

    def test_unknown_errors_in_a_row_open_the_library_anew(self, read):
        broken = TWO_GPUS + "".join(
            f"ret DeviceGet{function} 999 0\n" for function in ("Samples", "UtilizationRates", "MemoryInfo_v2")
        )
        assert reasons(read(broken)[0]) == {"the driver reports an unknown error"}
        reasons(read(after_s=31)[0])  # opened again, and broken again
        reasons(read("", 29)[0])
        assert read(after_s=2)[0].load.busy_pct == 87


class TestClocks:
    def test_a_power_cap_is_a_warning_only_far_below_the_highest_clock(self, read):
        for clock, level in ((1600, "info"), (1500, "warning")):
            busy, idle = read(f"reasons 0 4\nclock 0 {clock} 1593 1980 2619\n")
            assert busy.clocks.reasons == (ClockReason("at its power limit", level),)
            assert (busy.clocks.sm_clock_mhz, busy.clocks.sm_clock_max_mhz) == (clock, 1980)
            assert idle.clocks.sm_clock_mhz == idle.clocks.sm_clock_max_mhz == idle.clocks.reasons == UNSUPPORTED

    def test_hardware_slowdown_counts_when_it_lasts(self, read, probe):
        (first,) = read("reasons 0 48\n")[0].clocks.reasons
        assert first.text.startswith("overheating")
        slowdown, heat = take(probe)[0].clocks.reasons
        assert (slowdown.level, heat) == ("alarm", first)
        assert slowdown.text.startswith("hardware slowdown")
        assert read("reasons 0 0\n")[0].clocks.reasons == ()
        assert read("reasons 0 8\n")[0].clocks.reasons == ()
        (unknown,) = read("reasons 0 800\n")[0].clocks.reasons
        assert unknown.text == "for a reason this tfmon does not know (0x800)"

    def test_older_driver(self, load_driver, clock, driver):
        driver = load_driver("-DWITHOUT_EVENT_REASONS")
        driver.play(TWO_GPUS + "reasons 0 20\n")
        (busy,) = take(NvidiaProbe([BUSY], clock_ns=clock))
        (reason,) = busy.clocks.reasons
        assert reason.level == "warning"
        assert reason.text.startswith("hot")


class TestLink:
    def test_bytes_a_second_from_the_counters(self, read):
        assert read("field 0 197 3 1000000\nfield 0 198 3 5000000\n")[0].traffic.pcie_sent_bytes_per_s == FIRST
        busy, idle = read("field 0 197 3 3000000\nfield 0 198 3 25000000\n", 2)
        assert (busy.traffic.pcie_sent_bytes_per_s, busy.traffic.pcie_received_bytes_per_s) == (1e6, 1e7)
        assert busy.traffic.source == "counter"
        assert (idle.traffic.pcie_sent_bytes_per_s, idle.traffic.source) == (UNSUPPORTED, "")

    def test_without_counters_a_peek_every_5_s(self, read):
        busy, _ = read("pcie 0 200 3000\n")
        assert (busy.traffic.pcie_sent_bytes_per_s, busy.traffic.pcie_received_bytes_per_s) == (2e5, 3e6)
        assert busy.traffic.source == "20 ms peek"
        assert read("pcie 0 700 3000\n", 4)[0].traffic.pcie_sent_bytes_per_s == 2e5
        assert read(after_s=1)[0].traffic.pcie_sent_bytes_per_s == 7e5

    def test_a_low_generation_is_a_warning_under_lasting_load_and_too_few_lanes_always(self, read):
        warnings = [
            [sample.link.warning for sample in read("link 0 1 4 16 16\nlink 1 1 4 16 16\n")] for _ in range(4)
        ]
        assert warnings[:2] == [["", ""], ["", ""]]
        assert warnings[2:] == [["the PCIe link runs at generation 1 of 4 under load", ""]] * 2
        _, idle = read("link 1 4 5 4 16\n", 10)
        assert (idle.link.pcie_generation, idle.link.pcie_generation_max) == (4, 5)
        assert (idle.link.pcie_width, idle.link.pcie_width_max) == (4, 16)
        assert idle.link.warning == "the PCIe link has 4 of 16 lanes"


class TestShares:
    def test_mean_of_each_process_and_zero_for_one_that_rested(self, read, driver, probe, clock):
        script = TWO_GPUS + "proc 0 777 1000\nshare 0 4242 100 90\n"
        assert read(script)[0].processes.busy_by_pid == FIRST  # samples of before the start do not count
        clock.ahead(2)
        driver.play(
            script + "share 0 4242 200 40\nshare 0 4242 300 60\nshare 0 9 300 5\nshare 0 0 300 7\n"
            "share 0 4242 310 4000000\n"
        )
        assert take(probe)[0].processes.busy_by_pid == {4242: 50, 777: 0, 9: 5}
        assert read(script + "share 0 4242 500 80\n", 1)[0].processes.busy_by_pid == {4242: 50, 777: 0, 9: 5}, (
            "read every other tick"
        )
        assert read(after_s=1)[0].processes.busy_by_pid == {4242: 80, 777: 0}

    def test_a_driver_that_fails_is_not_zero(self, read):
        busy, idle = read("share 0 4242 100 5\nret DeviceGetProcessUtilization 4 0\n")
        assert idle.processes.busy_by_pid == UNSUPPORTED
        assert busy.processes.busy_by_pid == Missing("no permission to use the NVIDIA driver")
        assert read("share 0 4242 100 5\n", 2)[0].processes.busy_by_pid == FIRST


class TestFaults:
    def test_memory_errors_every_minute(self, read):
        busy, idle = read("ecc 0 3\nrows 0 1 2\n")
        assert (busy.ecc_errors, idle.ecc_errors) == (3, UNSUPPORTED)
        assert read("ecc 0 4\nrows 0 1 2\n", 59)[0].ecc_errors == 3
        assert read(after_s=1)[0].ecc_errors == 4

    def test_messages_after_the_first_sample_only_each_once(self, read, clock):
        old = TWO_GPUS + "xid 0 79\n"
        assert read(old)[0].faults == ()
        busy, idle = read(old + "xid 0 31\nxid 1 48\n", 1)
        assert busy.faults == (explain_xid(31, clock()),)
        assert (idle.faults[0].code, idle.faults[0].by_program) == (48, False)
        assert busy.faults[0].by_program
        assert busy.faults[0].text == "a kernel accessed memory that it does not own (XID 31)"
        assert read(after_s=1)[0].faults == busy.faults
        faults = read("".join(f"xid 0 {number}\n" for number in range(100, 120)))[0].faults
        assert [fault.code for fault in faults] == list(range(112, 120)), "the latest are kept"
        assert (faults[0].text, faults[0].by_program) == ("the driver reported an error (XID 112)", False)

    @pytest.mark.parametrize("function", ["EventSetCreate", "DeviceRegisterEvents", "EventSetWait"])
    def test_a_driver_without_messages_is_read_all_the_same(self, read, probe, function):
        read(f"ret {function} 3\n")
        busy, _ = take(probe)
        assert (busy.load.busy_pct, busy.faults) == (87, ())


def test_a_hanging_call_blocks_nothing_but_its_own_thread(read, monkeypatch, driver):
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
        with pytest.raises(CallFailedError) as caught:
            open_nvml()
        assert caught.value.failure == NvmlFailure(WRONG_PACKAGE)
        assert "nvidia-ml-py" in caught.value.failure.hint

    @pytest.mark.parametrize(
        "error",
        [
            pynvml.NVMLLibraryMismatchError("x"), AttributeError("x"), OSError("x"), pynvml.NVMLError(0),
            UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"),
        ],
    )  # fmt: skip
    def test_every_error_of_pynvml_is_a_failure(self, monkeypatch, error):
        monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", Mock(side_effect=error))
        with pytest.raises(CallFailedError) as caught:
            Nvml(pynvml).call("nvmlDeviceGetCount")
        assert caught.value.failure.code
