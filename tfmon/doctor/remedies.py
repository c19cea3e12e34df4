"""Functions that return commands against a finding, for the platform and environment."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from tfmon.doctor.facts import Facts

SUPPORTED_PYTHON = ((3, 10), (3, 13))
"""With wheels of TensorFlow 2.21. Source: https://pypi.org/project/tensorflow/2.21.0/#files"""
METAL = "1.2.0"
"""Last release. Source: https://pypi.org/project/tensorflow-metal/#history"""
METAL_TENSORFLOW = "'tensorflow>=2.18,<2.20'"
_NGC = "https://catalog.ngc.nvidia.com/orgs/nvidia/containers/tensorflow"
NEW_GPU = f"use NVIDIA's container, which has code for it ({_NGC}), or build TensorFlow with CUDA 12.8 or newer"
"""Source: https://github.com/tensorflow/tensorflow/issues/99592"""


def install(facts: Facts, *packages: str) -> str:
    """Install packages."""
    return _in_image(facts, f"{_before(facts)}{_pip(facts, 'install')} {' '.join(packages)}")


def reinstall(facts: Facts, unwanted: tuple[str, ...], *packages: str) -> str:
    """Replace packages, or create an environment if removal is forbidden."""
    if facts.python.managed:
        return install(facts, *packages)
    removal = f"{_before(facts)}{_remove(facts)} {' '.join(unwanted)}"
    return _in_image(facts, f"{removal} && {_pip(facts, 'install')} {' '.join(packages)}")


def uninstall(facts: Facts, *packages: str) -> str:
    """Remove packages."""
    return _in_image(facts, f"{_before(facts)}{_remove(facts)} {' '.join(packages)}")


def tensorflow_package(facts: Facts) -> str:
    """Return pip's name of a TensorFlow, with CUDA for a possible GPU."""
    x86 = facts.platform.system == "Linux" and facts.platform.machine == "x86_64"
    extra = "[and-cuda]" if x86 and (facts.has_nvidia or facts.platform.wsl) else ""
    if facts.platform.system == "Darwin" and facts.platform.machine == "arm64":
        return f"{METAL_TENSORFLOW} tensorflow-metal=={METAL}"
    return f"'tensorflow{extra}'" if extra else "tensorflow"


def same_tensorflow(facts: Facts) -> str:
    """Return pip's name of the installed TensorFlow."""
    if facts.wheel is None or not facts.wheel.version:
        return tensorflow_package(facts)
    return f"'{facts.wheel.distribution}=={facts.wheel.version}'"


def reinstall_tensorflow(facts: Facts) -> str:
    """Install the same TensorFlow again."""
    return install(facts, "--force-reinstall", same_tensorflow(facts))


def metal(facts: Facts) -> str:
    """Install tensorflow-metal."""
    return install(facts, METAL_TENSORFLOW, f"tensorflow-metal=={METAL}")


def gpu_build(facts: Facts) -> str:
    """Install a TensorFlow with CUDA."""
    if facts.platform.machine != "x86_64":
        return f"PyPI has no TensorFlow with CUDA for {facts.platform.machine}; NVIDIA's container has one: {_NGC}"
    if _from_conda(facts):
        return _in_image(facts, f"{_conda(facts, 'install')} -c conda-forge 'tensorflow=*=cuda*'")
    name = facts.wheel.distribution if facts.wheel is not None else "tensorflow-cpu"
    return reinstall(facts, tuple(dict.fromkeys((name, "tensorflow"))), "'tensorflow[and-cuda]'")


def cuda_libraries(facts: Facts) -> str:
    """Install TensorFlow's CUDA libraries."""
    if _from_conda(facts):
        return gpu_build(facts)
    if facts.wheel is None or facts.wheel.distribution != "tensorflow":
        major = facts.build.cuda_version.partition(".")[0]
        return f"install the CUDA {major} toolkit and cuDNN {facts.build.cudnn_version}, or {gpu_build(facts)}"
    return install(facts, f"'tensorflow[and-cuda]=={facts.wheel.version}'")


def xla_files(facts: Facts) -> str:
    """Install XLA's files."""
    point = 'export XLA_FLAGS="--xla_gpu_cuda_data_dir=FOLDER", with the folder of CUDA that has nvvm and bin'
    if _from_conda(facts):
        command = f"{_conda(facts, 'install')} -c conda-forge cuda-nvcc"
        return f"{_in_image(facts, command)}, then {point.replace('FOLDER', facts.python.prefix)}"
    compiler = next(
        (requirement for requirement in requirements(facts, "and-cuda") if "-cuda-nvcc" in requirement.name), None
    )
    return install(facts, package(compiler)) if compiler is not None else f"install the CUDA toolkit, or {point}"


