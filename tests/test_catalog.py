"""Scenario files are found, read and never run; and the file that tfmon new writes."""

import pytest

from tfmon.catalog import built_in_folder, find_scenario, list_scenarios, read_scenario
from tfmon.cli import scenarios
from tfmon.errors import UsageError

MINIMAL = '''"""My net.

More of it.
"""
from tfmon.trainer import Scenario

class Mine(Scenario):
    pass
'''


@pytest.fixture
def write(tmp_path):
    def file(source: str | bytes, name: str = "mine.py"):
        path = tmp_path / name
        path.write_bytes(source if isinstance(source, bytes) else source.encode())
        return path

    return file


def with_body(*lines: str) -> str:
    return "class Mine(Scenario):\n" + "".join(f"    {line}\n" for line in lines)


def knob(info, name: str):
    return next(knob for knob in info.knobs if knob.name == name)


def test_every_built_in_file_is_listed_and_found_by_its_name_and_says_what_it_is():
    infos = list_scenarios()
    assert [info.path for info in infos] == sorted(built_in_folder().glob("[!_]*.py"))
    assert {info.origin for info in infos} == {"built-in"}
    assert all(info.title and info.doc for info in infos)
    info = find_scenario("small-dense")
    assert info.path == built_in_folder() / "small_dense.py"
    assert (info.defaults()["batch_size"], info.examples) == (10, 1_000)


def test_a_file_is_found_by_its_path(write, monkeypatch):
    path = write(MINIMAL, "my_net.py")
    monkeypatch.chdir(path.parent)
    for name in (str(path), "my_net.py", "./my_net.py"):
        info = find_scenario(name)
        assert (info.name, info.path, info.origin) == ("my-net", path.resolve(), "file")


def test_a_path_without_a_file_and_a_senseless_name_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.py").mkdir()
    for name in ("./absent.py", "absent.py", "folder/absent", "folder.py"):
        with pytest.raises(UsageError, match=name):
            find_scenario(name)
    for name in ("", "..", "\x00", "x" * 5_000, "./" + "x" * 5_000):
        with pytest.raises(UsageError):
            find_scenario(name)


def test_what_a_scenario_leaves_open_has_defaults(write):
    info = read_scenario(write(MINIMAL), "file")
    assert (info.title, info.doc) == ("My net.", "More of it.")
    assert info.defaults() == {
        "batch_size": 32, "prefetch": "auto", "graph": True, "xla": False, "mixed_precision": "off",
        "sync_every_step": False, "threads": "auto",
    }  # fmt: skip
    assert info.contrast == ("prefetch=off", "prefetch=auto")
    assert info.examples is None


def test_literals_of_the_class_body_are_read_and_other_attributes_may_be_computed(write):
    body = ("batch_size = 64", "prefetch: str = 'off'", "examples = 10_000", "contrast = ('width=1', 'width=2')")
    info = read_scenario(write(with_body(*body, "units = load()")), "file")
    assert (info.defaults()["batch_size"], info.defaults()["prefetch"]) == (64, "off")
    assert (info.examples, info.contrast) == (10_000, ("width=1", "width=2"))
    assert (info.title, info.doc) == ("mine.py", ""), "without a docstring it is called by its name"


def test_knobs_of_its_own_are_read_in_any_spelling(write):
    calls = (
        "Knob('width', default=128, help='Units.', kind='restart', low=1, high=4096)",
        "trainer.Knob('which', 'a', 'Which.', choices=('a', 'b'))",
        "Knob('augment', default=True, help='On.')",
    )
    source = with_body(f"knobs = [{', '.join(calls)}]").replace("(Scenario)", "(tfmon.trainer.Scenario)")
    info = read_scenario(write(source), "file")
    width = knob(info, "width")
    assert (width.default, width.help, width.kind, width.low, width.high) == (128, "Units.", "restart", 1, 4096)
    assert knob(info, "which").choices == ("a", "b")
    assert info.defaults()["augment"] is True


def test_the_variants_that_the_contrast_names_are_remedies_for_each_other(write):
    body = ("variants = ('slow', 'fast', 'other')", "contrast = ('variant=slow', 'variant=fast')")
    assert knob(read_scenario(write(with_body(*body)), "file"), "variant").remedies == ("slow", "fast")
    body = ("variants = ('slow', 'fast')", "contrast = ('graph=off', 'graph=on')")
    assert knob(read_scenario(write(with_body(*body)), "file"), "variant").remedies == ()


def test_a_file_is_never_run(write, tmp_path):
    trace = tmp_path / "it ran"
    path = write(f"open({str(trace)!r}, 'w')\nraise SystemExit(3)\n" + with_body("batch_size = 8"))
    assert find_scenario(str(path)).defaults()["batch_size"] == 8
    assert not trace.exists()


