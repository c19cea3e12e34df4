"""The result of the acceptance on a GPU: every step with its outcome and figures, as Markdown and as JSON."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .agreement import Row

MINUTES = 8.0


@dataclass
class Step:
    """One step, which is one test."""

    name: str
    outcome: str = ""
    """`passed`, `failed` or `skipped`."""
    reason: str = ""
    """Why it failed or was skipped, in one line."""
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    """Result of the step in sentences with numbers."""
    rows: list[Row] = field(default_factory=list)
    """Readings compared."""


class Ledger:
    """Collects the steps, and counts the time that is left of the eight minutes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.facts: dict[str, str] = {}
        """The machine."""
        self.steps: dict[str, Step] = {}
        self._began = time.monotonic()

    def step(self, name: str) -> Step:
        """Return the step of a test, a new one at first."""
        return self.steps.setdefault(name, Step(name))

    @property
    def left_s(self) -> float:
        """Time that is left."""
        return MINUTES * 60 - self.took_s

    @property
    def took_s(self) -> float:
        """Time since the beginning."""
        return time.monotonic() - self._began

    @property
    def recording(self) -> Path:
        """Where the race is recorded that can be shipped."""
        return self.folder / "example.jsonl.gz"

    def write(self) -> Path:
        """Write report.md and report.json, and return the first."""
        self.folder.mkdir(parents=True, exist_ok=True)
        steps = [asdict(step) for step in self.steps.values()]
        told = {"facts": self.facts, "seconds": round(self.took_s, 1), "steps": steps}
        (self.folder / "report.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
        report = self.folder / "report.md"
        report.write_text("\n".join(self._lines()) + "\n", encoding="utf-8")
        return report

    def _lines(self) -> list[str]:
        outcomes = [step.outcome or NOT_REACHED for step in self.steps.values()]
        counted = ", ".join(f"{outcomes.count(one)} {one}" for one in (*_OUTCOMES, *{*outcomes} - {*_OUTCOMES}))
        lines = ["# tfmon on a real GPU", "", f"{counted}, in {self.took_s / 60:.1f} minutes.", ""]
        lines += [f"- {name}: {text}" for name, text in self.facts.items()]
        for step in self.steps.values():
            title = step.name.removeprefix("test_").replace("_", " ")
            lines += ["", f"## {title}: {step.outcome or NOT_REACHED}", ""]
            lines += [step.reason, ""] if step.reason else []
            lines += [f"- {note}" for note in step.notes]
            if step.rows:
                lines += ["", "| reading | tfmon | nvidia-smi | tolerance | |", "|---|---|---|---|---|"]
                lines += [
                    f"| {row.reading} | {row.ours} | {row.theirs} | {row.tolerance} | {row.verdict} |"
                    for row in step.rows
                ]
        if self.recording.exists() and {*outcomes} <= {"passed", "skipped"}:
            lines += ["", "## To ship the race", ""]
            name = self.recording.name
            lines.append(f"Copy `{name}` to `tfmon/recordings/example.jsonl.gz`, then `make picture`.")
        return lines


_OUTCOMES = ("passed", "failed", "skipped")
NOT_REACHED = "not reached"
