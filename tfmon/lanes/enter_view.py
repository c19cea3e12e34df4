"""Runs as a lane's process before the user's command, gives it its view of the working folder, and becomes it.

    -c "…main()" KIND FOLDER PLACE PIPE COMMAND…

The view is mounted in a namespace of this process alone, so it is gone with the lane. An ordinary user needs a
user namespace for that: user and group stay the same there, and `exec` drops all its rights. Pipes, group, signals
and working directory are those that the command would have had. It imports little: each lane waits for it.

Source: mount_namespaces(7), user_namespaces(7), Documentation/filesystems/overlayfs.rst of Linux 5.11 or later.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

NEW_MOUNTS, NEW_USER = 0x00020000, 0x10000000
BIND, RECURSIVE, SLAVE = 4096, 16384, 1 << 19
INITIAL_USERS = ["0", "0", "4294967295"]
"""The map of user ids outside of all user namespaces."""
REFLINK = {"linux": ["--reflink=auto"], "darwin": ["-c"]}


def main(words: list[str]) -> None:
    """Enter the view, and run the command; does not return."""
    kind, folder, place, pipe, *command = words
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        if kind == "overlay":
            enter_overlay(folder, place)
        else:
            command = enter_copy(folder, place, command)
    except OSError as error:
        fail(int(pipe), f"the lane's view of {folder} could not be made: {error.filename}: {error.strerror}")
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and `exec` would pass that on
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, own_environment())
    except OSError as error:
        fail(int(pipe), f"{command[0]} did not start: {error.strerror}")


def own_environment() -> dict[bytes, bytes]:
    """Return the variables as they were passed: Python itself sets LC_CTYPE in some."""
    environment = dict(os.environb)
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 - quicker
            environment = dict(one.split(b"=", 1) for one in file.read().split(b"\0") if b"=" in one)
    except OSError:
        pass
    if b"PWD" in environment:
        environment[b"PWD"] = same_folder(environment[b"PWD"])
    return environment


def same_folder(named: bytes) -> bytes:
    """Return how the working directory was named, or its path where that is another folder now."""
    try:
        return named if os.path.samefile(named, ".") else os.getcwdb()  # noqa: PTH109, PTH121
    except OSError:
        return os.getcwdb()  # noqa: PTH109


def fail(pipe: int, message: str) -> None:
    """Tell the monitor why the command does not run, and end; without a pipe it is told on stderr."""
    if pipe < 0:
        sys.exit(message)
    import time

    from tfmon.model.codec import encode_message
    from tfmon.model.lane_events import LaneFailed

    hint = "--in-place lets all lanes write to the folder itself" if "view" in message else ""
    failed = LaneFailed(at_ns=time.monotonic_ns(), kind="error", message=message, hint=hint)
    os.write(pipe, encode_message(failed))
    os._exit(1)


# ---------------- overlay


def enter_overlay(folder: str, place: str) -> None:
    """Mount an overlay over the folder, for this process and its children, and enter it; raises OSError."""
    upper, work = f"{place}/upper", f"{place}/work"
    for path in (upper, work):
        os.makedirs(path, mode=0o700)  # noqa: PTH103 - pathlib is slow to load
    liken(upper, folder)
    in_user_namespace = new_namespace()
    layers = [os.open(path, os.O_PATH | os.O_DIRECTORY) for path in (folder, upper, work)]
    below = [(path, os.open(path, os.O_PATH)) for path in mounts_below(folder)]
    # Paths by descriptors need no quoting.
    names = ("lowerdir", "upperdir", "workdir")
    options = [f"{name}=/proc/self/fd/{fd}" for name, fd in zip(names, layers, strict=True)]
    options.append("userxattr" if in_user_namespace else "redirect_dir=on")
    mount("overlay", folder, "overlay", 0, ",".join(options))
    for path, fd in below:
        mount(f"/proc/self/fd/{fd}", path, None, BIND | RECURSIVE, None)
    for fd in [*layers, *(fd for _, fd in below)]:
        os.close(fd)
    os.chdir(folder)


def new_namespace() -> bool:
    """Give this process mounts of its own, and return whether that took a user namespace; raises OSError.

    What is mounted elsewhere later appears here, too; what is mounted here, nowhere else.
    """
    with open("/proc/self/uid_map", encoding="ascii") as file:  # noqa: PTH123
        nested = file.read().split() != INITIAL_USERS
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_MOUNTS) == 0:
        user = False
    elif libc.unshare(NEW_MOUNTS | NEW_USER) == 0:
        user = True
        for name, text in (("setgroups", "deny"), ("uid_map", f"{UID} {UID} 1"), ("gid_map", f"{GID} {GID} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123
                file.write(text)
    else:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "unshare")
    mount(None, "/", None, RECURSIVE | SLAVE, None)
    return user or nested


UID, GID = os.geteuid(), os.getegid()
"""Read before the namespace is made, where they have no names until they are mapped."""


def liken(upper: str, folder: str) -> None:
    """Give the upper folder owner, mode, attributes and times of the lower: the view shows the upper's."""
    found = os.stat(folder)  # noqa: PTH116
    if UID == 0:
        os.chown(upper, found.st_uid, found.st_gid)
    for name in os.listxattr(folder):
        try:
            os.setxattr(upper, name, os.getxattr(folder, name))
        except OSError:
            continue  # some belong to the system
    os.chmod(upper, found.st_mode & 0o7777)  # noqa: PTH101
    os.utime(upper, ns=(found.st_atime_ns, found.st_mtime_ns))


def mounts_below(folder: str) -> list[str]:
    """Return the mount points in the folder, which an overlay would hide; not those below another of them."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
        points = [line.split()[4] for line in file]
    for code in ("040", "011", "012", "043", "134"):  # the kernel quotes blanks, # and \\
        points = [point.replace("\\" + code, chr(int(code, 8))) for point in points]
    found: list[str] = []
    for point in sorted(points):
        if point.startswith(folder + "/") and not any(point.startswith(one + "/") for one in found):
            found.append(point)
    return list(dict.fromkeys(found))


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None) -> None:
    """Mount something; raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    source_, target_, kind_, options_ = (
        None if one is None else os.fsencode(one) for one in (source, target, kind, options)
    )
    if libc.mount(source_, target_, kind_, ctypes.c_ulong(flags), options_):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), f"mount {kind or target}")


# ---------------- copy


def enter_copy(folder: str, place: str, command: list[str]) -> list[str]:
    """Copy the folder, and enter the copy at the folder's own path if that can be; return the command for it.

    Otherwise words of the command that are paths in the folder become those of the copy. Raises OSError.
    """
    import subprocess

    copy = f"{place}/copy"
    os.makedirs(copy, mode=0o700)  # noqa: PTH103
    for more in (REFLINK.get(sys.platform, []), []):
        words = ["cp", "-a", *more, f"{folder}/.", copy]
        done = subprocess.run(
            words, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}, check=False
        )
        bad = [line for line in done.stderr.splitlines() if "Permission denied" not in line]
        if not bad:
            break
    else:
        raise OSError(5, bad[-1], "copy")
    try:
        new_namespace()
        mount(copy, folder, None, BIND, None)
        os.chdir(folder)
    except OSError:
        os.chdir(copy)
        return [copy + word[len(folder) :] if f"{word}/".startswith(f"{folder}/") else word for word in command]
    return command
