"""The NVIDIA probe beside load, memory and power: clocks, link, shares of processes, faults."""

import pynvml
import pytest
from support.nvml import BUSY, TWO_GPUS, take

from tfmon.model.gpu_samples import ClockReason
from tfmon.model.readings import Missing
from tfmon.probes.nvidia.power import explain, explain_xid
from tfmon.probes.nvidia.probe import NvidiaProbe

pytestmark = pytest.mark.process

UNSUPPORTED = Missing("not supported by this GPU")
FIRST = Missing("first sample")


class TestClocks:
    def test_a_power_cap_is_a_warning_only_far_below_the_highest_clock(self, driver, probe):
        for clock, level in ((1600, "info"), (1500, "warning")):
            driver.play(TWO_GPUS + f"reasons 0 4\nclock 0 {clock} 1593 1980 2619\n")
            busy, idle = take(probe)
            assert busy.clocks.reasons == (ClockReason("at its power limit", level),)
            assert (busy.clocks.sm_clock_mhz, busy.clocks.sm_clock_max_mhz) == (clock, 1980)
            assert idle.clocks.sm_clock_mhz == idle.clocks.sm_clock_max_mhz == idle.clocks.reasons == UNSUPPORTED

    def test_hardware_slowdown_counts_when_it_lasts(self, driver, probe):
        driver.play(TWO_GPUS + "reasons 0 48\n")
        (first,) = take(probe)[0].clocks.reasons
        assert first.text.startswith("overheating")
        slowdown, heat = take(probe)[0].clocks.reasons
        assert (slowdown.level, heat) == ("alarm", first)
        assert slowdown.text.startswith("hardware slowdown")
        driver.play(TWO_GPUS + "reasons 0 0\n")
        assert take(probe)[0].clocks.reasons == ()
        driver.play(TWO_GPUS + "reasons 0 8\n")
        assert take(probe)[0].clocks.reasons == ()

    def test_older_driver(self, load_driver, clock):
        driver = load_driver("-DWITHOUT_EVENT_REASONS", "-DWITHOUT_V3")
        driver.play(TWO_GPUS + "reasons 0 20\n")
        with pytest.raises(pynvml.NVMLError):
            pynvml._nvmlGetFunctionPointer("nvmlDeviceGetComputeRunningProcesses_v3")
        (busy,) = take(NvidiaProbe([BUSY], clock_ns=clock))
        assert busy.processes.used_by_pid == {4242: 38_000_000_000}
        (reason,) = busy.clocks.reasons
        assert reason.level == "warning"
        assert reason.text.startswith("hot")

    def test_every_bit_has_words(self):
        texts = [explain(1 << bit, below=False)[0].text for bit in range(12)]
        assert len(set(texts)) == 12
        assert texts[-1] == "for a reason this tfmon does not know (0x800)"
        assert explain(0, below=True) == ()


class TestLink:
    def test_bytes_a_second_from_the_counters(self, driver, probe, clock):
        driver.play(TWO_GPUS + "field 0 197 3 1000000\nfield 0 198 3 5000000\n")
        assert take(probe)[0].traffic.pcie_sent_bytes_per_s == FIRST
        clock.pass_s(2)
        driver.play(TWO_GPUS + "field 0 197 3 3000000\nfield 0 198 3 25000000\n")
        busy, idle = take(probe)
        assert (busy.traffic.pcie_sent_bytes_per_s, busy.traffic.pcie_received_bytes_per_s) == (1e6, 1e7)
        assert busy.traffic.source == "counter"
        assert (idle.traffic.pcie_sent_bytes_per_s, idle.traffic.source) == (UNSUPPORTED, "")

    def test_without_counters_a_peek_every_5_s(self, driver, probe, clock):
        driver.play(TWO_GPUS + "pcie 0 200 3000\n")
        busy, _ = take(probe)
        assert (busy.traffic.pcie_sent_bytes_per_s, busy.traffic.pcie_received_bytes_per_s) == (2e5, 3e6)
        assert busy.traffic.source == "20 ms peek"
        driver.play(TWO_GPUS + "pcie 0 700 3000\n")
        clock.pass_s(4)
        assert take(probe)[0].traffic.pcie_sent_bytes_per_s == 2e5
        clock.pass_s(1)
        assert take(probe)[0].traffic.pcie_sent_bytes_per_s == 7e5

    def test_a_low_generation_is_a_warning_under_lasting_load_and_too_few_lanes_always(self, driver, probe, clock):
        driver.play(TWO_GPUS + "link 0 1 4 16 16\nlink 1 1 4 16 16\n")
        warnings = [[sample.link.warning for sample in take(probe)] for _ in range(4)]
        assert warnings[:2] == [["", ""], ["", ""]]
        assert warnings[2:] == [["the PCIe link runs at generation 1 of 4 under load", ""]] * 2
        driver.play(TWO_GPUS + "link 1 4 5 4 16\n")
        clock.pass_s(10)
        _, idle = take(probe)
        assert (idle.link.pcie_generation, idle.link.pcie_generation_max) == (4, 5)
        assert (idle.link.pcie_width, idle.link.pcie_width_max) == (4, 16)
        assert idle.link.warning == "the PCIe link has 4 of 16 lanes"


