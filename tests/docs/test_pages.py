"""The pages refer to existing files, modules, links, commands and claims; the pictures show today's screen."""

import importlib
import re
import shlex
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest
from support.processes import run_python
from test_layers import ALLOWED

from tfmon.catalog import list_scenarios, read_scenario
from tfmon.cli.main import COMMANDS, cli
from tfmon.ui.keys import RACE_KEYS, label

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.glob("*.md"))]
BUILT = "docs/_build/html"
ENTRY_POINT_GROUP = "tfmon.scenarios"

TEXTS = {page: page.read_text("utf-8") for page in PAGES}


def code_blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of a language; with "" the blocks that are indented by four blanks."""
    if language:
        return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)
    return re.findall(r"(?:^    .*\n)+", text, re.M)


def heading_anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as code-hosting sites and MyST make them."""
    headings = re.findall(r"^#+ (.*)", page.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere():
    broken = []
    for page, text in TEXTS.items():
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = target.partition("#")
            linked = (page.parent / path).resolve() if path else page
            missing = not linked.is_file() or (anchor and anchor not in heading_anchors(linked))
            if "://" not in target and missing:
                broken.append((page.name, target))
    assert broken == []


def test_files_and_modules_that_pages_name_exist():
    missing = []
    for page, text in TEXTS.items():
        for code in re.findall(r"`([^`\n]+)`", text):
            paths = re.findall(r"(?<![\w./~-])(?:tfmon|tests|benchmarks|acceptance|scenarios|docs)/[\w./-]+", code)
            missing += [(page.name, path) for path in paths if path != BUILT and not (ROOT / path).exists()]
            name = code.split("(")[0]
            if re.fullmatch(r"tfmon(\.\w+)+", name) and name != ENTRY_POINT_GROUP and not is_there(name):
                missing.append((page.name, name))
    assert missing == []


def is_there(name: str) -> bool:
    """Return whether a module, or something in a module, has this name."""
    if (ROOT / name.replace(".", "/")).is_dir() or (ROOT / (name.replace(".", "/") + ".py")).is_file():
        return True
    module, _, attribute = name.rpartition(".")
    return is_there(module) and hasattr(importlib.import_module(module), attribute)


def test_the_table_of_packages_is_the_one_that_the_imports_are_held_against():
    rows = re.findall(r"^\| `([\w.]+)` \| .* \| (.*) \|$", TEXTS[DOCS / "architecture.md"], re.M)
    table = {package: set(re.findall(r"`([\w.]+)`", cell)) for package, cell in rows}
    assert table == {name: allowed for name, allowed in ALLOWED.items() if not name.startswith("__")}


def test_commands_that_pages_show_can_be_typed():
    for page, text in TEXTS.items():
        shown = [line.strip() for block in code_blocks(text, "") for line in block.splitlines()]
        shown += re.findall(r"`(tfmon [a-z][^`\n]*)`", text)
        for line in shown:
            words = shlex.split(line.split(" > ")[0], comments=True)
            if words[:1] == ["tfmon"] and len(words) > 1 and not STANDS_FOR_ANOTHER.search(line.partition("#")[0]):
                parse(words[1:], f"{page.name}: {line}")


STANDS_FOR_ANOTHER = re.compile(r"[A-Z]{2}|~/")
"""A word in capitals, or a path of the reader's own."""


def parse(words: list[str], where: str) -> None:
    """Parse the words with a command; a command may be named without its required arguments."""
    command = cli.get_command(click.Context(cli), words[0])
    assert command is not None, where
    try:
        command.make_context(words[0], words[1:], parent=click.Context(cli, info_name="tfmon"))
    except click.MissingParameter:
        assert len(words) == 1, where
    except click.UsageError as error:
        assert "a program that can be run" in error.message, f"{where}: {error.message}"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_help_of_every_command_has_examples_that_can_be_typed(name):
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    _, found, examples = (command.help or "").partition("For example")
    lines = [re.split(r"\s{3,}", line.strip())[0] for line in examples.splitlines()]
    shown = [shlex.split(re.split(" [>|] ", line)[0]) for line in lines if line.startswith("tfmon ")]
    assert found and (shown or name == "completion")
    for words in shown:
        if not any(word.isupper() or word == "…" for word in words):
            parse(words[1:], f"tfmon {name} --help: {words}")


def test_targets_of_make_that_pages_name_exist():
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    named = {name for text in TEXTS.values() for name in re.findall(r"(?:`|^    )make ([a-z][\w-]+)", text, re.M)}
    assert named - targets == set()


def test_the_readme_is_short_and_counts_what_there_is():
    text = TEXTS[ROOT / "README.md"]
    assert len(text.splitlines()) <= 130
    built_in = [info for info in list_scenarios() if info.origin == "built-in"]
    assert f"{len(built_in)} scenarios" in text
    assert f"{sum(len(info.claims) for info in built_in)} claims" in text


def test_the_keys_of_the_readme_are_keys():
    part = TEXTS[ROOT / "README.md"].partition("## Keys")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([^`]+)`", part))
    assert "b" in named and named <= {label(key.keys) for key in RACE_KEYS}


def test_the_page_of_claims_lists_the_claims_of_the_scenarios():
    page = (ROOT / "scenarios" / "CLAIMS.md").read_text("utf-8")
    parts = page.split("\n## ")[1:]
    listed = {
        part.partition("\n")[0]: re.findall(r"^\| (?!claim \|)(.*?)(?: \(\*.*?\*\))? \|", part, re.M)
        for part in parts
    }
    built_in = [info for info in list_scenarios() if info.origin == "built-in" and info.claims]
    assert listed == {info.name: [claim.says.rstrip(".") for claim in info.claims] for info in built_in}


def test_the_scenario_of_the_manual_is_one(tmp_path):
    (code,) = code_blocks((DOCS / "scenarios.md").read_text("utf-8"), "python")
    (tmp_path / "mine.py").write_text(code, "utf-8")
    info = read_scenario(tmp_path / "mine.py", "file")
    assert info.contrast == ("batch_size=64", "batch_size=1024")
    assert info.defaults()["batch_size"] == 64


def test_python_of_the_pages_compiles():
    for page, text in TEXTS.items():
        for code in code_blocks(text, "python"):
            compile(code, str(page), "exec")


@pytest.mark.slow
@pytest.mark.process
def test_the_manual_builds_without_a_warning(tmp_path):
    pytest.importorskip("sphinx")
    built = run_python("-m", "sphinx", "-W", "--keep-going", "-n", "-q", DOCS, tmp_path / "html")
    assert (built.returncode, built.stderr) == (0, "")
    html = (tmp_path / "html" / "keys.html").read_text("utf-8")
    assert "prefetch: off" in html and "{{" not in html.partition("<article")[2].partition("</article>")[0]


SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def moving(monkeypatch):
    """The module that draws the picture that moves, with the other one in it."""
    monkeypatch.syspath_prepend(DOCS)
    return importlib.import_module("moving")


async def test_the_picture_is_of_the_screen_as_it_is(moving):
    picture = moving.picture
    root = ElementTree.fromstring(picture.PICTURE.read_text("utf-8"))
    assert picture.digest() in root.findtext(f"{SVG}title"), "the example is another: make picture, and look at it"
    rows = await picture.rows_of_example()
    shown = picture.text_of(rows)
    assert root.findtext(f"{SVG}desc") == shown, "the screen has changed: make picture, and look at it"
    assert "faster than" in shown


def test_the_picture_that_moves_is_small_and_of_the_same_recording(moving):
    text = moving.MOVING.read_text("utf-8")
    assert len(text.encode()) <= moving.LARGEST_BYTES
    root = ElementTree.fromstring(text)
    assert moving.picture.digest() in root.findtext(f"{SVG}title"), "make picture, and look at it"
    style = root.findtext(f"{SVG}style")
    groups = [group.get("id") for group in root.iter(f"{SVG}g") if group.get("id")]
    assert len(groups) > 100 and all(f"#{name}{{" in style for name in groups)
    assert "prefers-reduced-motion" in style and "script" not in text.lower()
