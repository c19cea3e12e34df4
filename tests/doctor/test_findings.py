"""Each check with its fault: one change of a machine on which nothing is wrong, and what is found then."""

from dataclasses import replace
from pathlib import Path

import pytest

from tfmon.doctor.checks import BROKEN, NOT_APPLICABLE, OK, WARNING
from tfmon.doctor.diagnosis import Diagnosis
from tfmon.doctor.facts import Facts, HostFacts, Platform
from tfmon.model.folder_views import COPY, IN_PLACE, OVERLAY, View
from tfmon.probes.base import absent_gpu
from tfmon.probes.interpreter import Import
from tfmon.probes.nvidia.explain import explain

from .bench import H200, QUIET, Bench, find, load, sample_of, with_gpu

OTHER = replace(H200, index=1, uuid="GPU-bb")
UNKNOWN = absent_gpu(H200, 1, "not supported by this driver")
_SECTIONS = (Path(__file__).parent / "captured.txt").read_text("utf-8").split("== ")[1:]
TEXTS = {name: text for name, _, text in (section.partition("\n") for section in _SECTIONS)}
"""Messages that TensorFlow and its libraries have written to stderr."""
WSL2 = {"proc/version": "Linux version 5.15.90.1-microsoft-standard-WSL2"}


def says(name: str) -> dict[str, dict[str, object]]:
    """An import that works, with these messages."""
    return {"imported": {"version": "2.21.0", "text": TEXTS[name]}}


def dies(name: str, exit_code: int | None = 1) -> dict[str, dict[str, object]]:
    """An import that fails with these messages."""
    text = f"Traceback:\n{TEXTS[name]}" if name else ""
    return {"imported": {"exit_code": exit_code, "text": text, "seconds": 1.0}}


def lists_none(name: str) -> dict[str, dict[str, object]]:
    """An import that works and sees no GPU, for the reason in these messages."""
    return {"gpu": {}, "platform": {}, **says(name)}


def host(**change: object) -> dict[str, dict[str, object]]:
    return {"host": change}


def variables(**environ: str) -> dict[str, dict[str, object]]:
    return {"host": {}, "environ": environ}


def sample(**readings: object) -> dict[str, dict[str, object]]:
    return {"sample": readings}


def changed(bench: Bench, **changes: dict[str, object]) -> Facts:
    """Return facts with changed parts; a change of `gpu`, `sample` or `driver` makes it a machine with a GPU."""
    bench.environ |= changes.pop("environ", {})
    for path, text in changes.pop("files", {}).items():
        bench.write(path, text)
    facts = bench.facts()
    gpu, sample, driver = (changes.pop(name, None) for name in ("gpu", "sample", "driver"))
    if (gpu, sample, driver) != (None, None, None):
        own = replace(H200, **(gpu or {}))
        facts = with_gpu(facts, own, samples=(sample_of(own, **(sample or {})),), **(driver or {}))
    parts = {"host": QUIET, "platform": Platform(), "imported": Import(), "python": facts.python}
    return replace(facts, **{name: replace(parts[name], **change) for name, change in changes.items()})


