"""Python runs this at its start in a lane that is a user's command.

It must cost nothing, change nothing that a script could notice, and never fail. It imports only loaded modules.
Imported by another name, for its finder, it does nothing.
"""

import os
import sys
from _thread import get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(os.path.dirname(HERE))


MACHINERY: "Any" = sys.modules["_frozen_importlib_external"]
LIBRARY = [os.path.dirname(os.__file__)]
LIBRARY += [entry for entry in sys.path if os.path.basename(entry) == "lib-dynload"]
"""The folders of the standard library."""
WATCHED = frozenset(("jax", "keras", "tensorflow", "tf_keras", "torch"))


def _plain_spec(name: str, path: "Any" = None, target: "Any" = None) -> "Any":
    for finder in sys.meta_path:
        find = None if isinstance(finder, Finder) else getattr(finder, "find_spec", None)
        spec = None if find is None else find(name, path, target)
        if spec is not None:
            return spec
    return None


def _library_spec(name: str) -> "Any":
    frozen = sys.modules["_frozen_importlib"]
    spec = frozen.BuiltinImporter.find_spec(name) or frozen.FrozenImporter.find_spec(name)
    spec = spec or MACHINERY.PathFinder.find_spec(name, LIBRARY)
    if spec is None:
        raise ModuleNotFoundError("No module named " + repr(name), name=name)
    return spec


def is_users() -> bool:
    """Return whether the script has its own `tfmon`."""
    spec = _plain_spec("tfmon")
    if spec is None:
        return False
    folders = list(spec.submodule_search_locations or ())
    if any(os.path.exists(os.path.join(folder, "hooks", "site", "sitecustomize.py")) for folder in folders):
        return False  # tfmon is installed for the script, too
    return bool(spec.origin) or any(name.endswith(".py") for folder in folders for name in os.listdir(folder))


def say(what: str, reason: str) -> None:
    """Report why something is not measured."""
    try:
        metrics, _, lock, token, _ = os.environ["TFMON_PIPES"].split(":")
        if os.pread(int(lock), len(token), 0).decode() != token:
            return
        import time

        text = (
            f'{{"v":2,"type":"NotMeasured","at_ns":{time.monotonic_ns()},"what":"{what}","reason":"{reason}"}}\n'
        )
        os.write(int(metrics), text.encode())
    except (OSError, ValueError):  # closed, or another lane's
        pass


class Finder:
    """Finds the monitor's `tfmon`, and watches libraries.

    While tfmon loads, names of the standard library are searched in `LIBRARY`, and the script's modules of such
    names are put aside.
    """

    def __init__(self) -> None:
        self.threads: set[int] = set()
        """Threads that load a module of tfmon."""
        self.private: dict[str, Any] = {}
        """Modules whose names the script has, too. Only tfmon sees them."""
        self.aside: dict[str, Any] = {}
        """The script's own modules of such names."""
        self.before: set[str] = set()
        self.stacks: Any = None
        """Not in `sys.modules`, which the script may read."""

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        """Return the spec of tfmon, or a watched library."""
        if path is None and get_ident() in self.threads and name in sys.stdlib_module_names:
            return _library_spec(name)
        if self.stacks is not None and name in self.stacks.STARTERS:
            self.stacks.sampler.start()
        if name == "tfmon" and not is_users():
            start = os.path.join(PACKAGE, "__init__.py")
            spec = MACHINERY.spec_from_file_location(name, start, submodule_search_locations=[PACKAGE])
        elif name in WATCHED or name.startswith("tfmon."):
            spec = _plain_spec(name, path, target)
        else:
            return None
        if spec is not None and spec.loader is not None and (name in WATCHED or spec.origin.startswith(PACKAGE)):
            spec.loader = (_HookedLoader if name in WATCHED else Loader)(spec.loader, self)
        return spec

    def load(self, loader: "Any", module: "Any") -> None:
        """Load a module of tfmon, then hide private modules."""
        if get_ident() in self.threads:
            loader.exec_module(module)
            return
        if not self.threads:
            specs = {name: getattr(sys.modules.get(name), "__spec__", None) for name in sys.stdlib_module_names}
            names = {name for name, spec in specs.items() if _is_elsewhere(spec)}
            self.aside = {
                name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in names
            }
            self.before = set(sys.modules)
            sys.modules.update(self.private)
        self.threads.add(get_ident())
        try:
            loader.exec_module(module)
        finally:
            self.threads.discard(get_ident())
            if not self.threads:
                new = set(sys.modules) - self.before
                library = new & sys.stdlib_module_names
                names = {name for name in library if name in self.aside or _is_elsewhere(_plain_spec(name))}
                for name in new:
                    if name.partition(".")[0] in names:
                        self.private[name] = sys.modules.pop(name)
                sys.modules.update(self.aside)


