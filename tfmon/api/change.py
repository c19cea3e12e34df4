"""A change to the user's files: of a patch, a git revision, or a cause."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tfmon.errors import EXIT_WORSE, TfmonError, UsageError
from tfmon.system.replace_file import replacing

HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
AS_IS = "as it is"
NO_FILE = "/dev/null"
NO_NEWLINE = b"\\"
BINARY = (b"GIT binary patch", b"Binary files ")
Files = Mapping[str, bytes | None]
"""Content by path in the folder. `None` if a file is missing."""


class PatchError(TfmonError):
    """A patch that cannot be applied."""

    exit_code = EXIT_WORSE


@dataclass(frozen=True, slots=True)
class Change:
    """The different files of two lanes."""

    title: str
    sides: tuple[tuple[str, Files], ...]
    """Label and differing files of each lane. The unchanged script is first."""
    originals: Files = field(default_factory=dict)
    """Content of the changed files before the change."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The differing paths."""
        return tuple(sorted({path for _, files in self.sides for path in files}))


@dataclass(slots=True)
class Hunk:
    """Lines of a file, and their replacement."""

    start: int
    old: list[bytes] = field(default_factory=list)
    new: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class FilePatch:
    """The hunks of one file."""

    old_path: str = ""
    new_path: str = ""
    hunks: list[Hunk] = field(default_factory=list)


