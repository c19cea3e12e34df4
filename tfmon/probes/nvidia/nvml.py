"""NVIDIA's management library: every call of it goes through here, and what it refuses is put in words.

The real `pynvml` module (distribution nvidia-ml-py) is imported when it is first needed, in the thread that
needs it: that takes 40 ms, and nothing of it is wanted on a machine without a GPU.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tfmon.model.readings import Missing

UNINITIALIZED, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, INSUFFICIENT_SIZE = 1, 3, 4, 6, 7
DRIVER_NOT_LOADED, TIMEOUT, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 9, 10, 12, 13
GPU_IS_LOST, RESET_REQUIRED = 15, 16
OPERATING_SYSTEM, LIBRARY_MISMATCH, VERSION_MISMATCH, DEPRECATED, UNKNOWN = 17, 18, 25, 26, 999
BAD_TEXT, WRONG_PACKAGE, NOT_LISTED, CRASHES, NO_ANSWER = -1, -2, -3, -4, -5
"""Our own codes, for what is no answer of the driver."""

UNSUPPORTED = frozenset({NOT_SUPPORTED, FUNCTION_NOT_FOUND, VERSION_MISMATCH, DEPRECATED})
"""Refusals that stay for as long as the driver is loaded."""

_REASONS = {
    UNINITIALIZED: "the driver's library was shut down",
    2: "the driver finds the question wrong",
    NOT_SUPPORTED: "this GPU does not tell",
    NO_PERMISSION: "no permission to ask the NVIDIA driver",
    NOT_FOUND: "the driver has no data",
    INSUFFICIENT_SIZE: "the list grew while it was read",
    8: "the GPU has no external power",
    DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
    TIMEOUT: "the driver did not answer in time",
    LIBRARY_NOT_FOUND: "no NVIDIA driver (libnvidia-ml.so.1 was not found)",
    FUNCTION_NOT_FOUND: "this driver does not tell",
    GPU_IS_LOST: "the GPU is lost: it fell off the bus",
    RESET_REQUIRED: "the GPU needs a reset",
    OPERATING_SYSTEM: "the system blocks the NVIDIA driver",
    LIBRARY_MISMATCH: "the NVIDIA driver was updated while it ran: its library and its kernel module differ",
    20: "the driver is out of memory",
    VERSION_MISMATCH: "this driver does not tell",
    DEPRECATED: "this driver no longer tells",
    UNKNOWN: "the driver reports an unknown error",
    BAD_TEXT: "the driver's answer is no readable text",
    WRONG_PACKAGE: "the pynvml module is not that of nvidia-ml-py",
    NOT_LISTED: "the driver does not list this GPU any more",
    CRASHES: "the NVIDIA library of this WSL2 crashes when it is asked",
    NO_ANSWER: "the NVIDIA library of this WSL2 does not answer",
}
_HINTS = {
    NO_PERMISSION: "in a container or service, let it use /dev/nvidiactl and /dev/nvidia0",
    OPERATING_SYSTEM: "in a container or service, let it use /dev/nvidiactl and /dev/nvidia0",
    DRIVER_NOT_LOADED: "load it with `sudo modprobe nvidia`, or restart the machine",
    LIBRARY_NOT_FOUND: "install the NVIDIA driver; in a container, start it with --gpus all",
    GPU_IS_LOST: "restart the machine; `dmesg` says what happened",
    RESET_REQUIRED: "reset it with `sudo nvidia-smi --gpu-reset`, or restart the machine",
    LIBRARY_MISMATCH: "restart the machine, or the container",
    UNKNOWN: "in a container, restart it: it may have lost access to the GPU",
    CRASHES: "update the NVIDIA driver of Windows",
    NO_ANSWER: "`wsl --shutdown` in Windows starts it anew",
    WRONG_PACKAGE: "pip uninstall pynvml nvidia-ml-py3 && pip install --force-reinstall nvidia-ml-py",
}


@dataclass(frozen=True, slots=True)
class NvmlFailure:
    """Why the library gave no answer."""

    code: int
    """NVML's return code, or one of ours below 0."""

    @property
    def reason(self) -> str:
        """What is wrong, in a user's words; never the driver's own text, which is not safe to fetch everywhere."""
        return _REASONS.get(self.code, f"the driver refuses with code {self.code}")

    @property
    def hint(self) -> str:
        """What to do about it; may be empty."""
        return _HINTS.get(self.code, "")


