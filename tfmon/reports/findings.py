"""Results of the doctor, hosts and claims."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from tfmon import units
from tfmon.analysis.result import link_figures
from tfmon.analysis.series_tables import ratio_json
from tfmon.doctor.checks import BROKEN, FAIRNESS, GPU, NOT_APPLICABLE, OK, TENSORFLOW, WARNING
from tfmon.doctor.diagnosis import Diagnosis, Result
from tfmon.lanes.remote.connection import Surveyed
from tfmon.lanes.remote.ray import RayNode
from tfmon.lanes.remote.trouble import other_python
from tfmon.model import codec
from tfmon.model.race import Claim, ClaimResult, Machine
from tfmon.reports import (
    QUIET,
    VERDICT,
    Block,
    Item,
    Items,
    Lines,
    Note,
    Report,
    Section,
    Table,
    common_keys,
    one_line,
    text,
)
from tfmon.reports.text import Paint

_HEADINGS = {TENSORFLOW: "TensorFlow", GPU: "GPU", FAIRNESS: "A fair race"}
_LABELS = {OK: "✓ ok", WARNING: "! warning", BROKEN: "✗ broken", NOT_APPLICABLE: "– n/a"}


def to_text(report: Diagnosis, *, verbose: bool = False, paint: Paint = text.unpainted) -> str:
    """Return the doctor's report; `verbose` adds evidence and inapplicable checks."""
    return text.write(describe(report, verbose=verbose), last=True, paint=paint)


def describe(report: Diagnosis, *, verbose: bool = False) -> Report:
    """Return the doctor's findings in sections."""
    sections = []
    for subject, heading in _HEADINGS.items():
        results = report.results_about(subject)
        shown = (result for result in results if verbose or result.finding.status != NOT_APPLICABLE)
        sections.append(Section(heading, (Items([_item(result, verbose) for result in shown]),)))
    answer, passed = [Note(one_line(report.answer), VERDICT)], report.count(NOT_APPLICABLE)
    if passed and not verbose:
        rest = f"{passed} of {len(report.results)} checks do not apply here"
        answer.insert(0, Note(f"{rest}; `tfmon doctor -v` shows them, and the evidence."))
    return Report("What the doctor finds", sections, answer)


def findings(report: Diagnosis | None) -> Sequence[Block]:
    """Return the doctor's warnings for a race."""
    if report is None:
        return [Note("The doctor did not examine it: this report was written on another machine.", QUIET)]
    obstacles = [result for result in report.results if result.finding.status in (WARNING, BROKEN)]
    if not obstacles:
        return [Note("The doctor finds nothing that slows a race down.")]
    heading = Note("What the doctor finds as this report is written:")
    return [heading, Items([_item(obstacle, verbose=False) for obstacle in obstacles])]


def _item(result: Result, verbose: bool) -> Item:
    finding = result.finding
    rows = (("expected", finding.expected), ("fix", finding.fix))
    details = [f"{name}: {one_line(value)}" for name, value in rows if value]
    details += [f"seen: {one_line(line)}" for line in finding.evidence if line and verbose]
    status, title = finding.status, result.check.title
    return Item(_LABELS[status], title, one_line(finding.found), tuple(details), status)


def to_json(report: Diagnosis) -> dict[str, Any]:
    """Return the doctor's report as JSON."""
    facts, obstacle = report.facts, report.no_gpu
    return {
        **common_keys(),
        "python": facts.python.executable,
        "tensorflow": (facts.wheel.version or None) if facts.wheel else None,
        "imported": facts.imported.works if facts.imported else None,
        "gpus": list(facts.imported.gpus) if facts.imported else None,
        "exit_code": report.exit_code,
        "answer": report.answer,
        "no_gpu": None if obstacle is None else {"reason": obstacle.reason, "fix": obstacle.hint},
        "seconds": round(facts.seconds, 3),
        "checks": [
            {
                "id": check.id,
                "title": check.title,
                "subject": check.subject,
                "status": finding.status,
                "found": finding.found,
                "expected": finding.expected,
                "fix": finding.fix,
                "evidence": [line for line in finding.evidence if line],
                "source": check.source,
            }
            for check, finding in report.results
        ],
    }


_HEAD = ("host", "Python", "TensorFlow", "GPUs", "cores", "memory", "round trip", "clock offset")
_NODE_HEAD = ("node", "address", "CPUs", "GPUs", "kind", "memory")


def hosts_to_text(surveys: Sequence[Surveyed], this_machine: Machine) -> str:
    """Return a table of the hosts, and notes."""
    usable = [survey for survey in surveys if not survey.error]
    table = Table([_HEAD, *map(_host_row, usable)], left=(0, 1, 2, 3, 7)) if usable else None
    lost = []
    for survey in (survey for survey in surveys if survey.error):
        lost.append(f"{survey.host.name} cannot be used: {one_line(survey.error)}")
        lost += [f"  {one_line(survey.hint)}"] if survey.hint else []
    notes = list(_notes(usable, this_machine))
    return text.write(Report("Hosts", (Section("", (table, Lines(lost))), Section("", (Lines(notes),)))))


def _host_row(host: Surveyed) -> tuple[str, ...]:
    machine, link = host.machine, host.link
    fewer = f" of {machine.cores}" if machine.usable_cores < machine.cores else ""
    return (
        host.host.name,
        one_line(machine.python) or "unknown",
        one_line(machine.tensorflow) or "none",
        _gpus(machine),
        units.cores(machine.usable_cores) + fewer,
        units.memory(machine.memory_bytes),
        "n/a" if link is None else units.milliseconds(link.round_trip_ns / 1e6),
        "n/a" if link is None else f"{units.offset(link.offset_ns)} ± {units.milliseconds(link.error_ns / 1e6)}",
    )


