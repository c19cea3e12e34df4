"""Which files, folders and ports a script uses, by Python's audit events, and ports of the lane's own.

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
PORTS, LANE = os.environ.get("TFMON_PORTS", ""), os.environ.get("TFMON_LANE", "")
"""A folder that all lanes with views share, and the lane. A link `8000` to `A` there: A has port 8000; a link
`8000.B` to `43211`: that is what B has instead."""
_OTHERS = (sys.prefix, sys.base_prefix, "/dev/", "/proc/", "/sys/", PORTS or "/dev/")
_pid = os.getpid()
_seen: set[tuple[str, str]] = set()
_pending: dict[str, str] = {}
_own_tfmon: list[Callable[[], bool]] = []


def note(path: Any, use: str) -> None:  # noqa: ANN401 - what a script passes
    """Remember a use of a file or folder: `w` written, `r` read, `d` removed, `m` made as a folder."""
    if isinstance(path, int) or (use == "r" and len(_seen) >= MOST_WITH_READ):
        return
    path = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - quicker
    if (path, use) in _seen or path.startswith(_OTHERS) or "__pycache__" in path:
        return
    if use == "r" and path.endswith((".py", ".pyc", ".so")):
        return
    if use == "w" and os.path.isdir(path):  # noqa: PTH112 - quicker; `tempfile` names the folder of a new file
        return
    _add(path, use)


def _add(name: str, use: str) -> None:
    if (name, use) not in _seen and len(_seen) < MOST:
        _seen.add((name, use))
        _pending[name] = _pending.get(name, "") + use


def _opened(path: Any, mode: Any, flags: Any) -> None:  # noqa: ANN401
    note(path, "w" if (flags or 0) & WRITES else "r")


def _bound(_socket: Any, address: Any) -> None:  # noqa: ANN401
    if isinstance(address, tuple) and len(address) > 1 and address[1]:
        _add(f"port {int(address[1])}", "b")


def _renamed(source: Any, target: Any, *_: Any) -> None:  # noqa: ANN401
    note(source, "d")
    note(target, "w")


def _socket_made(*_: object) -> None:
    """Have the sockets of this process use the lane's own ports, from the first one on."""
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
    """Watch this process from now on, and send at its end what its lane has not sent.

    Args:
        has_own_tfmon: Whether `tfmon` is a module of the script: it must not be loaded then, so nothing is sent.
    """
    import atexit

    _own_tfmon[:] = [has_own_tfmon]
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
    """Return the uses since the last call; nothing in a forked child."""
    global _pending
    if os.getpid() != _pid:
        return {}
    taken, _pending = _pending, {}
    return taken


def tell_rest() -> None:
    """Send what is left as the process ends, unless it is the lane, which has sent it."""
    _tell(list(take().items()))


def _tell(taken: list[tuple[str, str]]) -> None:
    try:
        if taken and not any(has_own() for has_own in _own_tfmon):
            _send(taken)
    except Exception:  # noqa: BLE001 - the script must go on, whatever is wrong with this
        return


def _send(taken: list[tuple[str, str]]) -> None:
    import time

    from tfmon.model.codec import encode_message
    from tfmon.model.lane_pipes import HOLDER, is_open, read_pipes, reopened
    from tfmon.model.script_events import PathsUsed

    pipes, opened = read_pipes(os.environ), None
    if pipes is not None and not is_open(pipes):
        pipes = opened = reopened(pipes, os.environ.get(HOLDER, ""))
    if pipes is None:
        return
    for at in range(0, len(taken), 10):  # short lines are written whole
        event = PathsUsed(at_ns=time.monotonic_ns(), uses=dict(taken[at : at + 10]))
        os.write(pipes.metric_fd, encode_message(event))
    for fd in (opened.metric_fd, opened.knob_fd, opened.lock_fd) if opened is not None else ():
        os.close(fd)


def _on_own_port(plain: Callable[..., Any], *, binds: bool) -> Callable[..., Any]:
    """Return a method of sockets that takes the lane's own port in place of one that another lane has.

    The first lane that binds a port has it. For any other lane a free one stands for it, from when that lane binds
    it or connects to it: a lane finds no server but its own, and a port that it tests is free, as if it ran alone.
    What another program has is in use for all.
    """
    wraps: Callable[..., Any] = sys.modules["functools"].wraps  # the module `socket` has loaded it

    def call(sock: Any, address: Any, /) -> Any:  # noqa: ANN401
        module = sys.modules["socket"]
        tcp = sock.type == module.SOCK_STREAM and sock.family in (module.AF_INET, module.AF_INET6)
        port = address[1] if tcp and isinstance(address, tuple) and len(address) > 1 else 0
        link = f"{PORTS}/{port}" if isinstance(port, int) and port else ""
        if not link:
            return plain(sock, address)
        first = binds and _made(link, LANE)
        own = "" if first else _own_port(link, sock, address)
        try:
            done = plain(sock, (address[0], int(own), *address[2:]) if own else address)
        except OSError:
            if first and os.path.islink(link):  # noqa: PTH114 - another program has it
                os.unlink(link)  # noqa: PTH108
            raise
        if own and binds and (link, own) not in _seen:
            _seen.add((link, own))
            _tell([(f"port {address[1]}", f"b{own}")])  # at once: a server may be a child that a signal ends
        return done

    return wraps(plain)(call)  # type: ignore[no-any-return]


def _made(link: str, text: str) -> bool:
    try:
        os.symlink(text, link)  # noqa: PTH211
    except OSError:  # it is there, or the race is over
        return False
    return True


def _own_port(link: str, sock: Any, address: Any) -> str:  # noqa: ANN401
    """Return the lane's own port; nothing for one that no other lane has, or an address of another machine."""
    try:
        if os.readlink(link) == LANE:  # noqa: PTH115
            return ""
        with sys.modules["socket"].socket(sock.family, sock.type) as probe:
            probe.bind((address[0], 0, *address[2:]))
            _made(f"{link}.{LANE}", str(probe.getsockname()[1]))
        return os.readlink(f"{link}.{LANE}")  # noqa: PTH115
    except OSError:
        return ""
