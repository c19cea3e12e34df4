"""The import of TensorFlow, its devices, and its messages."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from typing import TypeAlias

from tfmon.doctor import remedies
from tfmon.doctor.checks import GPU, TENSORFLOW, Checks, Finding, broken, not_applicable, ok, warning
from tfmon.doctor.facts import Facts
from tfmon.doctor.remedies import package, requirements
from tfmon.model.lane_texts import signal_name

CHECKS = Checks()

_SKIPPED = "TensorFlow was not imported"
Remedy: TypeAlias = str | Callable[[Facts], str]
Known: TypeAlias = tuple[tuple[str, str, Remedy], ...]


def _upgrade_protobuf(facts: Facts) -> str:
    return remedies.install(facts, "--upgrade", _required(facts, "protobuf"))


def _install_numpy(facts: Facts) -> str:
    return remedies.install(facts, _required(facts, "numpy"))


def _install_packages(facts: Facts) -> str:
    return remedies.install(facts, remedies.same_tensorflow(facts))


def _required(facts: Facts, name: str) -> str:
    return next((package(requirement) for requirement in requirements(facts) if requirement.name == name), name)


_FATAL: Known = (
    (
        r"version [`']?(GLIBC|GLIBCXX|CXXABI)_([\d.]+)'? not found",
        "the system's C or C++ library is older than this TensorFlow wants",
        "upgrade the system, or in conda: conda install -c conda-forge libstdcxx-ng",
    ),
    (
        r"Detected incompatible Protobuf Gencode/Runtime versions|Descriptors cannot be created directly"
        r"|cannot import name '(builder|runtime_version)' from 'google\.protobuf",
        "protobuf does not fit this TensorFlow",
        _upgrade_protobuf,
    ),
    (
        r"_ARRAY_API not found|compiled using NumPy 1\.x|numpy\.core\.(multiarray|umath) failed to import"
        r"|numpy\.dtype size changed",
        "NumPy does not fit this TensorFlow",
        _install_numpy,
    ),
    (
        r"libmetal_plugin\.dylib[\s\S]{0,400}?(Symbol not found|image not found|Library not loaded)"
        r"|Symbol not found[\s\S]{0,400}?libmetal_plugin\.dylib",
        "tensorflow-metal does not fit this TensorFlow",
        remedies.metal,
    ),
    (
        r"incompatible architecture|have 'x86_64', need 'arm64|have 'arm64', need 'x86_64",
        "packages for another processor are installed: Intel's and Apple's are mixed",
        "make a new environment with an arm64 Python",
    ),
    (
        r"compiled to use (AVX|SSE)[\w.]* instructions",
        "the processor lacks instructions that TensorFlow is compiled for",
        "use another machine, or let the virtual machine pass the host's CPU on (QEMU: -cpu host)",
    ),
    (
        r"cannot allocate memory in static TLS block",
        "libraries are loaded in an order that leaves no room for thread-local storage",
        "put the library that it names into LD_PRELOAD",
    ),
    (
        r"([\w.+-]+\.so[\w.]*): cannot open shared object file",
        "the library {0} is missing",
        remedies.reinstall_tensorflow,
    ),
    (r"No module named '([\w.]+)'", "the module {0}, which TensorFlow needs, is missing", _install_packages),
    (r"MemoryError|std::bad_alloc|Cannot allocate memory", "there is not enough memory", "end other programs"),
)
"""Pattern, meaning ({0}: first group) and remedy. The first counts."""

_NO_GPU: Known = (
    (
        r"Cannot dlopen some GPU libraries|Could not load dynamic library '([\w.]+)'",
        "a CUDA library that it needs did not load",
        remedies.cuda_libraries,
    ),
    (
        r"driver version is insufficient for CUDA runtime|CUDA_ERROR_INSUFFICIENT_DRIVER|UNKNOWN ERROR \(35\)",
        "the NVIDIA driver is too old for its CUDA",
        "update the NVIDIA driver, then restart",
    ),
    (
        r"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH|does not match DSO version|UNKNOWN ERROR \(803\)",
        "the NVIDIA driver and its library are of different versions",
        "restart the machine, or the container",
    ),
    (
        r"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE|UNKNOWN ERROR \(804\)",
        "a compatibility package of CUDA is installed that this GPU cannot use",
        "remove cuda-compat, or take it out of LD_LIBRARY_PATH",
    ),
    (
        r"CUDA_ERROR_NO_DEVICE|no CUDA-capable device is detected|UNKNOWN ERROR \(100\)",
        "CUDA sees no device: hidden by CUDA_VISIBLE_DEVICES, or not given to this container",
        "unset CUDA_VISIBLE_DEVICES; in a container, start it with --gpus all",
    ),
    (
        r"CUDA_ERROR_NOT_FOUND|named symbol not found|UNKNOWN ERROR \(500\)",
        "libcuda does not fit the driver, as happens in WSL with Docker Desktop",
        "update Docker Desktop and the driver of Windows, then `wsl --shutdown`",
    ),
    (
        r"CUDA_ERROR_UNKNOWN|CUDA_ERROR_NOT_INITIALIZED|CUDA_ERROR_OPERATING_SYSTEM|UNKNOWN ERROR \((999|304|3)\)",
        "the driver could not be initialised",
        "sudo modprobe nvidia_uvm; after a suspend or an update, restart the machine",
    ),
    (
        r"UNKNOWN ERROR \(303\)|Could not find cuda drivers|CUDA_ERROR_SHARED_OBJECT_INIT_FAILED",
        "TensorFlow finds no CUDA driver (libcuda.so.1)",
        remedies.install_driver,
    ),
    (
        r"Ignoring visible gpu device[\s\S]{0,300}?(minimum required Cuda capability|compute capability)",
        "the GPU is too old for this TensorFlow",
        "use an older TensorFlow whose wheel has its compute capability",
    ),
)

_DOUBTS: Known = (
    (
        r"not built with CUDA kernel binaries compatible with compute capability 1\d\.|CUDA_ERROR_INVALID_PTX"
        r"|PTX version [\d.]+ does not support target",
        "it has no kernels for this GPU, and its operations fail: CUDA_ERROR_INVALID_PTX",
        remedies.NEW_GPU,
    ),
    (
        r"not built with CUDA kernel binaries compatible with compute capability ([\d.]+)",
        "its kernels must be compiled for this GPU first, which can take 30 minutes",
        "wait once and keep the result: export CUDA_CACHE_MAXSIZE=4294967296; or use a newer TensorFlow",
    ),
    (
        r"Loaded runtime CuDNN library: ([\d.]+) but source was compiled with: ([\d.]+)",
        "cuDNN is older than the one TensorFlow was built with",
        remedies.cuda_libraries,
    ),
    (
        r"Protobuf gencode version .* is .*older than the runtime version",
        "protobuf is newer than what TensorFlow was generated with; it still works",
        _upgrade_protobuf,
    ),
    (
        r"Could not load UFF|libdevice not found|Couldn't get ptxas version|ptxas.*not found|Can't find libdevice",
        "XLA finds no ptxas or libdevice, so that jit_compile fails on the GPU",
        remedies.cuda_libraries,
    ),
)

_HARMLESS = (
    (r"NUMA node.*negative value \(-1\)|could not open file to read NUMA node", "no NUMA node reported"),
    (r"Unable to register cu\w+ factory", "a factory registered twice, before TensorFlow 2.19"),
    (r"oneDNN custom operations are on", "oneDNN is on"),
    (r"rebuild TensorFlow with the appropriate compiler flags", "instructions found at run time"),
    (r"TF-TRT Warning: Could not find TensorRT", "no TensorRT, which training does not need"),
)


@CHECKS.add("Import", TENSORFLOW, "import tensorflow, in a child")
def _import(facts: Facts) -> Finding:
    imported = facts.imported
    if imported is None:
        return not_applicable(_SKIPPED)
    if imported.works:
        return ok(f"TensorFlow {imported.version} in {imported.seconds:.1f} s", imported.path)
    evidence = tuple(imported.text.strip().splitlines()[-8:])
    expected, number = "import tensorflow", -(imported.exit_code or 0)
    if imported.exit_code is None:
        result = f"not done after {imported.seconds:.0f} s"
        fix = "look for a slow file system or a driver that hangs (`nvidia-smi`), then run it again"
        return broken(result, expected, fix, *evidence)
    result = f"ends with {signal_name(number)}" if number > 0 else "fails"
    if known := _first_known(facts, imported.text, _FATAL):
        meaning, fix, line = known
        return broken(f"{result}: {meaning}", expected, fix, line, *evidence)
    if number == signal.SIGILL:
        result = "ends with SIGILL: an instruction that this processor does not have"
        fix = "use a Python built for this processor (no Rosetta, no emulation), or a machine with AVX"
        return broken(result, expected, fix, *evidence)
    if number == signal.SIGKILL:
        result = "was killed (SIGKILL): most likely out of memory"
        fix = "end other programs, or raise the memory limit of the container"
        return broken(result, expected, fix, *evidence)
    if number <= 0:
        result = f"fails: {evidence[-1] if evidence else f'exit code {imported.exit_code}'}"
    return broken(result, expected, remedies.reinstall_tensorflow(facts), *evidence)


@CHECKS.add("TensorFlow's GPUs", GPU, "tf.config.list_physical_devices")
def _devices(facts: Facts) -> Finding:
    imported = facts.imported
    if imported is None or not imported.works:
        return not_applicable(_SKIPPED if imported is None else "TensorFlow cannot be imported")
    if imported.gpus:
        return ok(f"{len(imported.gpus)}: {', '.join(imported.gpus)}")
    expected = "at least one GPU"
    if known := _first_known(facts, imported.text, _NO_GPU):
        meaning, fix, line = known
        return broken(f"none: {meaning}", expected, fix, line)
    obstacle = facts.obstacle
    if obstacle is not None:
        return broken(f"none: {obstacle.reason}", expected, obstacle.hint, *imported.text.splitlines()[-3:])
    if imported.built_with_cuda is False:
        return broken("none: it was built without CUDA", expected, remedies.gpu_build(facts))
    fix = "run it with TF_CPP_MAX_VLOG_LEVEL=3 and see which library or device it rejects"
    return broken("none, and TensorFlow gives no reason", expected, fix, *imported.text.splitlines()[-8:])


@CHECKS.add("TensorFlow's messages", GPU, "its stderr")
def _messages(facts: Facts) -> Finding:
    imported = facts.imported
    if imported is None or not imported.works:
        return not_applicable(_SKIPPED if imported is None else "TensorFlow cannot be imported")
    harmless = [meaning for pattern, meaning in _HARMLESS if re.search(pattern, imported.text)]
    if known := _first_known(facts, imported.text, _DOUBTS):
        meaning, fix, line = known
        return warning(meaning, "no such message", fix, line)
    result = f"harmless: {'; '.join(harmless)}" if harmless else "none that matters"
    return ok(result, *imported.text.strip().splitlines())


def _first_known(facts: Facts, text: str, table: Known) -> tuple[str, str, str] | None:
    """Return the meaning, the remedy and the line of the first known message."""
    for pattern, meaning, remedy in table:
        match = re.search(pattern, text, re.MULTILINE)
        if match is not None:
            begin, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.start())
            line = text[begin : end if end >= 0 else len(text)].strip()[:300]
            fix = remedy if isinstance(remedy, str) else remedy(facts)
            return meaning.format(*(group or "" for group in match.groups())), fix, line
    return None
