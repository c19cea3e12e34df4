"""NVIDIA's management library (NVML): calls, and a message for each failure.

The first use imports `pynvml`, which takes 40 ms.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Hashable
from typing import Any, TypeAlias, TypeVar

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.gpu_samples import unread
from tfmon.model.readings import Missing, Reading, scaled
from tfmon.probes.base import Gpu

UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, INSUFFICIENT_SIZE = 1, 2, 3, 4, 6, 7
DRIVER_NOT_LOADED, TIMEOUT, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 9, 10, 12, 13
GPU_IS_LOST, RESET_REQUIRED = 15, 16
OPERATING_SYSTEM, LIBRARY_MISMATCH, VERSION_MISMATCH, DEPRECATED, UNKNOWN = 17, 18, 25, 26, 999
BAD_TEXT, WRONG_PACKAGE, NOT_LISTED, CRASHES, NO_ANSWER, BROKEN_LIBRARY = -1, -2, -3, -4, -5, -6

UNSUPPORTED = frozenset({NOT_SUPPORTED, FUNCTION_NOT_FOUND, VERSION_MISMATCH, DEPRECATED})
_WHOLE_DEVICE = frozenset({GPU_IS_LOST, RESET_REQUIRED, UNINITIALIZED})
_UNKNOWN_IN_A_ROW = 3

T = TypeVar("T")

_REASONS = {
    UNINITIALIZED: "the driver's library was shut down",
    # Without samples, pynvml passes an empty array, which the driver rejects; so does a change of instances.
    INVALID_ARGUMENT: "the driver has no data",
    NOT_SUPPORTED: "not supported by this GPU",
    NO_PERMISSION: "no permission to use the NVIDIA driver",
    NOT_FOUND: "the driver has no data",
    INSUFFICIENT_SIZE: "the list grew while it was read",
    8: "the GPU has no external power",
    DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
    TIMEOUT: "the driver did not answer in time",
    LIBRARY_NOT_FOUND: "no NVIDIA driver (libnvidia-ml.so.1 was not found)",
    FUNCTION_NOT_FOUND: "not supported by this driver",
    GPU_IS_LOST: "the GPU is lost: it fell off the bus",
    RESET_REQUIRED: "the GPU needs a reset",
    OPERATING_SYSTEM: "the system blocks the NVIDIA driver",
    LIBRARY_MISMATCH: "the NVIDIA driver was updated while it ran: its library and its kernel module differ",
    20: "the driver is out of memory",
    VERSION_MISMATCH: "not supported by this driver",
    DEPRECATED: "no longer supported by this driver",
    UNKNOWN: "the driver reports an unknown error",
    BAD_TEXT: "the driver's answer is not valid text",
    BROKEN_LIBRARY: "the NVIDIA driver's library libnvidia-ml.so.1 is there, but cannot be loaded",
    WRONG_PACKAGE: "the pynvml module is not that of nvidia-ml-py",
    NOT_LISTED: "the driver no longer lists this GPU",
    CRASHES: "the NVIDIA library of this WSL2 crashes when it is called",
    NO_ANSWER: "the NVIDIA library of this WSL2 does not answer",
}
_HINTS = {
    NO_PERMISSION: "in a container or service, allow access to /dev/nvidiactl and /dev/nvidia0",
    OPERATING_SYSTEM: "in a container or service, allow access to /dev/nvidiactl and /dev/nvidia0",
    DRIVER_NOT_LOADED: "load it with `sudo modprobe nvidia`, or restart the machine",
    LIBRARY_NOT_FOUND: "install the NVIDIA driver; in a container, start it with --gpus all",
    BROKEN_LIBRARY: """`python3 -c 'import ctypes; ctypes.CDLL("libnvidia-ml.so.1")'` says why""",
    GPU_IS_LOST: "restart the machine; see `dmesg` for the cause",
    RESET_REQUIRED: "reset it with `sudo nvidia-smi --gpu-reset`, or restart the machine",
    LIBRARY_MISMATCH: "restart the machine, or the container",
    UNKNOWN: "in a container, restart it: it may have lost access to the GPU",
    CRASHES: "update the NVIDIA driver of Windows",
    NO_ANSWER: "restart it: run `wsl --shutdown` in Windows",
    WRONG_PACKAGE: "pip uninstall pynvml nvidia-ml-py3 && pip install --force-reinstall nvidia-ml-py",
}


@dataclass(frozen=True, slots=True)
class NvmlFailure:
    """A failed call."""

    code: int
    """NVML's code, or tfmon's below 0."""

    @property
    def reason(self) -> str:
        """Why the call failed; the driver's own text is not always safe to read."""
        return _REASONS.get(self.code, f"the driver fails with code {self.code}")

    @property
    def hint(self) -> str:
        """The remedy."""
        return _HINTS.get(self.code, "")


Listed: TypeAlias = tuple[Gpu, Any]


class CallFailedError(Exception):
    """A call of the library failed."""

    def __init__(self, code: int) -> None:
        self.failure = NvmlFailure(code)
        super().__init__(self.failure.reason)


