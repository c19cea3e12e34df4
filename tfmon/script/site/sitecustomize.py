"""Python runs this at its start in a lane that is a user's command; see `tfmon.script`.

It must cost nothing, change nothing that a script could notice, and never fail. It imports only what Python has
loaded by now. Imported by another name, for its finder, it does nothing.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is slow to load
PACKAGE = os.path.dirname(os.path.dirname(HERE))  # noqa: PTH120


WATCHED = frozenset(("jax", "keras", "tensorflow", "tf_keras", "torch"))


def monitors() -> "Any":  # noqa: ANN401
    """Return the spec of the monitor's `tfmon`."""
    from importlib.util import spec_from_file_location

    start = os.path.join(PACKAGE, "__init__.py")  # noqa: PTH118
    return spec_from_file_location("tfmon", start, submodule_search_locations=[PACKAGE])


def is_users(spec: "Any") -> bool:  # noqa: ANN401
    """Return whether what the script would import as `tfmon` is its own: a module, or a folder with modules."""
    if spec is None:
        return False
    folders = list(spec.submodule_search_locations or ())
    if any(os.path.exists(os.path.join(folder, "script", "site", "sitecustomize.py")) for folder in folders):  # noqa: PTH110, PTH118
        return False  # tfmon is installed for the script, too
    return bool(spec.origin) or any(name.endswith(".py") for folder in folders for name in os.listdir(folder))  # noqa: PTH208


def say(what: str, reason: str) -> None:
    """Report why something of a script is not measured; the reason is empty where all is well."""
    try:
        metrics, _, lock, token, _ = os.environ["TFMON_PIPES"].split(":")
        if os.pread(int(lock), 64, 0).decode() != token:
            return
        import time

        text = (
            f'{{"v":2,"type":"NotMeasured","at_ns":{time.monotonic_ns()},"what":"{what}","reason":"{reason}"}}\n'
        )
        os.write(int(metrics), text.encode())
    except (OSError, ValueError):  # closed, or another lane's
        pass


class Finder:
    """Finds the monitor's `tfmon`, and watches the libraries that train once they are loaded."""

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":  # noqa: ANN401
        """Return the spec of `tfmon` or of a watched library; None for any other module."""
        if name not in WATCHED and name != "tfmon":
            return None
        finds = (getattr(finder, "find_spec", None) for finder in sys.meta_path if finder is not self)
        specs = (find(name, path, target) for find in finds if find is not None)
        spec = next((spec for spec in specs if spec is not None), None)
        if name == "tfmon":
            return spec if is_users(spec) else monitors()
        if spec is not None and spec.loader is not None:
            spec.loader = Loader(spec.loader)
        return spec


class Loader:
    """Loads a module with its own loader, then watches it."""

    def __init__(self, own: "Any") -> None:  # noqa: ANN401
        self.own = own

    def __getattr__(self, name: str) -> "Any":  # noqa: ANN401
        return getattr(self.own, name)

    def create_module(self, spec: "Any") -> "Any":  # noqa: ANN401
        """Create the module."""
        return self.own.create_module(spec)

    def exec_module(self, module: "Any") -> None:  # noqa: ANN401
        """Load the module, and leave its own loader in its place."""
        module.__spec__.loader = module.__loader__ = self.own
        self.own.exec_module(module)
        try:
            from importlib.util import find_spec

            if is_users(find_spec("tfmon")):
                sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Finder)]
                say("steps", "the script has a module named tfmon of its own, so it is not watched")
                return
            from tfmon.script.watching import loaded

            loaded(module)
        except Exception as error:  # noqa: BLE001 - the script must go on, whatever is wrong with this
            os.environ["TFMON_UNWATCHED"] = f"{module.__name__}: {error!r}"


def watch_uses() -> None:
    """In a race of several lanes, remember which files and ports the script uses."""
    try:
        if os.environ.get("TFMON_LANES", "1") != "1":
            # Not as a part of `tfmon`: the script may have a module of that name.
            path = os.path.join(PACKAGE, "script", "uses.py")  # noqa: PTH118
            module = type(sys)("_tfmon_uses")
            sys.modules["_frozen_importlib_external"].SourceFileLoader("_tfmon_uses", path).exec_module(module)
            sys.modules["_tfmon_uses"] = module
            module.begin()
    except Exception as error:  # noqa: BLE001 - the script must go on, whatever is wrong with this
        os.environ["TFMON_UNWATCHED"] = f"uses: {error!r}"


def run_next_sitecustomize() -> None:
    """Run the sitecustomize that the script would have had without this one."""
    machinery: Any = sys.modules["_frozen_importlib_external"]
    spec = machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = type(sys)("sitecustomize")
    module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def watch_script() -> None:
    """Watch what the script will load, if it runs in a lane."""
    if not os.environ.get("TFMON_PIPES"):
        return
    if sys.version_info < (3, 10):  # noqa: UP036 - a script may run on any
        say("steps", f"Python {sys.version.split()[0]} runs the script: tfmon needs 3.10 or newer")
        return
    say("python", "")
    sys.meta_path.insert(0, Finder())
    watch_uses()
    os.environ["TFMON_HOLDER"] = os.environ.get("TFMON_HOLDER") or str(os.getpid())
    try:  # noqa: SIM105 - contextlib is not loaded by now
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # as in a terminal
    except (AttributeError, OSError, ValueError):  # closed, or not a text file
        pass


if __name__ == "sitecustomize":
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != HERE]  # noqa: PTH100
    watch_script()
    run_next_sitecustomize()
