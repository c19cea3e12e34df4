"""Which files, folders and ports a script uses, by Python's audit events: lanes that collide are told.

An audit hook is called for much else, and stays until the process ends: it returns at once for what it does not
know, raises nothing, and remembers a bounded number of names.

Source: https://docs.python.org/3/library/audit_events.html
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MOST, MOST_WITH_READ = 400, 200
"""Names that are remembered of each process, and after how many no file is remembered as read: of a data set."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_OTHERS = (sys.prefix, sys.base_prefix, "/dev/", "/proc/", "/sys/")
_pid = os.getpid()
_seen: set[tuple[str, str]] = set()
_pending: dict[str, str] = {}


def note(path: Any, use: str) -> None:  # noqa: ANN401 - what a script passes
    """Remember a use of a file or folder: `w` written, `r` read, `d` removed, `m` made as a folder."""
    if isinstance(path, int) or len(_seen) >= (MOST_WITH_READ if use == "r" else MOST):
        return
    path = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - quicker
    if (path, use) in _seen or path.startswith(_OTHERS) or "__pycache__" in path:
        return
    if use == "r" and path.endswith((".py", ".pyc", ".so")):
        return
    if use == "w" and os.path.isdir(path):  # noqa: PTH112 - quicker; `tempfile` names the folder of a new file
        return
    _seen.add((path, use))
    _pending[path] = _pending.get(path, "") + use


def _opened(path: Any, mode: Any, flags: Any) -> None:  # noqa: ANN401
    note(path, "w" if (flags or 0) & WRITES else "r")


def _bound(_socket: Any, address: Any) -> None:  # noqa: ANN401
    if isinstance(address, tuple) and len(address) > 1 and address[1]:
        _seen.add((port := f"port {int(address[1])}", "b"))
        _pending[port] = "b"


def _renamed(source: Any, target: Any, *_: Any) -> None:  # noqa: ANN401
    note(source, "d")
    note(target, "w")


_SEEN_BY: dict[str, Callable[..., None]] = {
    "open": _opened,
    "os.mkdir": lambda path, *_: note(path, "m"),
    "os.remove": lambda path, *_: note(path, "d"),
    "os.rmdir": lambda path, *_: note(path, "d"),
    "shutil.rmtree": lambda path, *_: note(path, "d"),
    "os.rename": _renamed,
    "socket.bind": _bound,
}


def begin() -> None:
    """Watch this process from now on, and send at its end what its lane has not sent."""
    import atexit

    if os.environ.get("TFMON_HOOKS", "").strip().lower() not in ("off", "0", "no", "false"):
        atexit.register(tell_rest)
        sys.addaudithook(hear)


def hear(event: str, args: tuple[Any, ...]) -> None:
    """Take an audit event."""
    known = _SEEN_BY.get(event)
    if known is not None:
        try:
            known(*args)
        except Exception:  # noqa: BLE001 - the script must go on, whatever is wrong with this
            return


def take() -> dict[str, str]:
    """Return what was used since the last call; nothing in a forked child."""
    global _pending
    if os.getpid() != _pid:
        return {}
    taken, _pending = _pending, {}
    return taken


def tell_rest() -> None:
    """Send what is left as the process ends, unless it is the lane, which has sent it."""
    try:
        taken = list(take().items())
        if taken:
            _send(taken)
    except Exception:  # noqa: BLE001 - nobody hears the script's end otherwise
        return


def _send(taken: list[tuple[str, str]]) -> None:
    import time

    from tfmon.model.codec import encode_message
    from tfmon.model.lane_events import PathsUsed
    from tfmon.model.lane_pipes import is_open, read_pipes

    pipes = read_pipes(os.environ)
    if pipes is None or not is_open(pipes):
        return
    for at in range(0, len(taken), 10):  # short lines are written whole
        event = PathsUsed(at_ns=time.monotonic_ns(), uses=dict(taken[at : at + 10]))
        os.write(pipes.metric_fd, encode_message(event))
