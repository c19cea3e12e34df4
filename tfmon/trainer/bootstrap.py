"""The script that a lane's interpreter runs.

It makes only the package `tfmon` importable: the interpreter keeps its own TensorFlow and NumPy.
"""

import importlib.util
import sys
from pathlib import Path


def main() -> None:
    """Import the package beside this file, and run the child."""
    package = Path(__file__).resolve().parent.parent
    sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).resolve().parent)]
    spec = importlib.util.spec_from_file_location(
        "tfmon", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tfmon"] = module
    spec.loader.exec_module(module)

    from tfmon.trainer.child import run

    run(*map(int, sys.argv[1:4]))


if __name__ == "__main__":
    main()