class DeviceFailedError(Exception):
    """The whole device is out of reach."""

    def __init__(self, failure: NvmlFailure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class Nvml:
    """The open library. Thread: one at a time; any call may block. Raises: CallFailedError."""

    def __init__(self, module: Any) -> None:
        self.module = module
        mismatch = getattr(module, "NVMLLibraryMismatchError", module.NVMLError)
        self._errors = (module.NVMLError, mismatch, UnicodeDecodeError, AttributeError, OSError)

    def call(self, function: str, *arguments: object, **keywords: object) -> Any:
        """Return the answer of a function of pynvml."""
        try:
            return getattr(self.module, function)(*arguments, **keywords)
        except self._errors as error:
            raise CallFailedError(self._code(error)) from error

    def ask(self, function: str, *arguments: object) -> Any:
        """Return the answer, or `None`."""
        with contextlib.suppress(CallFailedError):
            return self.call(function, *arguments)
        return None

    def _code(self, error: Exception) -> int:
        if isinstance(error, self.module.NVMLError):
            # pynvml raises code 0 for an answer of zero items.
            return int(getattr(error, "value", UNKNOWN)) or NOT_FOUND
        if isinstance(error, UnicodeDecodeError):
            return BAD_TEXT
        # pynvml or the driver may lack the function.
        return OPERATING_SYSTEM if isinstance(error, OSError) else FUNCTION_NOT_FOUND


def open_nvml() -> Nvml:
    """Initialise the library; raises CallFailedError. Each success needs a call of `nvmlShutdown`."""
    try:
        module = importlib.import_module("pynvml")
    except ImportError:
        raise CallFailedError(WRONG_PACKAGE) from None
    if not hasattr(module, "_nvmlGetFunctionPointer") or not hasattr(module, "nvmlMemory_v2"):
        raise CallFailedError(WRONG_PACKAGE)
    nvml = Nvml(module)
    nvml.call("nvmlInit")
    return nvml


def list_physical_gpus(nvml: Nvml) -> tuple[list[Listed], NvmlFailure | None]:
    """Return the permitted GPUs, and the failure of a denied GPU; raises CallFailedError."""
    result: list[Listed] = []
    failure: NvmlFailure | None = None
    for index in range(nvml.call("nvmlDeviceGetCount")):
        try:
            result.append(_identify(nvml, index, nvml.call("nvmlDeviceGetHandleByIndex", index), "NVIDIA GPU"))
        except CallFailedError as error:
            failure = error.failure
    return result, failure


def list_instances(nvml: Nvml, gpu: Gpu, handle: Any) -> list[Listed] | None:
    """Return a split GPU's instances. Source: `nvmlDeviceGetMigMode`, `…GetMigDeviceHandleByIndex`."""
    mode = nvml.ask("nvmlDeviceGetMigMode", handle)
    if mode is None or mode[0] != 1:
        return None
    result = []
    for slot in range(nvml.ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        with contextlib.suppress(CallFailedError):  # an empty slot
            instance = nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, slot)
            result.append(_identify(nvml, gpu.index, instance, gpu.name, gpu.uuid))
    return result


def _identify(nvml: Nvml, index: int, handle: Any, default_name: str, part_of: str = "") -> Listed:
    uuid, name = nvml.call("nvmlDeviceGetUUID", handle), nvml.ask("nvmlDeviceGetName", handle)
    return Gpu(index, uuid, name or default_name, physical_gpu=index, part_of=part_of), handle


class DeviceCalls:
    """Calls the library for one device; skips unsupported calls. Thread: the ticker's."""

    def __init__(self, nvml: Nvml, handle: Any) -> None:
        self.at_ns = 0
        """The time of the sample."""
        self.nvml = nvml
        self._handle = handle
        self._off: set[tuple[Hashable, int]] = set()
        self._last_failure: dict[Hashable, NvmlFailure] = {}
        self._unknown = 0
        self._kept: dict[Hashable, tuple[int, Any]] = {}

    def call(self, function: str, *arguments: object, **keywords: object) -> Any:
        """Return the answer; raises CallFailedError or DeviceFailedError."""
        unknown, self._unknown = self._unknown, 0
        try:
            return self.nvml.call(function, self._handle, *arguments, **keywords)
        except CallFailedError as error:
            if error.failure.code == UNKNOWN:
                self._unknown = unknown + 1
            if error.failure.code in _WHOLE_DEVICE or self._unknown >= _UNKNOWN_IN_A_ROW:
                raise DeviceFailedError(error.failure) from error
            raise

    def first(self, reading: Hashable, *ways: Callable[[], T]) -> T | Missing:
        """Return the first result; unsupported ways are not tried again."""
        failure = self._last_failure.get(reading, NvmlFailure(NOT_SUPPORTED))
        for number, way in enumerate(ways):
            if (reading, number) in self._off:
                continue
            try:
                return way()
            except CallFailedError as error:
                failure = error.failure
            if failure.code in UNSUPPORTED:
                self._off.add((reading, number))
                self._last_failure[reading] = failure
        return Missing(failure.reason)

    def part(self, reading: Hashable, unknown: T, *ways: Callable[[], T]) -> T:
        """Return the first result, or `unknown` with the reason for all its readings."""
        answer = self.first(reading, *ways)
        return unread(unknown, answer) if isinstance(answer, Missing) else answer

    def every(self, seconds: float, reading: Hashable, read: Callable[[], T]) -> T:
        """Return a value that is read again only after some time."""
        if reading not in self._kept or self.at_ns - self._kept[reading][0] >= seconds * 1e9:
            self._kept[reading] = self.at_ns, read()
        value: T = self._kept[reading][1]
        return value

    def fields(self, *numbers: int) -> list[Any]:
        """Return the values of NVML's fields."""
        values = self.call("nvmlDeviceGetFieldValues", [*numbers])
        code = next((value.nvmlReturn for value in values if value.nvmlReturn), 0)
        if code or len(values) != len(numbers):
            raise CallFailedError(int(code) or NOT_FOUND)
        return list(values)

    def number(self, function: str, *arguments: object, scale: float = 1.0) -> Reading:
        """Return a function's answer times `scale`."""
        return scaled(self.first((function, *arguments), lambda: float(self.call(function, *arguments))), scale)


_VALUE_FIELDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


def number(kind: int, value: Any) -> float:
    """Return the number of an `nvmlValue_t`; `kind` is its nvmlValueType_t."""
    return float(getattr(value, _VALUE_FIELDS[kind]))