def _is_elsewhere(spec: "Any") -> bool:
    folder = os.path.dirname(getattr(spec, "origin", None) or "")
    return folder != "" and ("-packages" in folder or not folder.startswith(tuple(LIBRARY)))


class Loader:
    """Loads a module of tfmon."""

    def __init__(self, own: "Any", finder: Finder) -> None:
        self.own, self.finder = own, finder

    def __getattr__(self, name: str) -> "Any":
        return getattr(self.own, name)

    def create_module(self, spec: "Any") -> "Any":
        """Create the module."""
        return self.own.create_module(spec)

    def exec_module(self, module: "Any") -> None:
        """Load the module, and restore its own loader."""
        module.__spec__.loader = module.__loader__ = self.own
        self.finder.load(self.own, module)


class _HookedLoader(Loader):
    def exec_module(self, module: "Any") -> None:
        module.__spec__.loader = module.__loader__ = self.own
        try:
            self.own.exec_module(module)
        except BaseException as error:
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # without this frame
            raise
        try:
            if is_users():
                sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Finder)]
                say("steps", "the script has a module named tfmon of its own, so it is not watched")
                return
            from tfmon.hooks.install import loaded

            loaded(module)
        except Exception as error:  # noqa: BLE001 - the script must go on, whatever is wrong with this
            os.environ["TFMON_UNWATCHED"] = f"{module.__name__}: {error!r}"


def _load_alone(name: str) -> "Any":
    """The script may have a module `tfmon`."""
    path = os.path.join(PACKAGE, "hooks", name + ".py")
    module = type(sys)("_tfmon_" + name)
    module.__file__ = path
    MACHINERY.SourceFileLoader(module.__name__, path).exec_module(module)
    return module


def _note_uses() -> None:
    try:
        if os.environ.get("TFMON_LANES", "1") != "1":
            uses = _load_alone("used_files")
            sys.modules[uses.__name__] = uses
            uses.begin(is_users)
    except Exception as error:  # noqa: BLE001 - the script must go on, whatever is wrong with this
        os.environ["TFMON_UNWATCHED"] = f"uses: {error!r}"


def _sample_stacks(finder: Finder) -> None:
    try:
        if os.environ.get("TFMON_HOOKS", "").strip().lower() not in ("off", "0", "no", "false"):
            finder.stacks = _load_alone("stacks")
    except Exception as error:  # noqa: BLE001 - the script must go on, whatever is wrong with this
        os.environ["TFMON_UNWATCHED"] = f"stacks: {error!r}"


def _run_next_sitecustomize() -> None:
    """Run the script's own sitecustomize."""
    spec = MACHINERY.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = type(sys)("sitecustomize")
    module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _begin_lane() -> None:
    if not os.environ.get("TFMON_PIPES"):
        return
    if sys.version_info < (3, 10):  # noqa: UP036 - a script may run on any
        say("steps", f"Python {sys.version.split()[0]} runs the script: tfmon needs 3.10 or newer")
        return
    say("python", "")
    finder = Finder()
    sys.meta_path.insert(0, finder)
    _note_uses()
    _sample_stacks(finder)
    os.environ["TFMON_HOLDER"] = os.environ.get("TFMON_HOLDER") or str(os.getpid())
    try:  # noqa: SIM105 - contextlib is not loaded by now
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # as in a terminal
    except (AttributeError, OSError, ValueError):  # closed, or not a text file
        pass


if __name__ == "sitecustomize":
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != HERE]
    _begin_lane()
    _run_next_sitecustomize()
