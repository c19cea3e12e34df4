"""What TensorFlow writes to stderr when something is wrong, and what it means.

The texts are TensorFlow's, XLA's, NumPy's, protobuf's and the dynamic linker's own, matched where they are stable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """A known text."""

    pattern: re.Pattern[str]
    meaning: str
    """{0} stands for what the first group of the pattern matched."""
    remedy: str
    """What to do; or the name of one of the functions in `remedies`, after a colon."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A known text in what was written."""

    meaning: str
    remedy: str
    line: str
    """The line it stands in."""


def _known(pattern: str, meaning: str, remedy: str) -> Message:
    return Message(re.compile(pattern, re.MULTILINE), meaning, remedy)


FATAL = (
    _known(
        r"version [`']?(GLIBC|GLIBCXX|CXXABI)_([\d.]+)'? not found",
        "the system's C or C++ library is older than this TensorFlow wants",
        "upgrade the system, or in conda: conda install -c conda-forge libstdcxx-ng",
    ),
    _known(
        r"Detected incompatible Protobuf Gencode/Runtime versions|Descriptors cannot be created directly"
        r"|cannot import name '(builder|runtime_version)' from 'google\.protobuf",
        "protobuf does not fit this TensorFlow",
        ":protobuf",
    ),
    _known(
        r"_ARRAY_API not found|compiled using NumPy 1\.x|numpy\.core\.(multiarray|umath) failed to import"
        r"|numpy\.dtype size changed",
        "NumPy does not fit this TensorFlow",
        ":numpy",
    ),
    _known(
        r"libmetal_plugin\.dylib[\s\S]{0,400}?(Symbol not found|image not found|Library not loaded)"
        r"|Symbol not found[\s\S]{0,400}?libmetal_plugin\.dylib",
        "tensorflow-metal does not fit this TensorFlow",
        ":metal",
    ),
    _known(
        r"incompatible architecture|have 'x86_64', need 'arm64|have 'arm64', need 'x86_64",
        "packages for another processor are installed: Intel's and Apple's are mixed",
        "make a new environment with an arm64 Python",
    ),
    _known(
        r"compiled to use (AVX|SSE)[\w.]* instructions",
        "the processor lacks instructions that TensorFlow is compiled for",
        "use another machine, or let the virtual machine pass the host's CPU on (QEMU: -cpu host)",
    ),
    _known(
        r"cannot allocate memory in static TLS block",
        "libraries are loaded in an order that leaves no room for thread-local storage",
        "put the library that it names into LD_PRELOAD",
    ),
    _known(
        r"([\w.+-]+\.so[\w.]*): cannot open shared object file",
        "the library {0} is missing",
        ":tensorflow",
    ),
    _known(r"DLL load failed", "a DLL is missing", "install Microsoft's Visual C++ redistributable"),
    _known(r"No module named '([\w.]+)'", "the module {0}, which TensorFlow needs, is missing", ":packages"),
    _known(
        r"MemoryError|std::bad_alloc|Cannot allocate memory", "there is too little memory", "end other programs"
    ),
)
"""Why an import failed; the first that fits counts."""

