"""w: a picture and the table, and where they are."""

from __future__ import annotations

import re
import stat

import pytest
from support.ui import racing_demo

from tfmon.analysis.analysis import analyse
from tfmon.reports import race

from .test_app import app_of, press, shown


async def test_w_saves_the_screen_and_the_table_and_says_where(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    demo = racing_demo()
    app = app_of(demo, table=lambda: race.to_text(analyse(demo.session.snapshot())))
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "w")
        stem = re.search(r"saved .*(tfmon-small-dense-\d{8}-\d{6})\.svg and \.txt", shown(pilot))
    assert stem, shown(pilot)
    assert "<svg" in (tmp_path / f"{stem[1]}.svg").read_text()
    table = (tmp_path / f"{stem[1]}.txt").read_text()
    assert "examples/s" in table and "cpu is 3.2× faster than gpu:0" in table


async def test_on_a_page_its_text_is_saved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with app_of(racing_demo()).run_test(size=(120, 36)) as pilot:
        await press(pilot, "question_mark", "w")
        assert "saved " in shown(pilot)
    (text,) = tmp_path.glob("*.txt")
    assert "prefetch: off, 1, 2, auto" in text.read_text()


async def test_letters_that_one_types_save_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with app_of(racing_demo()).run_test(size=(120, 36)) as pilot:
        await press(pilot, "s", "w", "escape", "l", "slash", "w")
        assert not list(tmp_path.iterdir())


@pytest.mark.skipif("__import__('os').geteuid() == 0", reason="root may write everywhere")
async def test_a_folder_that_cannot_be_written_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    async with app_of(racing_demo()).run_test(size=(120, 36)) as pilot:
        await press(pilot, "w")
        assert "could not be saved: Permission denied" in shown(pilot)


async def test_a_folder_that_is_gone_is_told(tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    async with app_of(racing_demo()).run_test(size=(120, 36)) as pilot:
        await press(pilot, "w")
        assert "could not be saved: No such file or directory" in shown(pilot)
