"""Fixtures of `make accept-gpu`, the acceptance on a GPU. Otherwise every step is skipped with a reason."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import tfmon
from tfmon.probes.base import Gpu
from tfmon.probes.find_gpus import GpuSearch, find_gpus
from tfmon.probes.interpreter import read_wheel
from tfmon.probes.nvidia.probe import NvidiaProbe

from .ledger import Ledger, Step
from .smi import Smi

FOLDER = os.environ.get("TFMON_ACCEPT_GPU", "")
LEAST_S = 20.0
"""Time that a step may take, at least."""
LEDGER = Ledger(Path(FOLDER or "accept-gpu"))


@pytest.fixture(scope="session", autouse=True)
def own_folder() -> Iterator[None]:
    """Write no recording and no state into the user's folders."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for variable in ("TFMON_RECORDINGS", "TFMON_RUNTIME", "TFMON_STATE", "XDG_STATE_HOME"):
            patch.setenv(variable, folder)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the steps unless `make accept-gpu` runs them; otherwise register all for the report."""
    for item in filter(_is_step, items):
        if FOLDER:
            LEDGER.step(item.name)
        else:
            item.add_marker(pytest.mark.skip(reason="it takes 8 minutes of a GPU: make accept-gpu asks for it"))


def _is_step(item: pytest.Item) -> bool:
    return item.path.parent == Path(__file__).parent and "step" in getattr(item, "fixturenames", ())


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Note how a step ended."""
    outcome = yield
    report = outcome.get_result()
    if not FOLDER or not _is_step(item):
        return
    step = LEDGER.step(item.name)
    step.seconds = round(step.seconds + report.duration, 2)
    if report.when == "call" or report.outcome != "passed":
        step.outcome = report.outcome
    if report.skipped and isinstance(report.longrepr, tuple):
        step.reason = str(report.longrepr[2]).removeprefix("Skipped: ")
    elif report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        step.reason = (crash.message if crash is not None else str(report.longrepr)).strip().splitlines()[0][:300]


def pytest_sessionfinish() -> None:
    """Write the report, whatever happened."""
    if FOLDER and LEDGER.steps:
        LEDGER.write()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say where the report is."""
    if FOLDER and LEDGER.steps:
        terminalreporter.write_line(f"report: {LEDGER.folder / 'report.md'}")
        if LEDGER.recording.exists():
            terminalreporter.write_line(f"recording: {LEDGER.recording}")


@pytest.fixture(scope="session")
def ledger() -> Ledger:
    """Return where all steps write; a race that an earlier run recorded there is gone."""
    LEDGER.folder.mkdir(parents=True, exist_ok=True)
    LEDGER.recording.unlink(missing_ok=True)
    return LEDGER


@pytest.fixture
def step(ledger: Ledger, request: pytest.FixtureRequest) -> Step:
    """Return the ledger of this test; skip the test if too little time is left."""
    if ledger.left_s < LEAST_S:
        pytest.skip("the eight minutes are over")
    return ledger.step(request.node.name)


@pytest.fixture(scope="session")
def search(ledger: Ledger) -> GpuSearch:
    """Return the NVIDIA GPUs of this machine; skip the test if there are none."""
    found = find_gpus()
    if not found.usable:
        pytest.skip(f"no GPU: {found.reason}")
    if not found.usable[0].uuid.startswith(("GPU-", "MIG-")):
        pytest.skip(f"{found.usable[0].name} is no NVIDIA GPU")
    names = ", ".join(gpu.name for gpu in found.usable)
    ledger.facts |= {
        "machine": f"{platform.platform()}, {os.cpu_count()} cores",
        "GPUs": names,
        "NVIDIA driver": found.driver,
        "tfmon": tfmon.__version__,
        "Python": platform.python_version(),
        "TensorFlow": getattr(read_wheel(), "version", ""),
    }
    return found


@pytest.fixture(scope="session")
def gpu(search: GpuSearch) -> Gpu:
    """Return the first whole GPU, or else the first instance."""
    return search.usable[0]


@pytest.fixture(scope="session")
def device(gpu: Gpu) -> str:
    """Return the GPU as a lane names it."""
    return gpu.uuid if gpu.part_of else f"gpu:{gpu.index}"


@pytest.fixture(scope="session")
def smi() -> Smi:
    """Return the client of nvidia-smi; skip the test without it."""
    if shutil.which("nvidia-smi") is None:
        pytest.skip("nvidia-smi is not in PATH")
    return Smi()


@pytest.fixture
def probe(search: GpuSearch) -> Iterator[NvidiaProbe]:
    """Return a probe of all GPUs."""
    probe = NvidiaProbe(search.sampled)
    yield probe
    probe.close()