ONE = "mine.py must define one subclass of tfmon.trainer.Scenario"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import numpy\n\ndef model(:\n    pass\n", r"mine.py:3: "),
        ("x = 1\n", f"{ONE}.* it has none"),
        ("class Mine:\n    pass\n", f"{ONE}.* it has none"),
        ("class A(Scenario): pass\nclass B(Scenario): pass\n", f"{ONE}.* it has A, B"),
        (b"\x00\x01\x02", "mine.py"),
        (b"\xff\xfe\xfa", "mine.py"),
        (b"# coding: nonsense\n", "mine.py"),
        (b"x = " + b"(" * 5_000, "mine.py"),
        (b"-" * 100_000 + b"1", "mine.py"),
    ],
    ids=lambda value: str(value[:20]),
)
def test_a_file_that_is_no_scenario_is_refused(write, source, said):
    with pytest.raises(UsageError, match=said):
        read_scenario(write(source), "file")


@pytest.mark.parametrize(
    "line",
    [
        "batch_size = 2 ** exponent",
        "contrast = make()",
        "knobs = (Knob('width', default=WIDTH, help='Units.'),)",
        "knobs = (Knob('width', 1, 'Units.', unknown=2),)",
        f"batch_size = {' + '.join(['1'] * 700)}",
    ],
    ids=lambda value: value[:40],
)
def test_a_value_that_is_not_written_out_is_told_with_file_and_line(write, line):
    with pytest.raises(UsageError, match=f"^mine.py:4: `{line.split()[0]}` must be written out"):
        read_scenario(write("\n" + with_body("", line)), "file")


@pytest.mark.parametrize(
    "line",
    [
        "prefetch = 'sometimes'",
        "knobs = (Knob('variant', 'c', 'Which.', choices=('a', 'b')),)",
        "knobs = ('width',)",
        "knobs = (Knob(5, 1, 'Units.'),)",
        "knobs = (Knob('width', 1, 'Units.', low='a'),)",
        "knobs = (Knob('batch_size', 1, 'Again.', low=1),)",
        *(f"contrast = {value}" for value in ("5", "'prefetch=off'", "(1, 2)", "()")),
        *(f"examples = {value}" for value in ("'many'", "0", "True")),
    ],
)
def test_a_value_that_cannot_be_or_of_the_wrong_kind_is_refused_and_no_traceback(write, line):
    with pytest.raises(UsageError, match=r"mine\.py"):
        read_scenario(write(with_body(line)), "file")


def test_all_places_are_listed_in_their_order_with_where_they_are_and_found_by_name(tmp_path, monkeypatch):
    """The package, the user's own folder, other packages, ./scenarios."""
    for folder in ("built-in", "config/scenarios", "work/scenarios", "other"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setattr("tfmon.catalog.built_in_folder", lambda: tmp_path / "built-in")
    monkeypatch.setattr("tfmon.catalog.own_folder", lambda: tmp_path / "config/scenarios")
    monkeypatch.chdir(tmp_path / "work")
    package = tmp_path / "other-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Name: other")
    (package / "entry_points.txt").write_text("[tfmon.scenarios]\ntheirs = other.theirs\n")
    monkeypatch.syspath_prepend(tmp_path)
    files = ("built-in/small", "config/scenarios/mine", "other/theirs", "work/scenarios/local")
    # The second `small` cannot take the place of the built-in one.
    for file in (*files, "work/scenarios/small", "work/scenarios/_private"):
        (tmp_path / f"{file}.py").write_text(MINIMAL)
    (tmp_path / "work/scenarios/bad.py").write_text("def (")
    infos = {info.name: info.origin for info in list_scenarios()}
    assert list(infos) == ["small", "mine", "theirs", "local"]
    assert (infos["small"], infos["theirs"]) == ("built-in", "from other")
    assert "./scenarios" in infos["local"]
    assert {name: find_scenario(name).origin for name in infos} == infos


def test_a_new_file_is_a_scenario_of_that_name_and_is_not_written_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = scenarios.write("my-net").resolve()
    info = read_scenario(path, "file")
    assert (info.name, info.title[:6], info.examples, len(info.contrast)) == ("my-net", "My net", 10_000, 2)
    path.write_text("precious")
    with pytest.raises(UsageError, match="there already"):
        scenarios.write("my-net")
    assert path.read_text() == "precious"


@pytest.mark.parametrize("name", ["", "1st", "class", "../up", "a b", "naïve"])
def test_a_name_that_is_none_is_refused(name):
    with pytest.raises(UsageError, match="cannot be a scenario's name"):
        scenarios.write(name)
