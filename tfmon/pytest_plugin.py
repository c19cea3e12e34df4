"""A fixture for pytest: `tfmon_race` races in a test, and compares the result with a baseline.

pytest always loads this module, so it imports tfmon only in a race.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tfmon.analysis.result import RaceResult

SAVE = "--tfmon-save"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes baselines."""
    parser.getgroup("tfmon").addoption(
        SAVE, action="store_true", help="Overwrite the baselines of tfmon_race instead of comparing with them."
    )


class Racer:
    """The value of the fixture `tfmon_race`, which races when called."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request

    def __call__(self, *args: Any, **options: Any) -> RaceResult:  # noqa: ANN401 - those of tfmon.race
        """Race as `tfmon.race` does, by default without a recording. A failed test shows the table.

        Without the GPU, the test is skipped. If a lane fails, the test fails. A relative path of a scenario starts
        at the folder of the test.
        """
        import tfmon
        from tfmon.errors import DeviceAbsentError

        if args and isinstance(args[0], str | os.PathLike) and Path(args[0]).suffix == ".py":
            args = (self._request.path.parent / args[0], *args[1:])
        reason = ""
        try:
            result = tfmon.race(*args, **{"record": False, "progress": False, **options})
        except DeviceAbsentError as error:
            pytest.skip(error.line)
        except tfmon.LaneFailedError as failed:
            result, reason = failed.result, failed.message
        self._show(str(result))
        if reason:
            pytest.fail(reason, pytrace=False)
        return result

    def hold(self, result: RaceResult, baseline: str | os.PathLike[str], *, slower_than: float = 0.05) -> None:
        """Fail the test if a lane is slower than in a baseline, and skip the test if that is unknown.

        With `--tfmon-save` the result becomes the baseline.

        Args:
            result: The race.
            baseline: The file of a JSON result. A relative path starts at the folder of the test.
            slower_than: A lane is slower if the throughput fell by more than this share.
        """
        import tfmon

        path = self._request.path.parent / baseline
        if self._request.config.getoption(SAVE):
            path.parent.mkdir(parents=True, exist_ok=True)
            result.save(path, force=True)
            return
        if not path.is_file():
            pytest.fail(f"there is no baseline {path}; pytest {SAVE} writes it", pytrace=False)
        gate = tfmon.diff(Path(path), result, slower_than=slower_than)
        self._show(gate.text)
        if gate.kind == "slower":
            pytest.fail(gate.text, pytrace=False)
        if gate.kind == "cannot tell":
            pytest.skip(gate.text.replace("\n", " "))

    def _show(self, text: str) -> None:
        self._request.node.add_report_section("call", "tfmon", text)
        self._request.node.user_properties.append(("tfmon", text))  # for the report of JUnit


@pytest.fixture
def tfmon_race(request: pytest.FixtureRequest) -> Racer:
    """Race scenarios without a screen; `tfmon_race.hold(result, "baseline.json")` compares with a baseline."""
    return Racer(request)