@pytest.mark.parametrize(
    ("id", "changes", "status", "found", "fix"),
    [
        ("gpu-power", {"gpu": {"power_limit_w": 350.0}}, WARNING, "limited to 350 W", "nvidia-smi -i 0 -pl 700"),
        ("compute-mode", {"gpu": {"exclusive": True}}, WARNING, "", "-c DEFAULT"),
        ("compute-mode", {"gpu": {"instances": ()}}, WARNING, "", "-mig 0"),
        ("gpu-free", sample(busy_pct=87.0, used_by_pid={4242: None}), WARNING, "busy 87 %", "end what runs there"),
        ("gpu-free", sample(used_bytes=9e10), WARNING, "84 GiB of 140 GiB used", "end what runs there"),
        ("gpu-clocks", sample(warning="the PCIe link has 4 of 16 lanes"), WARNING, "4 of 16 lanes", "reseat it"),
        ("gpu-clocks", sample(reasons=explain(0x44, below=False)), WARNING, "overheating", "cool it"),
        ("gpu-clocks", sample(reasons=explain(0x20, below=False)), WARNING, "hot: ", "cool it"),
        ("cores", host(quota_cores=2.5, usable_cores=2.5), WARNING,
            "2.5 cores on a machine of 8", "--set threads=2"),
        ("cores", host(quota_cores=0.5, usable_cores=0.5), WARNING, "a quota of 0.5 cores", "--set threads=1"),
        ("cores", host(usable_cores=4), WARNING, "4 of 8 cores", "taskset"),
        ("governor", host(governors=("powersave",)), WARNING,
            "powersave", "cpupower frequency-set -g performance"),
        ("memory", host(available_bytes=1024**3), WARNING, "1.0 GiB of 32 GiB", "end other programs"),
        ("load", host(samples=load(3.0)), WARNING, "3.0 of 8 cores busy", "top"),
        ("load", host(samples=load(0.0, 0.8)), WARNING, "10 % of the CPU time", "dedicated cores"),
        ("power", host(on_battery=True), WARNING, "on battery", "plug it in"),
        ("environment", variables(CUDA_LAUNCH_BLOCKING="1"), WARNING,
            "every kernel launch waits", "unset CUDA_LAUNCH_BLOCKING"),
        ("environment", variables(TF_ENABLE_ONEDNN_OPTS="0"), WARNING,
            "without oneDNN", "unset TF_ENABLE_ONEDNN_OPTS"),
        ("environment", variables(OMP_NUM_THREADS="1"), WARNING,
            "fewer threads than cores", "unset OMP_NUM_THREADS"),
        ("environment", variables(TF_XLA_FLAGS="--tf_xla_auto_jit=2"), WARNING, "XLA is on", "unset TF_XLA_FLAGS"),
        ("environment", variables(OMP_NUM_THREADS="8", TF_ENABLE_ONEDNN_OPTS="1"), OK, "", ""),
        ("environment", variables(CUDA_LAUNCH_BLOCKING="0", TF_XLA_FLAGS=""), OK, "", ""),
        ("python-build", {"platform": {}, "python": {"bits": 32}}, BROKEN, "32 bits", ""),
        ("python-build", {"platform": {}, "python": {"free_threaded": True}}, BROKEN, "GIL", ""),
        ("python-build", {"platform": {}, "python": {"libc": ""}}, BROKEN, "GNU", ""),
        ("keras-backend", {"environ": {"KERAS_BACKEND": "torch"}}, BROKEN, "", ""),
        ("keras-backend", {"environ": {"KERAS_BACKEND": "tensorflow"}}, OK, "", ""),
        ("wsl", {"files": {"proc/version": "Linux version 4.4.0-19041-Microsoft"}}, BROKEN, "", "--set-version"),
        ("wsl", {"files": WSL2}, BROKEN, "", "wsl --update"),
        ("wsl", {"files": {**WSL2, "dev/dxg": ""}}, OK, "", ""),
        ("wsl", {"files": {"proc/version": "Linux version 6.18.0 (gcc)"}}, NOT_APPLICABLE, "", ""),
        # 550 is older than CUDA 12.5, but of its major version.
        ("driver-version", {"driver": {"version": "550.54.15"}}, OK, "", ""),
        ("driver-version", {"driver": {"version": "525.60.13"}}, OK, "", ""),
        ("driver-version", {"driver": {"version": "520.61.05"}}, BROKEN, "", "update the NVIDIA driver"),
        ("driver-version", {"driver": {"version": "526.98"}, "platform": {"wsl": 2}}, BROKEN,
            "", "update the NVIDIA driver"),
        ("import", dies("glibc"), BROKEN, "C or C++ library is older", "upgrade"),
        ("import", dies("glibcxx"), BROKEN, "C or C++ library is older", "libstdcxx-ng"),
        ("import", dies("protobuf gencode"), BROKEN, "protobuf does not fit", "'protobuf<8.0.0,>=6.31.1'"),
        ("import", dies("protobuf descriptors"), BROKEN, "protobuf does not fit", "protobuf"),
        ("import", dies("numpy"), BROKEN, "NumPy does not fit", "'numpy>=1.26.0'"),
        ("import", dies("metal"), BROKEN, "tensorflow-metal does not fit", "tensorflow-metal==1.2.0"),
        ("import", dies("architecture"), BROKEN, "another processor", "arm64"),
        ("import", dies("library"), BROKEN,
            "the library libhdf5.so.310 is missing", "--force-reinstall 'tensorflow==2.21.0'"),
        ("import", dies("module"), BROKEN,
            "the module absl, which TensorFlow needs, is missing", "pip install 'tensorflow==2.21.0'"),
        ("import", dies("something new"), BROKEN, "fails: ValueError: something new", "--force-reinstall"),
        ("import", dies(""), BROKEN, "exit code 1", "--force-reinstall"),
        ("import", dies("", -4), BROKEN, "SIGILL", "no Rosetta"),
        ("import", dies("avx", -6), BROKEN, "SIGABRT: the processor lacks", "-cpu host"),
        ("import", dies("", -9), BROKEN, "out of memory", "memory limit"),
        ("import", dies("", -11), BROKEN, "SIGSEGV", "--force-reinstall"),
        ("import", dies("", None), BROKEN, "not done after 1 s", "slow file system"),
        ("devices", lists_none("no driver"), BROKEN, "finds no CUDA driver", "install the NVIDIA driver"),
        ("devices", lists_none("no libraries"), BROKEN,
            "a CUDA library that it needs did not load", "'tensorflow[and-cuda]==2.21.0'"),
        ("devices", lists_none("no device"), BROKEN, "sees no device", "--gpus all"),
        ("devices", lists_none("no device by number"), BROKEN, "sees no device", "--gpus all"),
        ("devices", lists_none("driver mismatch"), BROKEN, "different versions", "restart"),
        ("devices", lists_none("dso mismatch"), BROKEN, "different versions", "restart"),
        ("devices", lists_none("old driver"), BROKEN, "too old for its CUDA", "update"),
        ("devices", lists_none("symbol"), BROKEN, "WSL", "Docker Desktop"),
        ("devices", lists_none("unknown"), BROKEN, "could not be initialised", "nvidia_uvm"),
        ("devices", lists_none("old gpu"), BROKEN, "too old for this TensorFlow", "older TensorFlow"),
        ("messages", says("new gpu"), WARNING, "CUDA_ERROR_INVALID_PTX", ""),
        ("messages", says("gpu to compile for"), WARNING, "compiled for this GPU first", ""),
        ("messages", says("old cudnn"), WARNING, "cuDNN is older", ""),
        ("messages", says("new protobuf"), WARNING, "protobuf is newer", ""),
    ],
)  # fmt: skip
def test_a_change_is_found_and_mended(bench, id, changes, status, found, fix):
    finding = find(id, changed(bench, **changes))
    assert (finding.status, found in finding.found, fix in finding.fix) == (status, True, True), finding


