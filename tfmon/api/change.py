"""A change to the user's files: of a patch, a git revision, or a cause."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from tempfile import TemporaryDirectory

from tfmon.errors import EXIT_WORSE, TfmonError, UsageError
from tfmon.model.fast_dataclass import dataclass
from tfmon.system.replace_file import replacing

HEADER = re.compile(rb"^--- ([^\t\r\n]+).*\n\+\+\+ ([^\t\r\n]+)", re.MULTILINE)
RENAME = re.compile(rb"^rename (?:from|to) ([^\r\n]+)", re.MULTILINE)
PREFIXES = ("a/", "b/", "c/", "i/", "w/", "o/")
AS_IS = "as it is"
NO_FILE = "/dev/null"
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


def change_of_patch(path: Path, folder: Path) -> Change:
    """Return the change of a patch; raises TfmonError."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "name the file of a patch") from None
    changed = apply_patch(text, folder)
    originals = {name: _content(folder / name) for name in changed}
    _check_code(originals, changed)
    return Change(path.name, ((AS_IS, {}), ("changed", changed)), originals)


def apply_patch(text: bytes, folder: Path) -> dict[str, bytes | None]:
    """Return the files that a unified diff changes. Git applies it to copies. Raises PatchError."""
    headers = [os.fsdecode(name).strip().strip('"') for match in HEADER.finditer(text) for name in match.groups()]
    renamed = [os.fsdecode(match[1]).strip('"') for match in RENAME.finditer(text)]
    if not (headers or renamed):
        raise PatchError("the patch does not apply: it is not a unified diff", "`git diff` writes one")
    names = {name for name in headers if name != NO_FILE}
    prefixed = all(name.startswith(PREFIXES) for name in names) and not any(
        (folder / name).is_file() for name in names
    )
    paths = {name[2:] if prefixed else name for name in names}.union(renamed)
    root = next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), folder)
    below = all((root / path).is_relative_to(folder) and not (folder / path).is_file() for path in paths)
    base = root if below else folder
    before = {path: content for path in paths if (content := _content(_inside(path, base, folder))) is not None}
    with TemporaryDirectory() as copies:
        for path, content in before.items():
            Path(copies, path).parent.mkdir(parents=True, exist_ok=True)
            Path(copies, path).write_bytes(content)
        arguments = ("apply", f"-p{int(prefixed)}", "--whitespace=nowarn", "--unidiff-zero", "-")
        _, problem = _git(Path(copies), *arguments, patch=text)
        if problem:
            raise PatchError(f"the patch does not apply: {problem}")
        after = {path: _content(_inside(path, Path(copies), Path(copies))) for path in paths}
    changed = {path: content for path, content in after.items() if content != before.get(path)}
    if not changed:
        raise PatchError("the patch changes no file")
    return {str((base / path).relative_to(folder)): content for path, content in changed.items()}


def _inside(path: str, base: Path, folder: Path) -> Path:
    """Return a path below `base`; raises PatchError if it is outside of the folder, or a link."""
    result = base / os.path.normpath(path)
    if not result.parent.resolve().is_relative_to(folder.resolve()):
        raise PatchError(f"the patch does not apply: {path} is outside of {folder}")
    if result.is_symlink():
        raise PatchError(f"the patch does not apply: {path} is a symbolic link")
    return result


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _check_code(before: Files, after: Files) -> None:
    """Raise PatchError for files of Python that differ only in comments and layout."""

    def code(name: str, content: bytes | None) -> str | None:
        if content is None or not name.endswith(".py"):
            return None
        with contextlib.suppress(SyntaxError, ValueError):
            return ast.dump(ast.parse(content))
        return None

    if all(code(name, before[name]) == code(name, after[name]) is not None for name in after):
        raise PatchError(f"it changes nothing: only comments and layout of {', '.join(after)} differ")


def change_of_revision(revision: str, folder: Path) -> Change:
    """Return the difference from a git revision; raises UsageError."""

    def git(*arguments: str) -> bytes:
        output, problem = _git(folder, *arguments)
        if problem:
            hint = "name a commit, branch or tag of the folder's repository"
            raise UsageError(f"--git {revision}: {problem}", hint)
        return output

    commit = git("rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}").decode().strip()
    names = git("diff", "--name-only", "--no-renames", "--relative", "-z", commit, "--", ".")
    before: dict[str, bytes | None] = {}
    for name in filter(None, os.fsdecode(names).split("\0")):
        content, missing = _git(folder, "show", f"{commit}:./{name}")
        before[name] = None if missing else content
        _inside(name, folder, folder)
    if not before:
        raise PatchError(f"nothing in {folder} differs from {revision}")
    _check_code(before, {name: _content(folder / name) for name in before})
    return Change(f"the folder against {revision}", ((revision, before), (AS_IS, {})))


def _git(folder: Path, *arguments: str, patch: bytes = b"") -> tuple[bytes, str]:
    """Return the output and the error of git; raises UsageError without git."""
    environment = {**os.environ, "LC_ALL": "C", "GIT_CEILING_DIRECTORIES": str(folder.parent)} if patch else None
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - the user's git
            input=patch,
            capture_output=True,
            check=False,
            env=environment,
        )
    except OSError as error:
        raise UsageError(f"git cannot be run: {error.strerror}", "`tfmon try` needs git") from None
    lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"git ended with {done.returncode}"]
    return done.stdout, re.sub("^(fatal|error): ", "", lines[0]) if done.returncode else ""


def keep(change: Change, folder: Path) -> Iterator[str]:
    """Write a change; yield each path. Raises TfmonError."""
    if edited := [name for name, content in change.originals.items() if _content(folder / name) != content]:
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