NO_GPU = (
    _known(
        r"Cannot dlopen some GPU libraries|Could not load dynamic library '([\w.]+)'",
        "a CUDA library that it needs did not load",
        ":cuda",
    ),
    _known(
        r"driver version is insufficient for CUDA runtime|CUDA_ERROR_INSUFFICIENT_DRIVER|UNKNOWN ERROR \(35\)",
        "the NVIDIA driver is too old for its CUDA",
        "update the NVIDIA driver, then restart",
    ),
    _known(
        r"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH|does not match DSO version|UNKNOWN ERROR \(803\)",
        "the NVIDIA driver and its library are of different versions",
        "restart the machine, or the container",
    ),
    _known(
        r"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE|UNKNOWN ERROR \(804\)",
        "a compatibility package of CUDA is installed that this GPU cannot use",
        "remove cuda-compat, or take it out of LD_LIBRARY_PATH",
    ),
    _known(
        r"CUDA_ERROR_NO_DEVICE|no CUDA-capable device is detected|UNKNOWN ERROR \(100\)",
        "CUDA sees no device: hidden by CUDA_VISIBLE_DEVICES, or not given to this container",
        "unset CUDA_VISIBLE_DEVICES; in a container, start it with --gpus all",
    ),
    _known(
        r"CUDA_ERROR_NOT_FOUND|named symbol not found|UNKNOWN ERROR \(500\)",
        "libcuda does not fit the driver, as happens in WSL with Docker Desktop",
        "update Docker Desktop and the driver of Windows, then `wsl --shutdown`",
    ),
    _known(
        r"CUDA_ERROR_UNKNOWN|CUDA_ERROR_NOT_INITIALIZED|CUDA_ERROR_OPERATING_SYSTEM|UNKNOWN ERROR \((999|304|3)\)",
        "the driver could not be initialised",
        "sudo modprobe nvidia_uvm; after a suspend or an update, restart the machine",
    ),
    _known(
        r"UNKNOWN ERROR \(303\)|Could not find cuda drivers|CUDA_ERROR_SHARED_OBJECT_INIT_FAILED",
        "TensorFlow finds no CUDA driver (libcuda.so.1)",
        ":driver",
    ),
    _known(
        r"Ignoring visible gpu device[\s\S]{0,300}?(minimum required Cuda capability|compute capability)",
        "the GPU is too old for this TensorFlow",
        "use an older TensorFlow whose wheel has its compute capability",
    ),
)
"""Why TensorFlow runs without a GPU; the first that fits counts."""

DOUBTS = (
    _known(
        r"not built with CUDA kernel binaries compatible with compute capability ([\d.]+)",
        "its kernels must be compiled for this GPU first, which can take 30 minutes",
        "wait once and keep the result: export CUDA_CACHE_MAXSIZE=4294967296; or use a newer TensorFlow",
    ),
    _known(
        r"Loaded runtime CuDNN library: ([\d.]+) but source was compiled with: ([\d.]+)",
        "cuDNN is older than the one TensorFlow was built with",
        ":cuda",
    ),
    _known(
        r"Protobuf gencode version .* is .*older than the runtime version",
        "protobuf is newer than what TensorFlow was generated with; it still works",
        ":protobuf",
    ),
    _known(
        r"Could not load UFF|libdevice not found|Couldn't get ptxas version|ptxas.*not found|Can't find libdevice",
        "XLA finds no ptxas or libdevice, so that jit_compile fails on the GPU",
        ":cuda",
    ),
)
"""Something to know of a TensorFlow that works."""

HARMLESS = (
    (re.compile(r"NUMA node.*negative value \(-1\)|could not open file to read NUMA node"), "no NUMA node told"),
    (re.compile(r"Unable to register cu\w+ factory"), "a factory registered twice, before TensorFlow 2.19"),
    (re.compile(r"oneDNN custom operations are on"), "oneDNN is on"),
    (re.compile(r"rebuild TensorFlow with the appropriate compiler flags"), "instructions found at run time"),
    (re.compile(r"TF-TRT Warning: Could not find TensorRT"), "no TensorRT, which training does not need"),
)
"""What looks like an error and is none."""


def first_known(text: str, messages: Iterable[Message]) -> Seen | None:
    """Return the first message that a text has."""
    for message in messages:
        match = message.pattern.search(text)
        if match is not None:
            meaning = message.meaning.format(*(group or "" for group in match.groups()))
            return Seen(meaning, message.remedy, _line(text, match.start()))
    return None


def harmless_in(text: str) -> list[str]:
    """Return what is in a text that looks worse than it is."""
    return [meaning for pattern, meaning in HARMLESS if pattern.search(text)]


def _line(text: str, at: int) -> str:
    begin, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
    return text[begin : end if end >= 0 else len(text)].strip()[:300]
