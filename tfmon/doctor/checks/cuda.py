"""The CUDA libraries: whether TensorFlow can open each one, and whether they are those it was built with."""

from __future__ import annotations

from pathlib import Path

from tfmon.doctor import remedies
from tfmon.doctor.checks import GPU, NVIDIA, Check, Finding, broken, check, not_applicable, ok, warning
from tfmon.doctor.children import DRIVER, wanted_libraries
from tfmon.doctor.facts import Facts, Library
from tfmon.doctor.versions import fits, package, release, requirements

_CUDA = "and-cuda"
"""TensorFlow's extra that brings the CUDA packages."""
_NO_CUDA = "only with an NVIDIA GPU and a TensorFlow with CUDA"


@check("cuda-driver-library", "libcuda", GPU, f"{NVIDIA}cuda/cuda-driver-api/")
def cuda_driver_library(facts: Facts) -> Finding:
    """Judge whether the driver's own CUDA library can be opened."""
    library = next((one for one in facts.libraries or () if one.name == DRIVER), None)
    if library is None:
        return not_applicable(_NO_CUDA)
    if library.error:
        if facts.platform.container:
            fix = f"{remedies.give_gpu(facts)}; with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        else:
            fix = remedies.install_driver(facts)
        return broken(f"{DRIVER} cannot be opened", "the driver's CUDA library", fix, library.error)
    return ok(library.path or DRIVER, library.path)


@check(
    "cuda-libraries",
    "CUDA libraries",
    GPU,
    "https://github.com/openxla/xla/blob/main/xla/tsl/platform/default/dso_loader.cc",
)
def cuda_libraries(facts: Facts) -> Finding:
    """Judge whether every library can be opened that TensorFlow opens before it takes a GPU."""
    if facts.libraries is None:
        return not_applicable(_NO_CUDA)
    wanted = wanted_libraries(facts.build)
    if not wanted:
        return not_applicable(f"the libraries of CUDA {facts.build.cuda_version or '?'} are not known here")
    opened = [one for one in facts.libraries if one.name in wanted]
    lacking = [one for one in opened if one.error]
    evidence = [f"{one.name}: {one.error or one.path or 'opened'}" for one in opened]
    if not opened:
        errors = [one.error for one in facts.libraries if one.error]
        return warning("they could not be opened", "that each one opens", "run it again with -v", *errors)
    if not lacking:
        wheel = all(one.wheel for one in opened)
        return ok(f"all {len(opened)} open, {'from the packages' if wheel else 'from the system'}", *evidence)
    names = ", ".join(one.name for one in lacking)
    first = lacking[0]
    reason = f" ({first.error.partition(':')[0]} is missing)" if _needs_other(first) else ""
    found = f"{names} cannot be opened{reason}"
    fix = remedies.cuda_libraries(facts)
    return broken(found, "each of the libraries that TensorFlow opens", fix, *evidence)


@check("cudnn", "cuDNN", GPU, f"{NVIDIA}deeplearning/cudnn/backend/latest/developer/forward-compatibility.html")
def cudnn(facts: Facts) -> Finding:
    """Judge whether cuDNN is of the major version TensorFlow was built with, and no older."""
    library = next((one for one in facts.libraries or () if one.name.startswith("libcudnn") and one.version), None)
    if library is None:
        return not_applicable("no cuDNN was opened" if facts.libraries is not None else _NO_CUDA)
    required = next((one for one in requirements(facts, _CUDA) if one.name.startswith("nvidia-cudnn")), None)
    bounds = [] if required is None else [one.version for one in required.specifier if one.operator == ">="]
    have, least = release(library.version), release((bounds or [facts.build.cudnn_version])[0])
    if least and (have[:1] != least[:1] or have[:2] < least[:2]):
        fix = f"install cuDNN {facts.build.cudnn_version}, and take other copies out of LD_LIBRARY_PATH"
        if required is not None:
            fix = remedies.install(facts, "--upgrade", package(required))
        text = ".".join(map(str, least[:3]))
        return broken(f"cuDNN {library.version}", f"{text} or newer of cuDNN {least[0]}", fix, library.path)
    return ok(library.version, library.path)


@check("cuda-packages", "CUDA packages", GPU, "Requires-Dist of the extra and-cuda in the METADATA of TensorFlow")
def cuda_packages(facts: Facts) -> Finding:
    """Judge whether other packages, such as PyTorch, have changed the CUDA packages that TensorFlow wants."""
    wanted = requirements(facts, _CUDA)
    there = [one for one in wanted if facts.version_of(one.name)]
    if not there:
        return not_applicable("none is installed")
    wrong = [one for one in there if not fits(facts.version_of(one.name), one.specifier)]
    if not wrong:
        return ok(f"{len(there)} of {len(wanted)}, as TensorFlow requires them")
    texts = [f"{one.name} {facts.version_of(one.name)} is not {one.specifier}" for one in wrong]
    others = [name for name in ("torch", "jax", "cupy-cuda12x") if facts.version_of(name)]
    fix = "give TensorFlow an environment of its own" if others else remedies.cuda_libraries(facts)
    found = texts[0] + (f" and {len(texts) - 1} more" if texts[1:] else "")
    found += f" ({', '.join(others)} is installed here, too)" if others else ""
    return warning(found, str(wrong[0].specifier), fix, *texts)


@check("library-path", "LD_LIBRARY_PATH", GPU, "https://man7.org/linux/man-pages/man8/ld.so.8.html")
def library_path(facts: Facts) -> Finding:
    """Judge whether LD_LIBRARY_PATH puts other CUDA libraries before those installed with TensorFlow."""
    value = facts.environ.get("LD_LIBRARY_PATH", "")
    if facts.platform.system != "Linux":
        return not_applicable("Linux only")
    if not value or facts.libraries is None:
        return ok("not set" if not value else "no CUDA libraries were looked for", value)
    folders = [str(Path(one)) for one in value.split(":") if one]
    taken = [one for one in facts.libraries if not one.wheel and str(Path(one.path).parent) in folders]
    packaged = [one.name for one in taken if any(Path(facts.home).glob(f"nvidia/*/lib/{one.name}"))]
    if packaged:
        found = f"it puts {', '.join(packaged)} before those installed with TensorFlow"
        evidence = [f"{one.name}: {one.path}" for one in taken]
        return warning(found, "the libraries TensorFlow was installed with", "unset LD_LIBRARY_PATH", *evidence)
    return ok("hides no library of TensorFlow", value)


def _needs_other(library: Library) -> bool:
    """Return whether the library exists and one that it needs is missing."""
    name = library.error.partition(":")[0]
    return ".so" in name and Path(name).name != library.name


CHECKS: tuple[Check, ...] = (cuda_driver_library, cuda_libraries, cudnn, cuda_packages, library_path)
