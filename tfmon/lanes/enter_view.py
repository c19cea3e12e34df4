"""Enters a lane's view of the folder, and becomes the user's command.

    -c "…main()" KIND FOLDER LANE_STORE COMMAND…

The view's namespace ends with this process. `exec` drops all rights in a user namespace. Imports delay each lane.

Source: mount_namespaces(7), user_namespaces(7), Documentation/filesystems/overlayfs.rst of Linux 5.11 or later.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys

NEW_MOUNTS, NEW_USER = 0x00020000, 0x10000000
BIND, RECURSIVE, SLAVE = 4096, 16384, 1 << 19
INITIAL_USERS = ["0", "0", "4294967295"]
COPIES = {"linux": ["cp", "-a", "--reflink=auto"], "darwin": ["cp", "-a", "-c"]}
UID, GID = os.geteuid(), os.getegid()
"""Read early, because the namespace does not map them."""


def main(kind: str, folder: str, lane_store: str, *command: str) -> None:
    """Enter the view and become the command."""
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        if number != signal.SIGINT or signal.getsignal(number) is signal.default_int_handler:
            signal.signal(number, signal.SIG_DFL)
    environment = own_environment()
    try:
        links, files = read_changes(lane_store)
        if kind == "overlay":
            enter_overlay(folder, lane_store)
        else:
            command = enter_copy(folder, lane_store, links, command, environment)
        change_files(files)
    except OSError as error:
        why = f"{error.filename}: {error.strerror}"
        sys.exit(f"the lane's view of {folder} could not be made: {why}; --in-place needs none")
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606 - it needs no shell
    except OSError as error:
        sys.exit(f"{command[0]} did not start: {error.strerror}")


def read_changes(lane_store: str) -> tuple[list[str], dict[str, str | None]]:
    """Return the paths to which a copy links, and the changed files, see `view_files.CHANGES`; raises OSError."""
    try:
        with open(f"{lane_store}/changes", encoding="utf-8") as file:
            import json

            links, files = json.load(file)
    except FileNotFoundError:
        return [], {}
    return links, files


def change_files(files: dict[str, str | None]) -> None:
    """Replace and remove files in the working directory; raises OSError."""
    modes = {path: os.stat(path).st_mode & 0o777 for path in files if os.path.exists(path)}
    for path in files:
        if os.path.lexists(path):
            os.unlink(path)
    for path, content in files.items():
        if content is not None:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            with open(path, "wb") as file:
                file.write(content.encode("latin-1"))
            if path in modes:
                os.chmod(path, modes[path])


def own_environment() -> dict[bytes, bytes]:
    """Return the variables without LC_CTYPE, which Python itself may set."""
    try:
        with open("/proc/self/environ", "rb") as file:
            return dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if b"=" in entry)
    except OSError:
        return dict(os.environb)


def enter_overlay(folder: str, lane_store: str) -> None:
    """Mount an overlay and enter it."""
    option = "userxattr" if new_namespace() else "redirect_dir=on"
    layers = [os.open(path, os.O_PATH) for path in (folder, f"{lane_store}/written", f"{lane_store}/work")]
    below = [(path, os.open(path, os.O_PATH)) for path in mounts_below(folder)]
    # Paths by descriptors need no quoting.
    lower, upper, work = (f"/proc/self/fd/{fd}" for fd in layers)
    mount("overlay", folder, "overlay", 0, f"lowerdir={lower},upperdir={upper},workdir={work},{option}")
    for path, fd in below:
        mount(f"/proc/self/fd/{fd}", path, None, BIND | RECURSIVE, None)
    for fd in [*layers, *(fd for _, fd in below)]:
        os.close(fd)
    os.chdir(folder)


def new_namespace() -> bool:
    """Enter a mount namespace; return whether it is in a nested user namespace."""
    with open("/proc/self/uid_map", encoding="ascii") as file:
        nested = file.read().split() != INITIAL_USERS
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_MOUNTS):
        if libc.unshare(NEW_MOUNTS | NEW_USER):
            code = ctypes.get_errno()
            why = "no more namespaces may be made" if code == errno.ENOSPC else os.strerror(code)
            raise OSError(code, why, "unshare")
        nested = True
        for name, text in (("setgroups", "deny"), ("uid_map", f"{UID} {UID} 1"), ("gid_map", f"{GID} {GID} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    mount(None, "/", None, RECURSIVE | SLAVE, None)
    return nested


def mounts_below(folder: str) -> list[str]:
    """Return the outermost mount points, which an overlay would hide."""
    with open("/proc/self/mountinfo", "rb") as file:
        quoted = [line.split()[4] for line in file]
    result: list[str] = []
    for point in sorted({os.fsdecode(path.decode("unicode_escape").encode("latin-1")) for path in quoted}):
        if point.startswith(f"{folder}/") and not any(point.startswith(f"{kept}/") for kept in result):
            result.append(point)
    return result


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None) -> None:
    """Mount a file system; raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = [
        None if argument is None else os.fsencode(argument) for argument in (source, target, kind, options)
    ]
    if libc.mount(*arguments[:3], ctypes.c_ulong(flags), arguments[3]):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), f"mount {kind or target}")


def copy_folder(folder: str, copy: str, links: list[str]) -> None:
    """Copy a folder except `links`, which become symbolic links; raises OSError."""
    import subprocess

    paths = [f"{folder}/{name}" for name in os.listdir(folder)] if links else [f"{folder}/."]
    for path in list(paths):
        target = copy + path[len(folder) :]
        if path in links:
            os.symlink(path, target)
        elif any(link.startswith(f"{path}/") for link in links):
            os.mkdir(target)
            copy_folder(path, target, links)
        else:
            continue
        paths.remove(path)
    program = [*COPIES.get(sys.platform, ["cp", "-a"]), *paths, copy]
    done = subprocess.run(program, stderr=subprocess.PIPE, text=True, check=False) if paths else None
    if done is not None and done.returncode:
        raise OSError(done.returncode, done.stderr.strip().rpartition("\n")[2], "copy")


def enter_copy(
    folder: str, lane_store: str, links: list[str], command: tuple[str, ...], environment: dict[bytes, bytes]
) -> tuple[str, ...]:
    """Enter a copy of the folder; return the command, with the copy's paths if needed."""
    copy = f"{lane_store}/written"
    copy_folder(folder, copy, [f"{folder}/{link}" for link in links])
    try:
        if links:
            raise OSError(errno.ELOOP, "they would lead to themselves", "links")
        new_namespace()
        mount(copy, folder, None, BIND, None)
        os.chdir(folder)
        return command
    except OSError:
        os.chdir(copy)
        environment[b"PWD"] = os.fsencode(copy)
        return tuple(
            copy + word[len(folder) :] if f"{word}/".startswith(f"{folder}/") else word for word in command
        )
