"""Patches are applied in memory, as `git apply` applies them; nothing is written before `keep`."""

import random
import subprocess
from pathlib import Path

import pytest

from tfmon.api.change import PatchError, apply_patch, change_of_patch, change_of_revision, keep
from tfmon.errors import TfmonError, UsageError

pytestmark = pytest.mark.process

LINES = "".join(f"line {number}\n" for number in range(1, 21))
PATCH = """--- a/train.py
+++ b/train.py
@@ -2,3 +2,4 @@
 line 2
-line 3
+line three
+line 3.5
 line 4
"""


def git(folder: Path, *words: str) -> bytes:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True).stdout


@pytest.fixture
def folder(tmp_path) -> Path:
    """A repository with a folder in it that has a script and a package."""
    folder = tmp_path / "repository" / "project"
    (folder / "lib").mkdir(parents=True)
    (folder / "train.py").write_text(LINES)
    (folder / "lib" / "old.py").write_text("x = 1\n")
    (folder / "lib" / "odd name.py").write_bytes("é = 1\r\nno newline".encode())
    git(folder.parent, "init", "-q")
    git(folder.parent, "add", ".")
    git(folder.parent, "commit", "-qm", "first")
    return folder


def test_a_patch_changes_no_file_before_it_is_kept_and_none_if_one_cannot_be_written(folder, monkeypatch):
    (folder.parent / "fix.patch").write_text(PATCH)
    change = change_of_patch(folder.parent / "fix.patch", folder)
    wanted = LINES.replace("line 3\n", "line three\nline 3.5\n")
    assert change.sides == (("as it is", {}), ("changed", {"train.py": wanted.encode()}))
    before = sorted(folder.iterdir())
    with monkeypatch.context() as full, pytest.raises(TfmonError, match=r"train\.py cannot be written: No space"):
        full.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        list(keep(change, folder))
    assert (sorted(folder.iterdir()), (folder / "train.py").read_text()) == (before, LINES)
    mode = (folder / "train.py").stat().st_mode
    assert list(keep(change, folder)) == ["train.py"]
    assert (folder / "train.py").read_text() == wanted
    assert (folder / "train.py").stat().st_mode == mode
    with pytest.raises(TfmonError, match=r"train\.py changed during the try"):
        list(keep(change, folder))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("context", ["-U3", "-U0", "-U1"])
def test_files_are_as_git_wrote_them(folder, seed, context):
    draw, lines = random.Random(f"{seed} {context}"), LINES.splitlines(keepends=True)
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(lines))
        lines[at : at + draw.randint(0, 2)] = [f"new {draw.random()}\n"] * draw.randint(0, 3)
    (folder / "train.py").write_text("".join(lines) + draw.choice(("end", "last\n")))
    if seed % 2:
        (folder / "lib" / "old.py").rename(folder / "lib" / "renamed.py")
        (folder / "lib" / "odd name.py").unlink()
        (folder / "made").mkdir()
        (folder / "made" / "new.py").write_text("y = 2\n")
    git(folder, "add", "-A")
    patch = git(folder, "diff", "--cached", context, *(["--no-prefix"] if seed % 3 == 2 else []))
    wanted = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    git(folder, "reset", "-q", "--hard")
    here = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    changed = here | apply_patch(patch, folder)
    assert {name: content for name, content in changed.items() if content is not None} == wanted


def test_hunks_are_found_at_other_lines_and_paths_may_begin_at_the_repository(folder):
    (folder / "train.py").write_text("first\n" * 5 + LINES)
    result = apply_patch(PATCH.replace("train.py", "project/train.py").encode(), folder)
    wanted = "first\n" * 5 + LINES.replace("line 3\n", "line three\nline 3.5\n")
    assert result == {"train.py": wanted.encode()}


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        ("hello\n", "not a unified diff"),
        ("", "not a unified diff"),
        (PATCH.replace("line 4", "line 5"), "patch failed: train.py:2"),
        (PATCH.replace("train.py", "absent.py"), "absent.py: No such file"),
        (PATCH.replace("train.py", "../../outside.py"), "outside of"),
        (PATCH.replace("a/train.py", "/etc/passwd").replace("b/train.py", "/etc/passwd"), "outside of"),
        (PATCH.replace("-line 3\n+line three\n+line 3.5\n", "-line 3\n"), "corrupt patch"),
        (PATCH.replace("-line 3\n+line three\n+line 3.5\n", " line 3\n").replace("2,4", "2,3"), "corrupt patch"),
        ("@@ -1 +1 @@\n-a\n+b\n", "not a unified diff"),
        ("--- /dev/null\n+++ b/train.py\n@@ -0,0 +1 @@\n+x\n", "already exists"),
    ],
)  # fmt: skip
def test_a_patch_that_does_not_apply_says_why_in_a_line(folder, patch, why):
    with pytest.raises(PatchError, match=why) as error:
        apply_patch(patch.encode(), folder)
    assert "\n" not in error.value.message
    assert error.value.exit_code == 4


def test_a_change_of_comments_alone_is_none(folder):
    (folder.parent / "fix.patch").write_text(
        "--- a/lib/old.py\n+++ b/lib/old.py\n@@ -1 +1 @@\n-x = 1\n+x =  1  # one\n"
    )
    with pytest.raises(PatchError, match="it changes nothing: only comments and layout"):
        change_of_patch(folder.parent / "fix.patch", folder)
    (folder / "lib" / "old.py").write_text("# one\nx = 1\n")
    with pytest.raises(PatchError, match="it changes nothing: "):
        change_of_revision("HEAD", folder)


def test_a_link_is_not_followed(folder, tmp_path):
    (tmp_path / "secret.py").write_text(LINES)
    (folder / "train.py").unlink()
    (folder / "train.py").symlink_to(tmp_path / "secret.py")
    with pytest.raises(PatchError, match="symbolic link"):
        apply_patch(PATCH.encode(), folder)


def test_the_folder_is_compared_with_a_revision(folder):
    with pytest.raises(PatchError, match="nothing in"):
        change_of_revision("HEAD", folder)
    (folder / "train.py").write_text("new\n")
    (folder / "lib" / "old.py").unlink()
    (folder / "lib" / "made.py").write_text("made\n")
    git(folder, "add", "-A")
    before = {"train.py": LINES.encode(), "lib/old.py": b"x = 1\n", "lib/made.py": None}
    assert change_of_revision("HEAD", folder).sides == (("HEAD", before), ("as it is", {}))
    with pytest.raises(UsageError, match="--git nowhere: "):
        change_of_revision("nowhere", folder)
    with pytest.raises(UsageError, match="--git --output=x: "):
        change_of_revision("--output=x", folder)
