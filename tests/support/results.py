"""Results of races of tests."""

from typing import Any

from tfmon.analysis.analysis import Analysis
from tfmon.analysis.summarise import summarise
from tfmon.model.header import Header


def to_json(analysis: Analysis, header: Header | None = None) -> dict[str, Any]:
    return summarise(analysis, header).to_json()