def give_gpu(facts: Facts) -> str:
    """Make the GPU available in a container."""
    if facts.platform.container == "kubernetes":
        return "in the pod, request resources: {limits: {nvidia.com/gpu: 1}}; its node needs NVIDIA's plugin"
    if facts.platform.container == "podman":
        return "podman run --device nvidia.com/gpu=all ..., with the NVIDIA Container Toolkit on the host"
    return "docker run --gpus all ..., with the NVIDIA Container Toolkit on the host"


def install_driver(facts: Facts) -> str:
    """Install the NVIDIA driver."""
    if facts.platform.wsl:
        return "install NVIDIA's driver in Windows, none in WSL, then `wsl --update` and `wsl --shutdown`"
    condition = "" if facts.has_nvidia else "if this machine has an NVIDIA GPU: "
    if facts.platform.container:
        return f"{condition}install the NVIDIA driver on the host, then {give_gpu(facts)}"
    command = {
        "ubuntu": "sudo ubuntu-drivers install",
        "debian": "sudo apt install nvidia-driver (from non-free)",
        "fedora": "sudo dnf install akmod-nvidia (from RPM Fusion)",
        "arch": "sudo pacman -S nvidia",
    }.get(facts.platform.distribution, "see https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/")
    return f"{condition}install the NVIDIA driver: {command}; then restart"


def other_python(facts: Facts) -> str:
    """Create an environment with a supported Python."""
    high, package = ".".join(map(str, SUPPORTED_PYTHON[1])), tensorflow_package(facts)
    if facts.python.conda:
        return f"conda create -n tf python={high} && conda activate tf && python -m pip install {package}"
    return f"uv venv --python {high} tf && uv pip install --python tf {package}"


def _before(facts: Facts) -> str:
    python = shlex.quote(facts.python.executable)
    if facts.python.managed:
        return f"{python} -m venv ~/tf && "
    return "" if facts.python.pip or _uses_uv(facts) else f"{python} -m ensurepip && "


def _pip(facts: Facts, verb: str) -> str:
    python = shlex.quote(facts.python.executable)
    if facts.python.managed:
        return f"~/tf/bin/pip {verb}"
    return f"uv pip {verb} --python {python}" if _uses_uv(facts) else f"{python} -m pip {verb}"


def _remove(facts: Facts) -> str:
    if _from_conda(facts):
        return _conda(facts, "remove")
    return _pip(facts, "uninstall") + ("" if _uses_uv(facts) else " -y")


def _uses_uv(facts: Facts) -> bool:
    return facts.python.uv and not facts.python.pip


def _conda(facts: Facts, verb: str) -> str:
    return f"conda {verb} -p {shlex.quote(facts.python.prefix)}"


def _from_conda(facts: Facts) -> bool:
    return facts.python.conda and (facts.build.installer == "conda" or facts.wheel is None)


def _in_image(facts: Facts, command: str) -> str:
    return f"{command}  # as RUN in the image, to keep it" if facts.platform.container else command


def release(version: str) -> tuple[int, ...]:
    """Return (2, 18, 0) for "2.18.0rc1", () for other text."""
    try:
        return Version(version).release
    except InvalidVersion:
        return ()


def fits(version: str, allowed: str | SpecifierSet) -> bool:
    """Return whether a version may satisfy every clause."""
    try:
        clauses = allowed if isinstance(allowed, SpecifierSet) else SpecifierSet(allowed)
    except InvalidSpecifier:
        return True
    return not release(version) or clauses.contains(version, prereleases=True)


def misfits(facts: Facts, wanted: Iterable[Requirement]) -> dict[Requirement, str]:
    """Return the requirements that the installed version does not meet, each with a text."""
    versions = {requirement: facts.version_of(requirement.name) for requirement in wanted}
    return {
        requirement: f"{requirement.name} {version} is not {requirement.specifier}"
        for requirement, version in versions.items()
        if version and not fits(version, requirement.specifier)
    }


def requirements(facts: Facts, extra: str = "") -> list[Requirement]:
    """Return TensorFlow's requirements, or the additions of an extra.

    Source: https://packaging.python.org/en/latest/specifications/dependency-specifiers/
    """
    environment = {
        "python_version": ".".join(map(str, facts.python.version[:2])),
        "python_full_version": ".".join(map(str, facts.python.version)),
        "sys_platform": facts.platform.system.lower(),
        "platform_system": facts.platform.system,
        "platform_machine": facts.platform.machine,
    }

    def holds(requirement: Requirement, extra: str) -> bool:
        return requirement.marker is None or requirement.marker.evaluate({**environment, "extra": extra})

    result = []
    for line in facts.build.requires:
        try:
            parsed = Requirement(line)
        except InvalidRequirement:
            continue
        parsed.name = canonicalize_name(parsed.name)
        if holds(parsed, extra) and not (extra and holds(parsed, "")):
            result.append(parsed)
    return result


def package(required: Requirement) -> str:
    """Return a requirement as an argument of a command."""
    return f"'{required.name}{required.specifier}'" if required.specifier else required.name