def _gpus(machine: Machine) -> str:
    models = list(dict.fromkeys(machine.gpus))
    counts = [machine.gpus.count(model) for model in models]
    names = [f"{count} × {model}" if count > 1 else model for model, count in zip(models, counts, strict=True)]
    return one_line(", ".join(names)) or "none"


def _notes(usable: Sequence[Surveyed], this_machine: Machine) -> Iterator[str]:
    for host in usable:
        if not host.machine.tensorflow:
            yield f"{host.host.name}: {one_line(host.python)} has no TensorFlow; {other_python(host.host)}"
        if host.machine.no_gpu:
            yield f"{host.host.name}: no GPU: {one_line(host.machine.no_gpu)}"
    by_boot: dict[str, list[str]] = {}
    for host in usable:
        by_boot.setdefault(host.machine.boot, []).append(host.host.name)
    for boot, names in by_boot.items():
        if boot and boot == this_machine.boot:
            yield f"{' and '.join(names)}: this machine; lanes here and there take turns"
        elif boot and len(names) > 1:
            yield f"{' and '.join(names)}: one machine; their lanes take turns"


def hosts_to_json(surveys: Sequence[Surveyed], this_machine: Machine) -> dict[str, Any]:
    """Return the hosts as JSON."""
    hosts = []
    for survey in surveys:
        machine, known = survey.machine, {"host": survey.host.name, "reachable": not survey.error}
        if survey.error:
            hosts.append({**known, "error": survey.error, "hint": survey.hint or None})
            continue
        facts = {name: None if value == "" else value for name, value in codec.to_json(machine).items()}
        is_here = bool(machine.boot) and machine.boot == this_machine.boot
        own = {"is_this_machine": is_here, "python_path": survey.python}
        hosts.append({**known, **facts, **own, **link_figures(survey.link)})
    return {**common_keys(), "hosts": hosts}


def nodes_to_text(nodes: Sequence[RayNode]) -> str:
    """Return a table of the nodes."""
    table = Table([_NODE_HEAD, *map(_node, nodes)], left=range(5))
    return text.write(Report("Nodes of the Ray cluster", (Section("", (table,)),)))


def _node(node: RayNode) -> tuple[str, ...]:
    return (
        one_line(node.name if node.name != node.address else node.hostname or node.name),
        one_line(node.address),
        _free(node.free_cpus, node.cpus),
        _free(node.free_gpus, node.gpus),
        one_line(", ".join(node.kinds)) or ("unknown" if node.gpus else ""),
        units.memory(node.memory_bytes),
    )


def _free(free: float | None, total: float) -> str:
    if not total:
        return "none"
    return f"{total:g}" if free is None else f"{free:g} of {total:g} free"


def nodes_to_json(nodes: Sequence[RayNode]) -> dict[str, Any]:
    """Return the nodes as JSON."""
    return {**common_keys(), "nodes": codec.to_json(nodes)}


def claims_to_json(results: Sequence[ClaimResult], interrupted: str = "") -> dict[str, Any]:
    """Return all outcomes as JSON."""
    return {
        **common_keys(),
        "claims": [
            {
                "scenario": result.scenario,
                **{
                    part: getattr(result.claim, part) or None
                    for part in ("id", "source", "says", "first", "second")
                },
                "at_least": result.claim.at_least if result.claim.first else None,
                "at_most": result.claim.at_most,
                "outcome": result.outcome,
                **ratio_json("ratio", result.ratio),
                "pairs": result.ratio.pairs if result.ratio else None,
                "reason": result.reason or None,
            }
            for result in results
        ],
        "interrupted": interrupted or None,
    }


def claims_to_text(results: Sequence[ClaimResult], interrupted: str = "") -> str:
    """Return the claims by scenario."""
    sections = [
        Section(scenario, (Items([_claim_item(claim) for claim in claims]),))
        for scenario, claims in itertools.groupby(results, lambda result: result.scenario)
    ]
    counts = Counter(result.outcome for result in results)
    total = ", ".join(f"{amount} {outcome}" for outcome, amount in sorted(counts.items()))
    summary = f"{units.several(len(results), 'claim')}: {total}" if results else "no claim was measured"
    ended = [Note(interrupted)] if interrupted else []
    return text.write(Report("Claims about scenarios", sections, [Note(summary, VERDICT), *ended]), last=True)


def _claim_item(result: ClaimResult) -> Item:
    claim, ratio = result.claim, result.ratio
    details = [result.reason] if result.reason else []
    if ratio is not None:
        factor, interval = units.ratio_in(ratio.value, ratio.low, ratio.high)
        details.insert(0, f"{prediction(claim)}: measured {factor} ({interval}, {ratio.pairs} pairs)")
    return Item(result.outcome, claim.id, claim.says, tuple(details))


def prediction(claim: Claim) -> str:
    """Return such as `cpu,graph=on > cpu,graph=off`."""
    if not claim.first:
        return ""
    if claim.at_most is not None:
        return f"{claim.first} ≈ {claim.second} (within {units.ratio(claim.at_most)})"
    factor = f" by {units.ratio(claim.at_least)}" if claim.at_least > 1 else ""
    return f"{claim.first} > {claim.second}{factor}"