def test_lanes_of_the_race_are_no_other_programs(bench):
    busy = sample_of(H200, busy_pct=87.0, used_by_pid={11: 1, 12: 1})
    facts = with_gpu(bench.facts(), samples=(busy,))
    assert find("gpu-free", replace(facts, own_pids=(11, 12, 13))).status == OK
    assert find("gpu-free", replace(facts, own_pids=(11,))).status == WARNING, "12 is another program"


def test_no_fault_and_unknown_and_another_gpu_that_is_free(bench):
    reached = sample_of(H200, reasons=explain(0x4, below=False))
    assert find("gpu-clocks", with_gpu(bench.facts(), samples=(reached,))).status == OK, "a normal power limit"
    assert find("gpu-free", with_gpu(bench.facts(), samples=(UNKNOWN,))).found == "GPU 0 busy n/a"
    samples = (sample_of(H200, busy_pct=95.0), sample_of(OTHER))
    finding = find("gpu-free", with_gpu(bench.facts(), H200, OTHER, samples=samples))
    assert finding.fix == "use another one: export CUDA_VISIBLE_DEVICES=GPU-bb"
    seen = with_gpu(bench.facts(), H200, OTHER, samples=samples, visible="GPU-bb")
    assert find("gpu-free", seen).status == OK
    # Parts of the machine without a fault, and unknown ones.
    fine = replace(QUIET, governors=("performance", "schedutil"), on_battery=False, quota_cores=8.0)
    facts = bench.facts()
    assert {find(id, replace(facts, host=fine)).status for id in ("governor", "power", "cores")} == {OK}
    for id in ("governor", "power", "load", "memory"):
        assert find(id, replace(facts, host=HostFacts())).status == NOT_APPLICABLE


def test_some_gpus_and_none_with_or_without_a_reason(bench):
    facts = changed(bench, gpu={}, platform={}, **says("no driver"))
    assert Diagnosis(facts).no_gpu is not None
    assert find("devices", facts).evidence[0] in TEXTS["no driver"].splitlines()
    imported = Import(version="2.21.0", gpus=("/physical_device:GPU:0",))
    assert bench.find("devices", imported=imported).status == OK
    assert Diagnosis(bench.facts(imported=imported)).no_gpu is None, "what it lists counts most"
    silent = Import(version="2.21.0", text="nothing\n")
    assert "no NVIDIA driver" in bench.find("devices", imported=silent).found, "what the search found"
    facts = with_gpu(bench.facts(imported=silent))
    assert "gives no reason" in find("devices", facts).found
    facts = replace(facts, imported=replace(silent, built_with_cuda=False))
    assert "without CUDA" in find("devices", facts).found


@pytest.mark.parametrize(("kind", "found"), [(COPY, "each lane gets a copy"), (IN_PLACE, "the folder itself")])
def test_lanes_without_views_say_why(bench, kind, found):
    view = View(kind, "/home/u/project", "unshare: Operation not permitted")
    finding = find("views", replace(bench.facts(), view=view))
    assert (finding.status, found in finding.found, finding.evidence) == (WARNING, True, (view.reason,))
    assert find("views", replace(bench.facts(), view=replace(view, kind=OVERLAY))).status == OK
    assert find("views", bench.facts()).status == NOT_APPLICABLE
