"""TensorFlow's own word: whether it imports, whether it lists a GPU, and what it writes to stderr."""

from __future__ import annotations

import signal

from tfmon.doctor import remedies
from tfmon.doctor.facts import Facts, Import
from tfmon.doctor.findings import GPU, TENSORFLOW, Check, Finding, broken, check, not_applicable, ok, warning
from tfmon.doctor.messages import DOUBTS, FATAL, NO_GPU, Seen, first_known, harmless_in

_SKIPPED = "TensorFlow was not imported"


@check("import", "Import", TENSORFLOW, "import tensorflow, in a child")
def import_works(facts: Facts) -> Finding:
    """Judge whether TensorFlow can be imported, and if not, why."""
    imported = facts.imported
    if imported is None:
        return not_applicable(_SKIPPED)
    if imported.works:
        return ok(f"TensorFlow {imported.version} in {imported.seconds:.1f} s", imported.path)
    evidence = tuple(imported.text.strip().splitlines()[-8:])
    expected = "import tensorflow"
    if imported.exit_code is None:
        found = f"it was not done after {imported.seconds:.0f} s"
        fix = "look for a slow file system or a driver that hangs (`nvidia-smi`), then run it again"
        return broken(found, expected, fix, *evidence)
    if imported.exit_code < 0:
        return _killed(facts, imported, evidence)
    known = first_known(imported.text, FATAL)
    if known is not None:
        return broken(f"fails: {known.meaning}", expected, _remedy(facts, known), known.line, *evidence)
    last = evidence[-1] if evidence else f"exit code {imported.exit_code}"
    fix = remedies.install(facts, "--force-reinstall", remedies.same_tensorflow(facts))
    return broken(f"fails: {last}", expected, fix, *evidence)


def _killed(facts: Facts, imported: Import, evidence: tuple[str, ...]) -> Finding:
    assert imported.exit_code is not None
    number = -imported.exit_code
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    expected = "import tensorflow"
    known = first_known(imported.text, FATAL)
    if known is not None:
        return broken(f"ends with {name}: {known.meaning}", expected, _remedy(facts, known), known.line, *evidence)
    if number == signal.SIGILL:
        found = "ends with SIGILL: an instruction that this processor does not have"
        fix = "use a Python built for this processor (no Rosetta, no emulation), or a machine with AVX"
    elif number == signal.SIGKILL:
        found = "was killed (SIGKILL): most likely for lack of memory"
        fix = "end other programs, or raise the memory limit of the container"
    else:
        found = f"ends with {name}"
        fix = remedies.install(facts, "--force-reinstall", remedies.same_tensorflow(facts))
    return broken(found, expected, fix, *evidence)


@check("devices", "TensorFlow's GPUs", GPU, "tf.config.list_physical_devices")
def devices(facts: Facts) -> Finding:
    """Judge whether TensorFlow itself lists a GPU, and if not, why in its own words."""
    imported = facts.imported
    if imported is None or not imported.works:
        return not_applicable(_SKIPPED if imported is None else "TensorFlow cannot be imported")
    if imported.gpus:
        return ok(f"{len(imported.gpus)}: {', '.join(imported.gpus)}")
    expected = "at least one GPU"
    known = first_known(imported.text, NO_GPU)
    if known is not None:
        return broken(f"none: {known.meaning}", expected, _remedy(facts, known), known.line)
    obstacle = facts.obstacle
    if obstacle is not None:
        return broken(f"none: {obstacle.why}", expected, obstacle.hint, *imported.text.splitlines()[-3:])
    if imported.built_with_cuda is False:
        return broken("none: it was built without CUDA", expected, remedies.gpu_build(facts))
    fix = "run it with TF_CPP_MAX_VLOG_LEVEL=3 and see which library or device it leaves out"
    return broken("none, and it does not say why", expected, fix, *imported.text.splitlines()[-8:])


@check("messages", "TensorFlow's messages", GPU, "its stderr")
def messages(facts: Facts) -> Finding:
    """Judge what else TensorFlow writes, and name what only looks like an error."""
    imported = facts.imported
    if imported is None or not imported.works:
        return not_applicable(_SKIPPED if imported is None else "TensorFlow cannot be imported")
    harmless = harmless_in(imported.text)
    known = first_known(imported.text, DOUBTS)
    if known is not None:
        return warning(known.meaning, "no such message", _remedy(facts, known), known.line)
    found = f"harmless: {'; '.join(harmless)}" if harmless else "nothing of note"
    return ok(found, *imported.text.strip().splitlines())


def _remedy(facts: Facts, seen: Seen) -> str:
    match seen.remedy:
        case ":protobuf":
            return remedies.install(facts, "--upgrade", _required(facts, "protobuf"))
        case ":numpy":
            return remedies.install(facts, _required(facts, "numpy"))
        case ":metal":
            return remedies.install(facts, remedies.METAL_TENSORFLOW, f"tensorflow-metal=={remedies.METAL}")
        case ":cuda":
            return remedies.cuda_libraries(facts)
        case ":driver":
            return remedies.install_driver(facts)
        case ":tensorflow":
            return remedies.install(facts, "--force-reinstall", remedies.same_tensorflow(facts))
        case ":packages":
            return remedies.install(facts, remedies.same_tensorflow(facts))
    return seen.remedy


def _required(facts: Facts, name: str) -> str:
    """Return a package with what TensorFlow allows of it."""
    for line in facts.build.requires:
        head = line.partition(";")[0].replace(" ", "")
        if head.startswith((f"{name}<", f"{name}>", f"{name}=", f"{name}!", f"{name}~")):
            return f"'{head}'"
    return name


CHECKS: tuple[Check, ...] = (import_works, devices, messages)
