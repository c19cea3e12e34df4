"""Records the files, folders and ports that a script uses, and gives a lane its own ports.

An audit hook cannot be removed. It must return at once for other events, and must not raise.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MOST, MOST_WITH_READ = 400, 200
"""Limits of names: in total, and for reads."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
PORTS, LANE = os.environ.get("TFMON_PORTS", ""), os.environ.get("TFMON_LANE", "")
"""Folder that lanes share, and the lane. Link `8000` -> `A`: A owns port 8000. Link `8000.B` -> `43211`: B's port
instead."""
_OTHERS = (sys.prefix, sys.base_prefix, "/dev/", "/proc/", "/sys/", PORTS or "/dev/")
_pid = os.getpid()
_seen: set[tuple[str, str]] = set()
_pending: dict[str, str] = {}
_own_tfmon: list[Callable[[], bool]] = []


def note(path: Any, use: str) -> None:
    """Record a use: `w` written, `r` read, `d` removed, `m` made as a folder."""
    if isinstance(path, int) or (use == "r" and len(_seen) >= MOST_WITH_READ):
        return
    path = os.path.abspath(os.fsdecode(path))
    if (path, use) in _seen or path.startswith(_OTHERS) or "__pycache__" in path:
        return
    if use == "r" and path.endswith((".py", ".pyc", ".so")):
        return
    if use == "w" and os.path.isdir(path):
        return
    _add(path, use)


def _add(name: str, use: str) -> None:
    if (name, use) not in _seen and len(_seen) < MOST:
        _seen.add((name, use))
        _pending[name] = _pending.get(name, "") + use


def _opened(path: Any, mode: Any, flags: Any) -> None:
    note(path, "w" if (flags or 0) & WRITES else "r")


def _bound(_socket: Any, address: Any) -> None:
    if isinstance(address, tuple) and len(address) > 1 and address[1]:
        _add(f"port {int(address[1])}", "b")


def _renamed(source: Any, target: Any, *_: Any) -> None:
    note(source, "d")
    note(target, "w")


def _socket_made(*_: object) -> None:
    sockets = getattr(sys.modules.get("socket"), "socket", None)
    if PORTS and sockets is not None and _SEEN_BY.pop("socket.__new__", None) is not None:
        for name in ("bind", "connect", "connect_ex"):
            setattr(sockets, name, _on_own_port(getattr(sockets, name), binds=name == "bind"))


_SEEN_BY: dict[str, Callable[..., None]] = {
    "open": _opened,
    "os.mkdir": lambda path, *_: note(path, "m"),
    "os.remove": lambda path, *_: note(path, "d"),
    "os.rmdir": lambda path, *_: note(path, "d"),
    "shutil.rmtree": lambda path, *_: note(path, "d"),
    "os.rename": _renamed,
    "socket.bind": _bound,
    "socket.__new__": _socket_made,
}


def begin(has_own_tfmon: Callable[[], bool]) -> None:
    """Watch this process. If `has_own_tfmon`, tfmon is never loaded."""
    import atexit

    _own_tfmon[:] = [has_own_tfmon]
    if os.environ.get("TFMON_HOOKS", "").strip().lower() not in ("off", "0", "no", "false"):
        atexit.register(lambda: _report(list(take().items())))
        sys.addaudithook(handle)


def handle(event: str, args: tuple[Any, ...]) -> None:
    """Handle an audit event."""
    known = _SEEN_BY.get(event)
    if known is not None:
        try:
            known(*args)
        except Exception:  # noqa: BLE001 - the script must go on, whatever is wrong with this
            return


def take() -> dict[str, str]:
    """Return the uses since the last call."""
    global _pending
    if os.getpid() != _pid:
        return {}
    taken, _pending = _pending, {}
    return taken


def _report(taken: list[tuple[str, str]]) -> None:
    try:
        if taken and not any(has_own() for has_own in _own_tfmon):
            _send(taken)
    except Exception:  # noqa: BLE001 - the script must go on, whatever is wrong with this
        return


def _send(taken: list[tuple[str, str]]) -> None:

    from tfmon.model.codec import encode_message
    from tfmon.model.lane_events import PathsUsed
    from tfmon.system.lane_pipes import HOLDER, is_open, read_pipes, reopened

    pipes, opened = read_pipes(os.environ), None
    if pipes is not None and not is_open(pipes):
        pipes = opened = reopened(pipes, os.environ.get(HOLDER, ""))
    if pipes is None:
        return
    for at in range(0, len(taken), 10):
        event = PathsUsed(uses=dict(taken[at : at + 10]))
        os.write(pipes.metric_fd, encode_message(event))
    for fd in (opened.metric_fd, opened.knob_fd, opened.lock_fd) if opened is not None else ():
        os.close(fd)


def _on_own_port(plain: Callable[..., Any], *, binds: bool) -> Callable[..., Any]:
    """Make the first lane that binds a port its owner. Other lanes use a free port instead."""
    wraps: Callable[..., Any] = sys.modules["functools"].wraps

    def call(sock: Any, address: Any, /) -> Any:
        module = sys.modules["socket"]
        tcp = sock.type == module.SOCK_STREAM and sock.family in (module.AF_INET, module.AF_INET6)
        port = address[1] if tcp and isinstance(address, tuple) and len(address) > 1 else 0
        link = f"{PORTS}/{port}" if isinstance(port, int) and port else ""
        if not link:
            return plain(sock, address)
        first = binds and _made(link, LANE)
        lane_port = "" if first else _own_port(link, sock, address)
        try:
            done = plain(sock, (address[0], int(lane_port), *address[2:]) if lane_port else address)
        except OSError:
            if first and os.path.islink(link):
                os.unlink(link)
            raise
        if lane_port and binds and (link, lane_port) not in _seen:
            _seen.add((link, lane_port))
            _report([(f"port {address[1]}", f"b{lane_port}")])  # a signal may end a server
        return done

    return wraps(plain)(call)  # type: ignore[no-any-return]


def _made(link: str, text: str) -> bool:
    try:
        os.symlink(text, link)
    except OSError:
        return False
    return True


def _own_port(link: str, sock: Any, address: Any) -> str:
    try:
        if os.readlink(link) == LANE:
            return ""
        with sys.modules["socket"].socket(sock.family, sock.type) as probe:
            probe.bind((address[0], 0, *address[2:]))
            _made(f"{link}.{LANE}", str(probe.getsockname()[1]))
        return os.readlink(f"{link}.{LANE}")
    except OSError:
        return ""
