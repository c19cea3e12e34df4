"""A change to the user's files: of a patch, applied in memory, of a revision of git, or of a cause."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tfmon.errors import EXIT_WORSE, TfmonError, UsageError

HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
AS_IS = "as it is"
NO_FILE = "/dev/null"
NO_NEWLINE = b"\\"
BINARY = (b"GIT binary patch", b"Binary files ")
Files = Mapping[str, bytes | None]
"""By path in the folder; `None` for a missing file."""


class PatchError(TfmonError):
    """A patch that cannot be applied."""

    exit_code = EXIT_WORSE


@dataclass(frozen=True, slots=True)
class Change:
    """What lanes see of the working folder."""

    title: str
    sides: tuple[tuple[str, Files], ...]
    """The label of each lane, and its differing files; the script as it is comes first."""
    originals: Files = field(default_factory=dict)
    """Of the changed files."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The differing paths."""
        return tuple(sorted({path for _, files in self.sides for path in files}))


@dataclass(slots=True)
class Hunk:
    """Lines of a file, and their replacement."""

    start: int
    before: list[bytes] = field(default_factory=list)
    after: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class FilePatch:
    """The hunks of one file."""

    before: str = ""
    after: str = ""
    hunks: list[Hunk] = field(default_factory=list)


def change_of_patch(path: Path, folder: Path) -> Change:
    """Return the change of a patch; raises UsageError or PatchError."""
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
        before, after = (_path_in(name, folder) for name in (patch.before, patch.after))
        original = b""
        if before:
            original = result[before] or b"" if before in result else _content(before, folder)
        if after and after != before and (folder / after).exists() and after not in result:
            raise PatchError(f"the patch does not apply: it makes {after}, which exists already")
        changed = _apply(original, patch.hunks, before or after)
        if before and before != after:
            result[before] = None
        if after:
            result[after] = changed
    if all(content == _content_or_none(name, folder) for name, content in result.items()):
        raise PatchError("the patch changes no file")
    return result


def read_patch(text: bytes) -> list[FilePatch]:
    """Return the patches in a unified diff; raises PatchError."""
    lines, result = text.splitlines(keepends=True), list[FilePatch]()
    index, new = 0, True
    while index < len(lines):
        line = lines[index]
        index += 1
        if line.startswith(BINARY):
            raise PatchError("the patch does not apply: it has binary parts")
        if line.startswith(b"diff --git "):
            result.append(FilePatch())
            new = False
        elif line.startswith((b"rename from ", b"rename to ")):
            name = line.split(b" ", 2)[2].decode("utf-8", "surrogateescape").strip()
            setattr(result[-1], "before" if line.startswith(b"rename from") else "after", name)
        elif line.startswith(b"--- ") and index < len(lines) and lines[index].startswith(b"+++ "):
            if new:
                result.append(FilePatch())
            new = True
            result[-1].before, result[-1].after = _name(line), _name(lines[index])
            index += 1
        elif match := HUNK.match(line):
            if not result:
                raise PatchError("the patch does not apply: its first hunk names no file")
            index = _read_hunk(lines, index, match, result[-1].hunks)
    if not any(one.before or one.after for one in result):
        raise PatchError("the patch does not apply: it is not a unified diff", "`git diff` writes one")
    return [one for one in result if one.before or one.after]


def _read_hunk(lines: list[bytes], index: int, match: re.Match[bytes], hunks: list[Hunk]) -> int:
    """Add a hunk; return the index of the next line."""
    left, right = (int(match[number] or 1) for number in (2, 4))
    hunk, header = Hunk(int(match[1])), index
    while left > len(hunk.before) or right > len(hunk.after):
        line = lines[index] if index < len(lines) else b""
        kind, content = line[:1], line[1:]
        if line in (b"\n", b"\r\n"):  # editors remove the space of an empty context line
            kind, content = b" ", line
        if kind not in (b" ", b"-", b"+"):
            raise PatchError(f"the patch does not apply: the hunk at its line {header} is cut off")
        if kind in b" -":
            hunk.before.append(content)
        if kind in b" +":
            hunk.after.append(content)
        index += 1
        if index < len(lines) and lines[index].startswith(NO_NEWLINE):
            for side in ([hunk.before] if kind in b" -" else []) + ([hunk.after] if kind in b" +" else []):
                side[-1] = side[-1].rstrip(b"\r\n")
            index += 1
    hunks.append(hunk)
    return index


def _name(line: bytes) -> str:
    """Return the path in a line such as `+++ b/train.py`."""
    name = line[4:].decode("utf-8", "surrogateescape").split("\t")[0].strip().strip('"')
    return "" if name == NO_FILE else name


def _path_in(name: str, folder: Path) -> str:
    if not name:
        return ""
    plain = re.sub(r"^[abciwo]/", "", name)
    root = next((one for one in (folder, *folder.parents) if (one / ".git").exists()), folder)
    below = plain.removeprefix(f"{folder.relative_to(root)}/")
    path = next((one for one in (plain, name, below) if (folder / one).is_file()), below)
    return _inside(os.path.normpath(path), folder)


def _inside(path: str, folder: Path) -> str:
    """Return a path; raises PatchError if it is outside of the folder, or a link, which may lead outside."""
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
    """Return a file with its hunks replaced, at their line or at the nearest other."""
    lines, result, done, moved = original.splitlines(keepends=True), list[bytes](), 0, 0
    for hunk in hunks:
        wanted = hunk.start + moved - (1 if hunk.before else 0)
        starts = (
            at
            for at in range(done, len(lines) - len(hunk.before) + 1)
            if lines[at : at + len(hunk.before)] == hunk.before
        )
        start = min(starts, key=lambda at: abs(at - wanted), default=None)
        if start is None:
            raise PatchError(f"the patch does not apply: {path} has other lines at line {hunk.start}")
        moved += start - wanted
        result += [*lines[done:start], *hunk.after]
        done = start + len(hunk.before)
    return b"".join([*result, *lines[done:]])


def change_of_revision(revision: str, folder: Path) -> Change:
    """Return the difference from a revision of git; raises UsageError."""
    commit = (
        _git(folder, revision, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")
        .decode()
        .strip()
    )
    names = _git(folder, revision, "diff", "--name-only", "--no-renames", "--relative", "-z", commit, "--", ".")
    before: dict[str, bytes | None] = {}
    for name in filter(None, os.fsdecode(names).split("\0")):
        listed = _git(folder, revision, "ls-tree", "--name-only", commit, "--", name)
        before[name] = _git(folder, revision, "show", f"{commit}:./{name}") if listed else None
        _inside(name, folder)
    if not before:
        raise PatchError(f"nothing in {folder} differs from {revision}")
    return Change(f"the folder against {revision}", ((revision, before), (AS_IS, {})))


def _git(folder: Path, revision: str, *words: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, check=False)  # noqa: S607 - the user's git
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
                mode = path.stat().st_mode & 0o777 if path.exists() else None
                with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}", delete=False) as file:
                    file.write(content)
                if mode is None:
                    umask = os.umask(0)
                    os.umask(umask)
                    mode = 0o666 & ~umask
                Path(file.name).chmod(mode)
                Path(file.name).replace(path)
        except OSError as error:
            raise TfmonError(f"{path} cannot be written: {error.strerror}", "apply the patch yourself") from None
        yield name
