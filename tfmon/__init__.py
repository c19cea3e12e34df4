"""tfmon races TensorFlow training on the CPU and the GPU, live in a terminal, and says which is faster and why.

This module imports nothing: training children load the package in any interpreter with TensorFlow. Public names
are loaded at their first use.
"""

__all__ = [
    "CombinationResult", "Concern", "DeviceAbsentError", "Gate", "GpusBusyError", "LaneFailedError",
    "LaneResult", "RaceResult", "SweepResult", "TfmonError", "UsageError", "Watch", "diff", "race", "sweep",
    "watch",
]  # fmt: skip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tfmon.analysis.gate import Gate
    from tfmon.analysis.health import Concern
    from tfmon.analysis.result import LaneResult, RaceResult
    from tfmon.api.python import CombinationResult, LaneFailedError, SweepResult, diff, race, sweep
    from tfmon.api.watch import Watch, watch
    from tfmon.errors import DeviceAbsentError, GpusBusyError, TfmonError, UsageError
    from tfmon.version import __version__ as __version__
else:  # hides `__getattr__` from type checkers

    def __getattr__(name: str) -> object:
        if name == "__version__":
            import tfmon.version

            return tfmon.version.__version__
        if name not in __all__:
            raise AttributeError(f"module 'tfmon' has no attribute {name!r}")
        import tfmon.api.python

        return getattr(tfmon.api.python, name)


def load_ipython_extension(shell: object) -> None:
    """Add `%%tfmon` to IPython for `%load_ext tfmon`."""
    from tfmon.api.watch import add_magic

    add_magic(shell)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
