"""Python runs this module at the start of a lane that is a user's command.

The module must be quick, unnoticeable to the script, and never fail. It imports only loaded modules. Under another
name, it does nothing.
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
MOST_TEXT = 300
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
        return False
    return bool(spec.origin) or any(name.endswith(".py") for folder in folders for name in os.listdir(folder))


def report_unmeasured(what: str, reason: str) -> None:
    """Report why something is not measured."""
    try:
        metrics, _, lock, token, _ = os.environ["TFMON_PIPES"].split(":")
        if os.pread(int(lock), len(token), 0).decode() != token:
            return
        import time

        reason = "".join(each if each.isprintable() and each not in '"\\' else "'" for each in reason[:MOST_TEXT])
        text = (
            f'{{"v":2,"type":"NotMeasured","at_ns":{time.monotonic_ns()},"what":"{what}","reason":"{reason}"}}\n'
        )
        os.write(int(metrics), text.encode())
    except (OSError, ValueError):
        pass


class Finder:
    """Finds the monitor's `tfmon`, and watches imports of libraries.

    While tfmon loads, the standard library's names are searched in `LIBRARY`, and the script's modules of these
    names are set aside.
    """

    def __init__(self) -> None:
        self.threads: set[int] = set()
        """Threads that load modules of tfmon."""
        self.private: dict[str, Any] = {}
        """Modules that only tfmon sees, because the script has modules of the same names."""
        self.aside: dict[str, Any] = {}
        """The script's modules of these names."""
        self.before: set[str] = set()
        self.stacks: Any = None
        """The module `stacks`, hidden from the script's `sys.modules`."""

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

    def __init__(self, loader: "Any", finder: Finder) -> None:
        self.wrapped_loader, self.finder = loader, finder

    def __getattr__(self, name: str) -> "Any":
        return getattr(self.wrapped_loader, name)

    def create_module(self, spec: "Any") -> "Any":
        """Create the module."""
        return self.wrapped_loader.create_module(spec)

    def exec_module(self, module: "Any") -> None:
        """Load the module, and restore the original loader."""
        module.__spec__.loader = module.__loader__ = self.wrapped_loader
        self.finder.load(self.wrapped_loader, module)


class _HookedLoader(Loader):
    def exec_module(self, module: "Any") -> None:
        module.__spec__.loader = module.__loader__ = self.wrapped_loader
        try:
            self.wrapped_loader.exec_module(module)
        except BaseException as error:
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            raise
        try:
            if is_users():
                sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Finder)]
                report_unmeasured("steps", "the script has a module named tfmon of its own, so it is not watched")
                return
            from tfmon.hooks.install import loaded

            loaded(module)
        except Exception as error:  # noqa: BLE001 - the script must go on, whatever is wrong with this
            report_unmeasured("steps", f"tfmon's hooks could not be loaded: {type(error).__name__}: {error}")


def _load_alone(name: str) -> "Any":
    """Load a module without the package, because the script may have a module `tfmon`."""
    path = os.path.join(PACKAGE, "hooks", name + ".py")
    module = type(sys)("_tfmon_" + name)
    module.__file__ = path
    MACHINERY.SourceFileLoader(module.__name__, path).exec_module(module)
    return module


def _watch(finder: Finder) -> None:
    try:
        if os.environ.get("TFMON_LANES", "1") != "1":
            uses = _load_alone("used_files")
            sys.modules[uses.__name__] = uses
            uses.begin(is_users)
        if os.environ.get("TFMON_HOOKS", "").strip().lower() not in ("off", "0", "no", "false"):
            finder.stacks = _load_alone("stacks")
    except Exception:  # noqa: BLE001 - the script must go on, whatever is wrong with this
        return


def _run_next_sitecustomize() -> None:
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
        report_unmeasured("steps", f"Python {sys.version.split()[0]} runs the script: tfmon needs 3.10 or newer")
        return
    report_unmeasured("python", "")
    finder = Finder()
    sys.meta_path.insert(0, finder)
    _watch(finder)
    os.environ["TFMON_HOLDER"] = os.environ.get("TFMON_HOLDER") or str(os.getpid())
    try:  # noqa: SIM105 - contextlib is not loaded by now
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # as in a terminal
    except (AttributeError, OSError, ValueError):
        pass


if __name__ == "sitecustomize":
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != HERE]
    _begin_lane()
    _run_next_sitecustomize()
