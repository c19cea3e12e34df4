"""Settings: their precedence, the messages about mistakes, and the output of `tfmon config`."""

import json
import stat

import pytest
from click.testing import CliRunner
from textual.theme import BUILTIN_THEMES

import tfmon as api
from tfmon.api import settings as config
from tfmon.api.settings import SETTINGS
from tfmon.cli.machines import config as command
from tfmon.errors import UsageError
from tfmon.lanes.remote.remote_host import Host
from tfmon.ui.app import MonitorApp


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "tfmon"


@pytest.fixture
def write(folder):
    def put(text: str) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "config.toml").write_text(text, "utf-8")
        config.read_file.cache_clear()

    return put


def told(*words: str) -> str:
    return CliRunner().invoke(command, words).output


def mistakes(write, text: str) -> list[str]:
    write(text)
    with pytest.raises(UsageError) as refused:
        config.config_file()
    return refused.value.message.split("\ntfmon: ")


class TestPrecedence:
    def test_without_a_word_everything_is_as_built_in(self):
        for setting in SETTINGS:
            assert config.resolve(setting.setting) == config.Resolved(setting.default, "default")
        defaults = MonitorApp.__init__.__kwdefaults__
        assert defaults["theme"] == config.resolve("theme").value
        assert defaults["theme"] in BUILTIN_THEMES

    def test_a_flag_goes_before_the_environment_that_before_the_file_that_before_the_default(
        self, write, monkeypatch
    ):
        write('theme = "nord"')
        assert config.resolve("theme") == config.Resolved("nord", "file")
        monkeypatch.setenv("TFMON_THEME", "gruvbox")
        assert config.resolve("theme") == config.Resolved("gruvbox", "environment")
        assert config.resolve("theme", "dracula") == config.Resolved("dracula", "flag")
        monkeypatch.setenv("TFMON_THEME", "")
        assert config.resolve("theme").source == "file"
        monkeypatch.setenv("TFMON_SLICE", "2")
        assert config.resolve("slice").value == 2.0

    def test_another_file_can_be_named_and_must_be_there(self, tmp_path, monkeypatch):
        monkeypatch.setenv("TFMON_CONFIG", str(tmp_path / "mine.toml"))
        with pytest.raises(UsageError, match=r"TFMON_CONFIG: .*mine\.toml is not there"):
            config.config_file()
        (tmp_path / "mine.toml").write_text("readonly = true")
        config.read_file.cache_clear()
        assert config.resolve("readonly") == config.Resolved(True, "file")

    def test_the_screen_gets_all_of_it(self, write):
        write('theme = "nord"\nmouse = false')
        screen = config.settled(config.ScreenOptions(readonly=True), "attach")
        assert (screen.theme, screen.charset, screen.mouse, screen.readonly) == ("nord", None, False, True)


class TestMistakes:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ('theme = "nrod"', "theme: 'nrod' is not one of ansi-dark,"),
            ("theme = 3", "theme: 3 is not one of ansi-dark,"),
            ('mouse = "yes"', "mouse: 'yes' is not true or false"),
            ("slice = nan", "slice: nan is not a time"),
            ("slice = true", "slice: True is not a time in seconds"),
            ('python = "/no/such/python"', "python: '/no/such/python' is not a program that can be run"),
            ('them = "nord"', "there is no setting 'them'; did you mean theme?"),
            ("zzz = 1", "there is no setting 'zzz'; there are theme, characters,"),
            ("[keys]\nquit = 'x'", "keys: 'x' is the key of xla and of quit"),
            ("host = 1", "there is no setting 'host'; did you mean hosts?"),
            ("keys = 1", "keys: this is a table; below [keys] write"),
            ("[keys]\npuase = 'f5'", "keys: there is no key 'puase'; did you mean pause?"),
            ("[keys]\npause = 5", "keys: pause: 5 is not a key such as"),
            ("[keys]\nbatch.up = '?'", "keys: '?' is the key of batch.up and of help"),
            ("hosts = 1", "hosts: these are tables; below [hosts.gpu2] write"),
            ("[hosts]\ngpu2 = 1", "hosts.gpu2: this is a table; below it write"),
            ("[hosts.gpu2]\npyhton = 'x'", "hosts.gpu2: there is no 'pyhton'; there are run and python"),
            ("[hosts.gpu2]\npython = 3", "hosts.gpu2: python: 3 is not text in quotes"),
            ("[hosts.gpu2]\nrun = 'srun'", "hosts.gpu2: run: 'srun' is not a list of words"),
            ("[hosts.gpu2]\nrun = []", "hosts.gpu2: run: [] is not a list of words"),
            ("[hosts.gpu2]\nrun = ['srun', 1]", "hosts.gpu2: run: ['srun', 1] is not a list of words"),
            ("[hosts.-oProxyCommand]", "hosts.-oProxyCommand: '-oProxyCommand' is not a host: a name does not"),
        ],
    )
    def test_a_mistake_is_one_line_with_the_file_the_key_and_what_is_allowed(self, write, folder, text, said):
        (line,) = mistakes(write, text)
        assert line.startswith(f"{folder / 'config.toml'}: {said}")
        assert "\n" not in line

    @pytest.mark.parametrize("text", ["theme = [", "theme = nord", '"\ud800'])
    def test_what_is_no_toml_is_refused_with_the_place(self, folder, text):
        folder.mkdir()
        (folder / "config.toml").write_bytes(text.encode("utf-8", "surrogatepass"))
        said = r"config\.toml (is not TOML: .*(line 1|end of document)|.*cannot be read: it is not UTF-8)"
        with pytest.raises(UsageError, match=said):
            config.config_file()

    def test_a_file_that_may_not_be_read_is_refused(self, folder):
        (folder / "config.toml").mkdir(parents=True)
        with pytest.raises(UsageError, match="cannot be read: Is a directory"):
            config.config_file()

    @pytest.mark.parametrize(
        ("setting", "argument", "wrong", "allowed"),
        [
            ("slice", "slice_s", 0.1, "a time in seconds from 0.2 to 60"),
            ("mode", "mode", "both", "one of turns, concurrent"),
        ],
    )
    def test_a_wrong_value_is_refused_alike_by_every_caller(
        self, tfmon, write, monkeypatch, setting, argument, wrong, allowed
    ):
        by_flag = tfmon("race", "small-dense", f"--{setting}", wrong)
        assert by_flag.code == 2 and f"Invalid value for '--{setting}': '{wrong}' is not {allowed}" in by_flag.err
        with pytest.raises(UsageError, match=f"{argument}={wrong!r} is not possible · it is {allowed}"):
            api.race("small-dense", **{argument: wrong})
        (by_file,) = mistakes(write, f"{setting} = {wrong!r}")
        assert by_file.endswith(f"{setting}: {wrong!r} is not {allowed}")
        write("")
        monkeypatch.setenv(f"TFMON_{setting.upper()}", str(wrong))
        assert f"TFMON_{setting.upper()}: '{wrong}' is not {allowed}" in tfmon("race", "small-dense").err

    def test_a_wrong_variable_is_named(self, monkeypatch):
        monkeypatch.setenv("TFMON_MOUSE", "perhaps")
        with pytest.raises(UsageError, match="TFMON_MOUSE: 'perhaps' is not true or false"):
            config.resolve("mouse")