class Nvml:
    """The library, open.

    Errors: none is raised; a call gives its answer or a `NvmlFailure`.
    Thread: one at a time, and any call may block for as long as the driver likes.
    """

    def __init__(self, module: Any) -> None:  # noqa: ANN401 - pynvml has no types
        self.module = module
        mismatch = getattr(module, "NVMLLibraryMismatchError", module.NVMLError)
        self._errors = (module.NVMLError, mismatch, UnicodeDecodeError, AttributeError, OSError)

    def call(self, function: str, *arguments: object, **named: object) -> Any:  # noqa: ANN401 - as above
        """Return what a function of pynvml answers, or a `NvmlFailure`."""
        try:
            return getattr(self.module, function)(*arguments, **named)
        except self._errors as error:
            return NvmlFailure(self._code(error))

    def _code(self, error: Exception) -> int:
        if isinstance(error, self.module.NVMLError):
            # Code 0 is raised for an answer of zero items.
            return int(getattr(error, "value", UNKNOWN)) or NOT_FOUND
        if isinstance(error, UnicodeDecodeError):
            return BAD_TEXT
        # An older pynvml lacks the function, or a newer one finds that the driver does.
        return OPERATING_SYSTEM if isinstance(error, OSError) else FUNCTION_NOT_FOUND


def open_nvml() -> Nvml | NvmlFailure:
    """Load the library and initialise it; nothing touches a GPU yet.

    Source: `pynvml.nvmlInit`. Each success must be paired with a call of `nvmlShutdown`.
    """
    try:
        module = importlib.import_module("pynvml")
    except ImportError:
        return NvmlFailure(WRONG_PACKAGE)
    if not hasattr(module, "_nvmlGetFunctionPointer") or not hasattr(module, "nvmlMemory_v2"):
        return NvmlFailure(WRONG_PACKAGE)
    nvml = Nvml(module)
    answer = nvml.call("nvmlInit")
    return answer if isinstance(answer, NvmlFailure) else nvml


@dataclass(frozen=True, slots=True)
class PhysicalGpu:
    """A GPU in the driver's list."""

    index: int
    handle: Any
    uuid: str
    name: str


def list_physical_gpus(nvml: Nvml) -> tuple[list[PhysicalGpu], NvmlFailure | None]:
    """Return the GPUs the driver lets us use, and why one of the others is left out.

    Source: `nvmlDeviceGetCount`, `nvmlDeviceGetHandleByIndex`, `nvmlDeviceGetUUID`, `nvmlDeviceGetName`.
    """
    count = nvml.call("nvmlDeviceGetCount")
    if isinstance(count, NvmlFailure):
        return [], count
    physical_gpus: list[PhysicalGpu] = []
    left_out: NvmlFailure | None = None
    for index in range(count):
        handle = nvml.call("nvmlDeviceGetHandleByIndex", index)
        uuid = handle if isinstance(handle, NvmlFailure) else nvml.call("nvmlDeviceGetUUID", handle)
        if isinstance(uuid, NvmlFailure):
            left_out = uuid
            continue
        name = nvml.call("nvmlDeviceGetName", handle)
        physical_gpus.append(
            PhysicalGpu(index, handle, uuid, "NVIDIA GPU" if isinstance(name, NvmlFailure) else name)
        )
    return physical_gpus, left_out


