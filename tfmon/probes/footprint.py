"""The memory of a process on macOS, the GPU's included."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

_LIBRARY = "/usr/lib/libproc.dylib"
_RUSAGE_INFO_V4 = 4
_BUFFER_BYTES, _FOOTPRINT_AT = 1024, 72


@functools.cache
def _library() -> Any:  # noqa: ANN401 - ctypes has no types
    return ctypes.CDLL(_LIBRARY)


def read_footprint(pid: int) -> int | None:
    """Return the bytes that only this process has, in memory or compressed; None where it is not told.

    What it has allocated for the GPU counts, which its resident pages leave out. It is the figure that
    Activity Monitor shows.
    Source: `proc_pid_rusage`, `ri_phys_footprint` of rusage_info_v4; it tells of one's own processes only.
    """
    buffer = (ctypes.c_uint8 * _BUFFER_BYTES)()
    try:
        failed = _library().proc_pid_rusage(ctypes.c_int(pid), ctypes.c_int(_RUSAGE_INFO_V4), buffer)
    except (OSError, AttributeError):
        return None
    if failed:
        return None
    return int.from_bytes(bytes(buffer[_FOOTPRINT_AT : _FOOTPRINT_AT + 8]), "little")