class TestCommand:
    def test_tells_the_place_the_values_and_their_sources(self, write, folder, monkeypatch):
        write('theme = "nord"\n')
        monkeypatch.setenv("TFMON_MOUSE", "off")
        lines = told("--readonly").splitlines()
        assert lines[0] == str(folder / "config.toml")
        rows = {line.split()[0]: line.split()[1:] for line in lines if line}
        assert rows["theme"] == ['"nord"', "file"]
        assert rows["mouse"] == ["false", "environment"]
        assert rows["readonly"] == ["true", "flag"]
        assert rows["slice"] == ["0.5", "default"]

    def test_tells_how_hosts_are_reached(self, write):
        write('[hosts.a100]\nrun = ["srun", "-p", "a 100"]\npython = "~/tf/bin/python"\n[hosts."me@gpu2"]\n')
        lines = told().splitlines()
        first, second = lines.index("[hosts.a100]"), lines.index("[hosts.me@gpu2]")
        assert lines[first + 1].split(None, 1) == ["run", "srun -p 'a 100'"]
        assert lines[second + 1].split() == ["run", "ssh"]
        assert lines[first + 2].split() == ["python", "~/tf/bin/python"]
        hosts = json.loads(told("--json"))["hosts"]
        assert hosts["a100"] == {"run": ["srun", "-p", "a 100"], "python": "~/tf/bin/python"}
        assert hosts["me@gpu2"] == {"run": None, "python": ""}
        assert config.find_host("a100") == Host("a100", ("srun", "-p", "a 100"), "~/tf/bin/python")
        assert config.find_host("gpu9") == Host("gpu9"), "by ssh"

    def test_tells_it_to_programs_with_the_mistakes(self, write):
        write('theme = "nord"\nzzz = 1\nmouse = 3\n')
        done = CliRunner().invoke(command, ["--json"])
        report = json.loads(done.stdout)
        assert report["settings"]["theme"] == {"value": "nord", "source": "file"}
        assert done.exit_code == 2
        for mistake, name in zip(report["mistakes"], ("zzz", "mouse"), strict=True):
            assert name in mistake

    def test_init_writes_a_private_file_that_changes_nothing_and_never_one_over_it(self, folder):
        path = folder / "config.toml"
        assert f"{path}   (not there; tfmon config --init writes it)" in told()
        assert not folder.exists()
        config.read_file.cache_clear()
        assert told("--init").startswith(f"wrote {path}")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert config.read_file(path) == config.ConfigFile(path, exists=True)
        before = path.read_text()
        done = CliRunner().invoke(command, ["--init"])
        assert isinstance(done.exception, UsageError) and "is there already" in done.exception.message
        assert path.read_text() == before

    def test_what_init_writes_is_right_without_its_comment_signs(self, folder):
        told("--init")
        path = folder / "config.toml"
        lines = path.read_text().splitlines()
        lines = [line[1:] if line.startswith("#") and line[1:2] != " " else line for line in lines]
        path.write_text("\n".join(lines))
        config.read_file.cache_clear()
        found = config.config_file()
        assert found.values == {setting.setting: setting.default for setting in SETTINGS}
        assert found.hosts == {"gpu2": Host("gpu2", ("ssh", "-p", "2222", "gpu2"), "~/tf/bin/python")}
