"""Which GPUs a lane could train on, and if there is none, why. TensorFlow is not imported for it."""

from __future__ import annotations

import os
import platform
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tfmon.probes.base import Gpu
from tfmon.probes.nvml import LIBRARY_NOT_FOUND, Board, Refusal, list_boards, open_nvml
from tfmon.probes.visible import counts_boards, names_instance, visible_boards
from tfmon.probes.wheel import Wheel, read_wheel

LIBRARY = "libnvidia-ml.so.1"
_NVIDIA_VENDOR = "0x10de"
_INSTALL_METAL = "pip install 'tensorflow>=2.18,<2.20' tensorflow-metal==1.2.0"


@dataclass(frozen=True, slots=True)
class GpuSearch:
    """What a search for GPUs found."""

    gpus: tuple[Gpu, ...] = ()
    """Those a lane could use, in the order of their `index`."""
    why: str = ""
    """Why there is none, in one line; empty if there is one."""
    hint: str = ""
    """What to do about it; may be empty."""
    note: str = ""
    """What may be wrong about the GPUs found; mostly empty."""


Boards: TypeAlias = tuple[list[Board], Refusal | None]


def find_gpus(
    python: str | Path | None = None,
    *,
    timeout_s: float = 5.0,
    environ: Mapping[str, str] | None = None,
    root: Path = Path("/"),
    library: str = LIBRARY,
    system: str = "",
    machine: str = "",
) -> GpuSearch:
    """Return the GPUs that a lane run by `python` (this interpreter by default) could use.

    Takes a few milliseconds where there is no NVIDIA driver, and at most `timeout_s` and the time to start
    `python` where the driver is slow: on boards without persistence mode the first call takes seconds.
    Source: NVML's list of devices, CUDA_VISIBLE_DEVICES, the files of the TensorFlow of `python`.
    Thread: any; the driver is asked in a thread of its own, which is left behind if the driver hangs.
    """
    environ = os.environ if environ is None else environ
    system, machine = system or platform.system(), machine or platform.machine()
    if system == "Darwin":
        return _find_apple(machine, read_wheel(python))
    if system != "Linux":
        return GpuSearch(why=f"TensorFlow has no GPU support on {system}", hint="on Windows, use WSL2")
    boards = _within(timeout_s, lambda: _ask_driver(library))
    if boards is None:
        return GpuSearch(
            why="the NVIDIA driver does not answer",
            hint="`nvidia-smi` would hang too: restart the machine; `dmesg` may say why",
        )
    listed, refusal = boards
    if not listed:
        return _explain(refusal, root)
    search = _choose(listed, environ)
    return _fit(search, read_wheel(python)) if search.gpus else search


def _ask_driver(library: str) -> Boards:
    """List the GPUs through NVML, and shut it down again."""
    import ctypes  # late: most machines that come here have a GPU, the others should start fast

    try:
        ctypes.CDLL(library)
    except OSError:  # spares a machine without a driver the import of pynvml
        return [], Refusal(LIBRARY_NOT_FOUND)
    nvml = open_nvml()
    if isinstance(nvml, Refusal):
        return [], nvml
    try:
        return list_boards(nvml)
    finally:
        nvml.call("nvmlShutdown")


def _within(timeout_s: float, work: Callable[[], Boards]) -> Boards | None:
    """Return what `work` gives, or None if it takes longer; its thread is then left alone."""
    answers: queue.SimpleQueue[Boards] = queue.SimpleQueue()
    threading.Thread(target=lambda: answers.put(work()), name="tfmon-find-gpus", daemon=True).start()
    try:
        return answers.get(timeout=timeout_s)
    except queue.Empty:
        return None


def _explain(refusal: Refusal | None, root: Path) -> GpuSearch:
    """Say why the driver lists no GPU at all."""
    if refusal is None:
        hint = "in a container, start it with --gpus all; else see `nvidia-smi` and `dmesg`"
        return GpuSearch(why="the NVIDIA driver lists no GPU", hint=hint)
    if refusal.code == LIBRARY_NOT_FOUND:
        if (root / "proc/driver/nvidia/version").exists():
            return GpuSearch(
                why=f"the NVIDIA driver runs, but its library {LIBRARY} is not to be found here",
                hint="in a container, start it with --gpus all; else install the driver's libraries",
            )
        if _has_nvidia_board(root):
            return GpuSearch(
                why="there is an NVIDIA GPU, but no driver for it",
                hint="install the NVIDIA driver, restart, and see whether `nvidia-smi` lists the GPU",
            )
    return GpuSearch(why=refusal.reason, hint=refusal.hint)


def _has_nvidia_board(root: Path) -> bool:
    """Source: vendor and class (0x03: display) of the devices on the PCI bus."""
    for device in (root / "sys/bus/pci/devices").glob("*"):
        try:
            vendor = (device / "vendor").read_text(encoding="ascii").strip()
            kind = (device / "class").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if vendor == _NVIDIA_VENDOR and kind.startswith("0x03"):
            return True
    return False


def _choose(boards: Sequence[Board], environ: Mapping[str, str]) -> GpuSearch:
    """Leave out what CUDA_VISIBLE_DEVICES hides."""
    value = environ.get("CUDA_VISIBLE_DEVICES")
    if names_instance(value):
        return GpuSearch(
            why="CUDA_VISIBLE_DEVICES names a part of a GPU (MIG), which tfmon cannot give to a lane",
            hint="turn MIG off, or name a whole GPU",
        )
    seen = visible_boards(value, [board.uuid for board in boards])
    if not seen:
        first = boards[0]
        return GpuSearch(
            why=f'hidden by CUDA_VISIBLE_DEVICES="{value}"',
            hint=f"unset CUDA_VISIBLE_DEVICES to race on GPU {first.index} ({first.name})",
        )
    gpus = tuple(
        Gpu(index=index, uuid=boards[place].uuid, name=boards[place].name, board=boards[place].index)
        for index, place in enumerate(seen)
    )
    mixed = len({board.name for board in boards}) > 1
    if mixed and counts_boards(value) and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        note = f"CUDA_VISIBLE_DEVICES={value} is read in the driver's order; CUDA may count the fastest first"
        return GpuSearch(gpus=gpus, note=note)
    return GpuSearch(gpus=gpus)


def _fit(search: GpuSearch, wheel: Wheel | None) -> GpuSearch:
    """Leave out every GPU if TensorFlow was built without CUDA; that it is not there at all, the lane will say."""
    if wheel is None or wheel.has_cuda is not False:
        return search
    package = f"{wheel.distribution} {wheel.version}".strip()
    return GpuSearch(
        why=f"CPU-only TensorFlow ({package})",
        hint=f"pip uninstall {wheel.distribution} && pip install 'tensorflow[and-cuda]'",
    )


def _find_apple(machine: str, wheel: Wheel | None) -> GpuSearch:
    if machine != "arm64":
        return GpuSearch(
            why="TensorFlow has no GPU support on Intel Macs, nor in an Intel Python on Apple Silicon",
            hint="on Apple Silicon, install an arm64 Python and make a new environment with it",
        )
    if wheel is None or not wheel.metal:
        return GpuSearch(why="tensorflow-metal is not installed", hint=_INSTALL_METAL)
    return GpuSearch(gpus=(Gpu(index=0, uuid="apple-gpu-0", name="Apple GPU", board=0),))
