"""The interpreter: whether any TensorFlow can run in it at all."""

from __future__ import annotations

import re

from tfmon.doctor import remedies
from tfmon.doctor.facts import Facts
from tfmon.doctor.findings import TENSORFLOW, Check, Finding, broken, check, not_applicable, ok, warning
from tfmon.doctor.versions import fits, release

_APPLE_FIX = "install an arm64 Python (python.org, `arch -arm64 brew`, Miniforge) and make a new environment"


@check("python", "Python", TENSORFLOW, "https://www.tensorflow.org/install/pip#software_requirements")
def python_answers(facts: Facts) -> Finding:
    """Judge whether the interpreter works, and whether there is a TensorFlow for its version."""
    python = facts.python
    if python.error:
        return broken(
            f"{python.executable}: {python.error}",
            "a Python that runs",
            "name another one with --python, or make its environment anew",
        )
    version = ".".join(map(str, python.version))
    found = f"{version}, {python.machine}, {python.executable}"
    low, high = remedies.SUPPORTED_PYTHON
    if facts.build.requires_python and not fits(version, facts.build.requires_python):
        expected = f"Python {facts.build.requires_python} for the TensorFlow installed"
        return broken(found, expected, remedies.other_python(facts), f"prefix {python.prefix}")
    if not low <= python.version[:2] <= high and facts.wheel is None:
        expected = f"Python {low[0]}.{low[1]} to {high[0]}.{high[1]}, for which TensorFlow has wheels"
        return broken(found, expected, remedies.other_python(facts), f"prefix {python.prefix}")
    return ok(found, f"prefix {python.prefix}", *(f"path {folder}" for folder in python.path))


@check("python-build", "Python build", TENSORFLOW, "https://www.tensorflow.org/install/pip#package_location")
def python_build(facts: Facts) -> Finding:
    """Judge 32-bit and free-threaded builds, for which there are no wheels."""
    if facts.python.error:
        return not_applicable("the interpreter does not answer")
    if facts.python.bits != 64:
        return broken(f"{facts.python.bits} bits", "a 64-bit Python", remedies.other_python(facts))
    if facts.python.free_threaded:
        return broken("free-threaded, without the GIL", "a Python with the GIL", remedies.other_python(facts))
    return ok("64 bits")


@check(
    "rosetta",
    "Rosetta",
    TENSORFLOW,
    "https://developer.apple.com/documentation/apple-silicon/about-the-rosetta-translation-environment",
)
def rosetta(facts: Facts) -> Finding:
    """Judge an Intel Python on Apple Silicon: its TensorFlow is slow or ends with an illegal instruction."""
    if facts.platform.system != "Darwin":
        return not_applicable("no Mac")
    if facts.python.translated:
        return broken(
            f"{facts.python.executable} is built for Intel and runs translated by Rosetta",
            "a Python for arm64",
            _APPLE_FIX,
            "sysctl.proc_translated = 1",
        )
    return ok(f"runs natively ({facts.python.machine})", "sysctl.proc_translated = 0")


@check("c-library", "C library", TENSORFLOW, "https://peps.python.org/pep-0600/")
def c_library(facts: Facts) -> Finding:
    """Judge whether the system's C library is as new as the wheel wants; there are no wheels for musl."""
    if facts.platform.system != "Linux" or facts.python.error:
        return not_applicable("asked on Linux only")
    if not facts.python.libc:
        return broken(
            "not GNU's C library (Alpine?)",
            "glibc: TensorFlow has no wheels for musl",
            "use an image based on Debian or Ubuntu, such as python:3.12-slim",
        )
    wanted = max((_glibc(tag) for tag in facts.build.tags), default=())
    have = release(facts.python.libc.rpartition(" ")[2])
    if wanted and have < wanted:
        text = ".".join(map(str, wanted))
        fix = f"upgrade the system to one with glibc {text}, or install an older TensorFlow"
        return broken(facts.python.libc, f"glibc {text} or newer for this wheel", fix, *facts.build.tags)
    return ok(facts.python.libc, *facts.build.tags)


def _glibc(tag: str) -> tuple[int, ...]:
    match = re.search(r"manylinux_(\d+)_(\d+)_", tag)
    return (int(match[1]), int(match[2])) if match else ()


@check(
    "cpu-instructions",
    "CPU instructions",
    TENSORFLOW,
    "https://www.tensorflow.org/install/pip#hardware_requirements",
)
def cpu_instructions(facts: Facts) -> Finding:
    """Judge whether an Intel or AMD processor has AVX, which the wheels are compiled for."""
    flags = facts.host.cpu_flags
    if facts.platform.machine not in ("x86_64", "AMD64") or flags is None:
        return not_applicable("asked on x86 under Linux only")
    if "avx" not in flags:
        return broken(
            "the processor has no AVX, or the virtual machine hides it",
            "AVX: the wheels are compiled for it",
            "let the virtual machine pass the host's CPU on (QEMU: -cpu host), or use another machine",
            "/proc/cpuinfo flags",
        )
    known = [name for name in ("avx", "avx2", "fma", "avx512f", "amx_bf16") if name in flags]
    if "avx2" not in flags:
        fix = "take it as it is, or use another machine: the CPU lane is slower than most"
        return warning("AVX, but no AVX2 and FMA", "AVX2 and FMA", fix, "/proc/cpuinfo flags")
    return ok(" ".join(known), "/proc/cpuinfo flags")


CHECKS: tuple[Check, ...] = (python_answers, python_build, rosetta, c_library, cpu_instructions)
