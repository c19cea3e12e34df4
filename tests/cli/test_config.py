"""Settings: their precedence, the messages about mistakes, and the output of `tfmon config`."""

import json
import stat

import pytest

import tfmon as api
from tfmon.api import settings as config
from tfmon.api.settings import SETTINGS
from tfmon.errors import UsageError
from tfmon.lanes.remote.remote_host import Host


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


def mistakes(write, text: str) -> list[str]:
    write(text)
    with pytest.raises(UsageError) as refused:
        config.config_file()
    return refused.value.message.split("\ntfmon: ")


class TestPrecedence:
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
            ('mouse = "yes"', "mouse: 'yes' is not true or false"),
            ("slice = nan", "slice: nan is not a time"),
            ('python = "/no/such/python"', "python: '/no/such/python' is not a program that can be run"),
            ('them = "nord"', "there is no setting 'them'; did you mean theme?"),
            ("zzz = 1", "there is no setting 'zzz'; there are theme, characters,"),
            ("[keys]\nquit = 'x'", "keys: 'x' is the key of xla and of quit"),
            ("keys = 1", "keys: this is a table; below [keys] write"),
            ("[keys]\npuase = 'f5'", "keys: there is no key 'puase'; did you mean pause?"),
            ("[keys]\nbatch.up = '?'", "keys: '?' is the key of batch.up and of help"),
            ("hosts = 1", "hosts: these are tables; below [hosts.gpu2] write"),
            ("[hosts]\ngpu2 = 1", "hosts.gpu2: this is a table; below it write"),
            ("[hosts.gpu2]\npyhton = 'x'", "hosts.gpu2: there is no 'pyhton'; there are run and python"),
            ("[hosts.gpu2]\npython = 3", "hosts.gpu2: python: 3 is not text in quotes"),
            ("[hosts.gpu2]\nrun = ['srun', 1]", "hosts.gpu2: run: ['srun', 1] is not a list of words"),
            ("[hosts.-oProxyCommand]", "hosts.-oProxyCommand: '-oProxyCommand' is not a host: a name does not"),
        ],
    )
    def test_a_mistake_is_one_line_with_the_file_the_key_and_what_is_allowed(self, write, folder, text, said):
        (line,) = mistakes(write, text)
        assert line.startswith(f"{folder / 'config.toml'}: {said}")
        assert "\n" not in line

    @pytest.mark.parametrize("text", ["theme = [", "theme = nord", '"\ud800', None])
    def test_what_is_no_toml_is_refused_with_the_place(self, folder, text):
        path = folder / "config.toml"
        path.mkdir(parents=True)
        if text is not None:
            path.rmdir()
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
        said = r"config\.toml (is not TOML: .*(line 1|end of document)|.*cannot be read: (it is not UTF|Is a dir))"
        with pytest.raises(UsageError, match=said):
            config.config_file()

    def test_a_wrong_value_is_refused_alike_by_every_caller(self, tfmon, write, monkeypatch):
        allowed = "a time in seconds from 0.2 to 60"
        by_flag = tfmon("race", "small-dense", "--slice", 0.1)
        assert by_flag.code == 2 and f"Invalid value for '--slice': '0.1' is not {allowed}" in by_flag.err
        with pytest.raises(UsageError, match=f"slice_s=0.1 is not possible · it is {allowed}"):
            api.race("small-dense", slice_s=0.1)
        assert mistakes(write, "slice = 0.1")[0].endswith(f"slice: 0.1 is not {allowed}")
        write("")
        monkeypatch.setenv("TFMON_SLICE", "0.1")
        assert f"TFMON_SLICE: '0.1' is not {allowed}" in tfmon("race", "small-dense").err


class TestCommand:
    def test_tells_the_place_the_values_and_their_sources(self, tfmon, write, folder, monkeypatch):
        write('theme = "nord"\n')
        monkeypatch.setenv("TFMON_MOUSE", "off")
        lines = tfmon("config", "--readonly").out.splitlines()
        assert lines[0] == str(folder / "config.toml")
        rows = {line.split()[0]: line.split()[1:] for line in lines if line}
        assert rows["theme"] == ['"nord"', "file"]
        assert rows["mouse"] == ["false", "environment"]
        assert rows["readonly"] == ["true", "flag"]
        assert rows["slice"] == ["0.5", "default"]

    def test_tells_how_hosts_are_reached(self, tfmon, write):
        write('[hosts.a100]\nrun = ["srun", "-p", "a 100"]\npython = "~/tf/bin/python"\n[hosts."me@gpu2"]\n')
        lines = tfmon("config").out.splitlines()
        first, second = lines.index("[hosts.a100]"), lines.index("[hosts.me@gpu2]")
        assert lines[first + 1].split(None, 1) == ["run", "srun -p 'a 100'"]
        assert lines[second + 1].split() == ["run", "ssh"]
        assert lines[first + 2].split() == ["python", "~/tf/bin/python"]
        hosts = json.loads(tfmon("config", "--json").out)["hosts"]
        assert hosts["a100"] == {"run": ["srun", "-p", "a 100"], "python": "~/tf/bin/python"}
        assert hosts["me@gpu2"] == {"run": None, "python": ""}
        assert config.find_host("a100") == Host("a100", ("srun", "-p", "a 100"), "~/tf/bin/python")
        assert config.find_host("gpu9") == Host("gpu9"), "by ssh"

    def test_tells_it_to_programs_with_the_mistakes(self, tfmon, write):
        write('theme = "nord"\nzzz = 1\nmouse = 3\n')
        done = tfmon("config", "--json")
        report = json.loads(done.out)
        assert report["settings"]["theme"] == {"value": "nord", "source": "file"}
        assert done.code == 2
        for mistake, name in zip(report["mistakes"], ("zzz", "mouse"), strict=True):
            assert name in mistake

    def test_init_writes_a_private_file_once_which_is_right_without_its_comment_signs(self, tfmon, folder):
        path = folder / "config.toml"
        assert f"{path}   (not there; tfmon config --init writes it)" in tfmon("config").out
        assert not folder.exists()
        config.read_file.cache_clear()
        assert tfmon("config", "--init").out.startswith(f"wrote {path}")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert config.read_file(path) == config.ConfigFile(path, exists=True)
        before = path.read_text()
        done = tfmon("config", "--init")
        assert done.code == 2 and "is there already" in done.err
        assert path.read_text() == before
        lines = [line[1:] if line.startswith("#") and line[1:2] != " " else line for line in before.splitlines()]
        path.write_text("\n".join(lines))
        config.read_file.cache_clear()
        found = config.config_file()
        assert found.values == {setting.setting: setting.default for setting in SETTINGS}
        assert found.hosts == {"gpu2": Host("gpu2", ("ssh", "-p", "2222", "gpu2"), "~/tf/bin/python")}
