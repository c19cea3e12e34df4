"""Cases of a test that only `make test-all` runs."""

from collections.abc import Iterable
from typing import Any

import pytest


def slow_except(quick: object, cases: Iterable[Any]) -> list[Any]:
    """Mark every case but one as slow. The quick one shows that it works, the others that it works each time."""
    return [pytest.param(case, marks=() if case == quick else pytest.mark.slow) for case in cases]
