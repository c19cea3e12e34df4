"""The NVIDIA driver, asked about one device: what it cannot tell is not asked again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from tfmon.model.readings import Missing
from tfmon.probes.nvml import (
    GPU_IS_LOST,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    UNINITIALIZED,
    UNKNOWN,
    UNSUPPORTED,
    Nvml,
    Refusal,
)

_WHOLE_DEVICE = frozenset({GPU_IS_LOST, RESET_REQUIRED, UNINITIALIZED})
_UNKNOWN_IN_A_ROW = 3

T = TypeVar("T")


class DeviceTroubleError(Exception):
    """The device as a whole cannot be asked any more."""

    def __init__(self, refusal: Refusal) -> None:
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
        self._why: dict[str, Refusal] = {}
        self._unknown = 0

    def call(self, function: str, *arguments: object, **named: object) -> Any:  # noqa: ANN401 - from pynvml
        """Return what a function of pynvml answers about the device, or a `Refusal`.

        Errors: DeviceTroubleError when the answer says that the whole device is out of reach.
        """
        answer = self._nvml.call(function, self._handle, *arguments, **named)
        code = answer.code if isinstance(answer, Refusal) else 0
        self._unknown = self._unknown + 1 if code == UNKNOWN else 0
        if code in _WHOLE_DEVICE or self._unknown >= _UNKNOWN_IN_A_ROW:
            raise DeviceTroubleError(answer)
        return answer

    def first(self, reading: str, *ways: Callable[[], T | Refusal]) -> T | Missing:
        """Return what the first way gives that has an answer, else `Missing`.

        A way that this GPU or its driver does not have is not tried again.
        """
        why = self._why.get(reading, Refusal(NOT_SUPPORTED))
        for number, way in enumerate(ways):
            if (reading, number) in self._off:
                continue
            answer = way()
            if not isinstance(answer, Refusal):
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
