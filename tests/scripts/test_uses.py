"""What a script's use of files is remembered as; races with collisions are in `test_views`."""

from __future__ import annotations

import tempfile

from tfmon.script import uses


def test_a_temporary_file_is_no_use_of_its_folder(tmp_path, monkeypatch):
    for name, empty in (("_seen", set()), ("_pending", {})):
        monkeypatch.setattr(uses, name, empty)
    with tempfile.NamedTemporaryFile(dir=tmp_path) as file:
        uses.hear("open", (str(tmp_path), "w+b", 2))
        uses.hear("open", (file.name, "w", 2))
    assert uses.take() == {file.name: "w"}