class TestShares:
    def test_mean_of_each_process_and_zero_for_one_that_rested(self, driver, probe, clock):
        script = TWO_GPUS + "proc 0 777 1000\nshare 0 4242 100 90\n"
        driver.play(script)
        assert take(probe)[0].processes.busy_by_pid == FIRST  # samples of before the start do not count
        clock.pass_s(2)
        driver.play(
            script + "share 0 4242 200 40\nshare 0 4242 300 60\nshare 0 9 300 5\nshare 0 0 300 7\n"
            "share 0 4242 310 4000000\n"
        )
        assert take(probe)[0].processes.busy_by_pid == {4242: 50, 777: 0, 9: 5}
        driver.play(script + "share 0 4242 500 80\n")
        clock.pass_s(1)
        assert take(probe)[0].processes.busy_by_pid == {4242: 50, 777: 0, 9: 5}, "read every other tick"
        clock.pass_s(1)
        assert take(probe)[0].processes.busy_by_pid == {4242: 80, 777: 0}

    def test_a_driver_that_fails_is_not_zero(self, driver, probe, clock):
        driver.play(TWO_GPUS + "share 0 4242 100 5\nret DeviceGetProcessUtilization 4 0\n")
        busy, idle = take(probe)
        assert idle.processes.busy_by_pid == UNSUPPORTED
        assert busy.processes.busy_by_pid == Missing("no permission to use the NVIDIA driver")
        clock.pass_s(2)
        driver.play(TWO_GPUS + "share 0 4242 100 5\n")
        assert take(probe)[0].processes.busy_by_pid == FIRST


class TestFaults:
    def test_memory_errors_every_minute(self, driver, probe, clock):
        driver.play(TWO_GPUS + "ecc 0 3\nrows 0 1 2\n")
        busy, idle = take(probe)
        assert (busy.ecc_errors, idle.ecc_errors) == (3, UNSUPPORTED)
        driver.play(TWO_GPUS + "ecc 0 4\nrows 0 1 2\n")
        clock.pass_s(59)
        assert take(probe)[0].ecc_errors == 3
        clock.pass_s(1)
        assert take(probe)[0].ecc_errors == 4

    def test_messages_after_the_first_sample_only_each_once(self, driver, probe, clock):
        old = TWO_GPUS + "xid 0 79\n"
        driver.play(old)
        assert take(probe)[0].faults == ()
        driver.play(old + "xid 0 31\nxid 1 48\n")
        clock.pass_s(1)
        busy, idle = take(probe)
        assert busy.faults == (explain_xid(31, clock()),)
        assert (idle.faults[0].code, idle.faults[0].by_program) == (48, False)
        assert busy.faults[0].by_program
        assert busy.faults[0].text == "a kernel accessed memory that it does not own (XID 31)"
        clock.pass_s(1)
        assert take(probe)[0].faults == busy.faults
        driver.play(TWO_GPUS + "".join(f"xid 0 {number}\n" for number in range(100, 120)))
        faults = take(probe)[0].faults
        assert [fault.code for fault in faults] == list(range(112, 120)), "the latest are kept"
        assert (faults[0].text, faults[0].by_program) == ("the driver reported an error (XID 112)", False)

    def test_a_lost_gpu_keeps_its_faults(self, driver, probe):
        take(probe)
        lost = "".join(f"ret DeviceGet{name} 15 0\n" for name in ("TotalEnergyConsumption", "PowerUsage"))
        driver.play(TWO_GPUS + "xid 0 79\n" + lost)
        busy, _ = take(probe)
        assert busy.power.power_w == Missing("the GPU is lost: it fell off the bus")
        assert [fault.code for fault in busy.faults] == [79]

    @pytest.mark.parametrize("function", ["EventSetCreate", "DeviceRegisterEvents", "EventSetWait"])
    def test_a_driver_without_messages_is_read_all_the_same(self, driver, probe, function):
        driver.play(TWO_GPUS + f"ret {function} 3\n")
        take(probe)
        busy, _ = take(probe)
        assert (busy.load.busy_pct, busy.faults) == (87, ())