def change_of_patch(path: Path, folder: Path) -> Change:
    """Return the change of a patch; raises TfmonError."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "name the file of a patch") from None
    changed = apply_patch(text, folder)
    originals = {name: _content_or_none(name, folder) for name in changed}
    return Change(path.name, ((AS_IS, {}), ("changed", changed)), originals)


def apply_patch(text: bytes, folder: Path) -> dict[str, bytes | None]:
    """Return the changed files of a unified diff; raises PatchError."""
    result: dict[str, bytes | None] = {}
    for patch in read_patch(text):
        old, new = (_path_in(name, folder) for name in (patch.old_path, patch.new_path))
        original = b""
        if old:
            original = result[old] or b"" if old in result else _content(old, folder)
        if new and new != old and (folder / new).exists() and new not in result:
            raise PatchError(f"the patch does not apply: it makes {new}, which exists already")
        changed = _apply(original, patch.hunks, old or new)
        if old and old != new:
            result[old] = None
        if new:
            result[new] = changed
    if all(content == _content_or_none(name, folder) for name, content in result.items()):
        raise PatchError("the patch changes no file")
    return result


def read_patch(text: bytes) -> list[FilePatch]:
    """Return the patches in a unified diff; raises PatchError."""
    lines, result = text.splitlines(keepends=True), list[FilePatch]()
    index, is_new = 0, True
    while index < len(lines):
        line = lines[index]
        index += 1
        if line.startswith(BINARY):
            raise PatchError("the patch does not apply: it has binary parts")
        if line.startswith(b"diff --git "):
            result.append(FilePatch())
            is_new = False
        elif line.startswith((b"rename from ", b"rename to ")):
            name = line.split(b" ", 2)[2].decode("utf-8", "surrogateescape").strip()
            setattr(result[-1], "old_path" if line.startswith(b"rename from") else "new_path", name)
        elif line.startswith(b"--- ") and index < len(lines) and lines[index].startswith(b"+++ "):
            if is_new:
                result.append(FilePatch())
            is_new = True
            result[-1].old_path, result[-1].new_path = _name(line), _name(lines[index])
            index += 1
        elif match := HUNK.match(line):
            if not result:
                raise PatchError("the patch does not apply: its first hunk names no file")
            index = _read_hunk(lines, index, match, result[-1].hunks)
    if not any(file.old_path or file.new_path for file in result):
        raise PatchError("the patch does not apply: it is not a unified diff", "`git diff` writes one")
    return [file for file in result if file.old_path or file.new_path]


def _read_hunk(lines: list[bytes], index: int, match: re.Match[bytes], hunks: list[Hunk]) -> int:
    left, right = (int(match[number] or 1) for number in (2, 4))
    hunk, header = Hunk(int(match[1])), index
    while left > len(hunk.old) or right > len(hunk.new):
        line = lines[index] if index < len(lines) else b""
        kind, content = line[:1], line[1:]
        if line in (b"\n", b"\r\n"):  # editors remove the space of an empty context line
            kind, content = b" ", line
        if kind not in (b" ", b"-", b"+"):
            raise PatchError(f"the patch does not apply: the hunk at its line {header} is cut off")
        if kind in b" -":
            hunk.old.append(content)
        if kind in b" +":
            hunk.new.append(content)
        index += 1
        if index < len(lines) and lines[index].startswith(NO_NEWLINE):
            for side in ([hunk.old] if kind in b" -" else []) + ([hunk.new] if kind in b" +" else []):
                side[-1] = side[-1].rstrip(b"\r\n")
            index += 1
    hunks.append(hunk)
    return index


def _name(line: bytes) -> str:
    name = line[4:].decode("utf-8", "surrogateescape").split("\t")[0].strip().strip('"')
    return "" if name == NO_FILE else name


def _path_in(name: str, folder: Path) -> str:
    if not name:
        return ""
    plain = re.sub(r"^[abciwo]/", "", name)
    root = next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), folder)
    below = plain.removeprefix(f"{folder.relative_to(root)}/")
    path = next((candidate for candidate in (plain, name, below) if (folder / candidate).is_file()), below)
    return _inside(os.path.normpath(path), folder)


def _inside(path: str, folder: Path) -> str:
    """Return a path; raises PatchError if it is outside of the folder, or a link."""
    if not (folder / path).parent.resolve().is_relative_to(folder.resolve()):
        raise PatchError(f"the patch does not apply: {path} is outside of {folder}")
    if (folder / path).is_symlink():
        raise PatchError(f"the patch does not apply: {path} is a symbolic link")
    return path


def _content(path: str, folder: Path) -> bytes:
    try:
        return (folder / path).read_bytes()
    except OSError as error:
        raise PatchError(f"the patch does not apply: {path}: {error.strerror}") from None


def _content_or_none(path: str, folder: Path) -> bytes | None:
    return (folder / path).read_bytes() if (folder / path).is_file() else None


def _apply(original: bytes, hunks: list[Hunk], path: str) -> bytes:
    """Return a file with each hunk replaced at its line or the nearest match."""
    lines, result, done, moved = original.splitlines(keepends=True), list[bytes](), 0, 0
    for hunk in hunks:
        wanted = hunk.start + moved - (1 if hunk.old else 0)
        starts = (
            at for at in range(done, len(lines) - len(hunk.old) + 1) if lines[at : at + len(hunk.old)] == hunk.old
        )
        start = min(starts, key=lambda at: abs(at - wanted), default=None)
        if start is None:
            raise PatchError(f"the patch does not apply: {path} has other lines at line {hunk.start}")
        moved += start - wanted
        result += [*lines[done:start], *hunk.new]
        done = start + len(hunk.old)
    return b"".join([*result, *lines[done:]])


def change_of_revision(revision: str, folder: Path) -> Change:
    """Return the difference from a git revision; raises UsageError."""
    parsed = _git(folder, revision, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")
    commit = parsed.decode().strip()
    names = _git(folder, revision, "diff", "--name-only", "--no-renames", "--relative", "-z", commit, "--", ".")
    before: dict[str, bytes | None] = {}
    for name in filter(None, os.fsdecode(names).split("\0")):
        listed = _git(folder, revision, "ls-tree", "--name-only", commit, "--", name)
        before[name] = _git(folder, revision, "show", f"{commit}:./{name}") if listed else None
        _inside(name, folder)
    if not before:
        raise PatchError(f"nothing in {folder} differs from {revision}")
    return Change(f"the folder against {revision}", ((revision, before), (AS_IS, {})))


def _git(folder: Path, revision: str, *arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=False)  # noqa: S607 - the user's git
    except OSError as error:
        raise UsageError(f"git cannot be run: {error.strerror}", "give a patch instead of --git") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        text = lines[0].removeprefix("fatal: ") if lines else f"git ended with {done.returncode}"
        raise UsageError(f"--git {revision}: {text}", "name a commit, branch or tag of the folder's repository")
    return done.stdout


def keep(change: Change, folder: Path) -> Iterator[str]:
    """Write a change; yield each path. Raises TfmonError."""
    if edited := [name for name, content in change.originals.items() if _content_or_none(name, folder) != content]:
        raise TfmonError(f"{', '.join(edited)} changed during the try, so nothing is applied", "try it again")
    for name, content in change.sides[-1][1].items():
        path = folder / name
        try:
            if content is None:
                path.unlink(missing_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                with replacing(path) as file:
                    file.write(content)
        except OSError as error:
            raise TfmonError(f"{path} cannot be written: {error.strerror}", "apply the patch yourself") from None
        yield name