def list_instances(nvml: Nvml, physical_gpu: PhysicalGpu) -> list[PhysicalGpu]:
    """Return the instances of a GPU that is split up (MIG); none if it is not.

    Source: `nvmlDeviceGetMigMode`, `nvmlDeviceGetMigDeviceHandleByIndex`.
    """
    mode = nvml.call("nvmlDeviceGetMigMode", physical_gpu.handle)
    if isinstance(mode, NvmlFailure) or mode[0] != 1:
        return []
    slots = nvml.call("nvmlDeviceGetMaxMigDeviceCount", physical_gpu.handle)
    instances: list[PhysicalGpu] = []
    for slot in range(0 if isinstance(slots, NvmlFailure) else slots):
        handle = nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", physical_gpu.handle, slot)
        uuid = handle if isinstance(handle, NvmlFailure) else nvml.call("nvmlDeviceGetUUID", handle)
        if isinstance(uuid, NvmlFailure):  # an empty slot
            continue
        name = nvml.call("nvmlDeviceGetName", handle)
        instances.append(
            PhysicalGpu(
                physical_gpu.index, handle, uuid, physical_gpu.name if isinstance(name, NvmlFailure) else name
            )
        )
    return instances


# ---------------- the NVIDIA driver, asked about one device: what it cannot tell is not asked again


_WHOLE_DEVICE = frozenset({GPU_IS_LOST, RESET_REQUIRED, UNINITIALIZED})
_UNKNOWN_IN_A_ROW = 3

T = TypeVar("T")


class DeviceTroubleError(Exception):
    """The device as a whole cannot be asked any more."""

    def __init__(self, refusal: NvmlFailure) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


class DeviceCalls:
    """Asks about one device for as long as it stays attached.

    Thread: the ticker's only; a call may block there for as long as the driver likes.
    """

    def __init__(self, nvml: Nvml, handle: Any) -> None:  # noqa: ANN401 - opaque
        self.module = nvml.module
        self._nvml = nvml
        self._handle = handle
        self._off: set[tuple[str, int]] = set()
        self._why: dict[str, NvmlFailure] = {}
        self._unknown = 0

    def call(self, function: str, *arguments: object, **named: object) -> Any:  # noqa: ANN401 - from pynvml
        """Return what a function of pynvml answers about the device, or a `NvmlFailure`.

        Errors: DeviceTroubleError when the answer says that the whole device is out of reach.
        """
        answer = self._nvml.call(function, self._handle, *arguments, **named)
        code = answer.code if isinstance(answer, NvmlFailure) else 0
        self._unknown = self._unknown + 1 if code == UNKNOWN else 0
        if code in _WHOLE_DEVICE or self._unknown >= _UNKNOWN_IN_A_ROW:
            raise DeviceTroubleError(answer)
        return answer

    def first(self, reading: str, *ways: Callable[[], T | NvmlFailure]) -> T | Missing:
        """Return what the first way gives that has an answer, else `Missing`.

        A way that this GPU or its driver does not have is not tried again.
        """
        why = self._why.get(reading, NvmlFailure(NOT_SUPPORTED))
        for number, way in enumerate(ways):
            if (reading, number) in self._off:
                continue
            answer = way()
            if not isinstance(answer, NvmlFailure):
                return answer
            why = answer
            if answer.code in UNSUPPORTED:
                self._off.add((reading, number))
                self._why[reading] = answer
        return Missing(why.reason)

    def number(self, reading: str, function: str, *arguments: object) -> float | Missing:
        """Return what one function gives, as a number."""
        answer = self.first(reading, lambda: self.call(function, *arguments))
        return answer if isinstance(answer, Missing) else float(answer)


class Paced(Generic[T]):
    """A value that is read anew only after some time."""

    def __init__(self, every_s: float, read: Callable[[], T]) -> None:
        self._every_ns = int(every_s * 1e9)
        self._read = read
        self._value: T | None = None
        self._at_ns: int | None = None

    def at(self, at_ns: int) -> T:
        """Return the value, read anew if it is due."""
        if self._value is None or self._at_ns is None or at_ns - self._at_ns >= self._every_ns:
            self._value = self._read()
            self._at_ns = at_ns
        return self._value
