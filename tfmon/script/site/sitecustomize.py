"""Python runs this at its start in a lane that is a user's command; see `tfmon.script`.

It must cost nothing, change nothing that a script could notice, and never fail. It imports only what Python has
loaded by now.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is slow to load
PACKAGE = os.path.dirname(os.path.dirname(HERE))  # noqa: PTH120


WATCHED = frozenset(("jax", "keras", "tensorflow", "tf_keras", "torch"))


class Finder:
    """Finds the monitor's `tfmon`, and watches the libraries that train once they are loaded."""

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":  # noqa: ANN401
        """Return the spec of `tfmon` or of a watched library; None for any other module."""
        if name == "tfmon":
            from importlib.util import spec_from_file_location

            start = os.path.join(PACKAGE, "__init__.py")  # noqa: PTH118
            return spec_from_file_location("tfmon", start, submodule_search_locations=[PACKAGE])
        if name not in WATCHED:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = Loader(spec.loader)
                return spec
        return None


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
            from tfmon.script.watching import loaded

            loaded(module)
        except Exception as error:  # noqa: BLE001 - the script must go on, whatever is wrong with this
            os.environ["TFMON_UNWATCHED"] = f"{module.__name__}: {error!r}"


def watch_uses() -> None:
    """In a race of several lanes, remember which files and ports the script uses."""
    try:
        if os.environ.get("TFMON_LANES", "1") != "1":
            from tfmon.script.uses import begin

            begin()
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


sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != HERE]  # noqa: PTH100
if sys.version_info >= (3, 10) and os.environ.get("TFMON_PIPES"):
    sys.meta_path.insert(0, Finder())
    watch_uses()
    os.environ["TFMON_HOLDER"] = os.environ.get("TFMON_HOLDER") or str(os.getpid())
run_next_sitecustomize()
