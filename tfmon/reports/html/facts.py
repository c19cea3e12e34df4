"""What stands behind the figures of a race: method, settings, machine, versions, doctor."""

from __future__ import annotations

from collections.abc import Iterator

from tfmon import units
from tfmon.analysis.contention import contention
from tfmon.analysis.verdict import KIND_TEXTS
from tfmon.doctor.checks import BROKEN, WARNING
from tfmon.doctor.report import Report
from tfmon.model.knobs import show
from tfmon.model.race import TURNS
from tfmon.reports import view_lines
from tfmon.reports.html.gather import Run
from tfmon.reports.html.writer import NOTHING, Html, Writer

DASH = "–"


def method(writer: Writer, run: Run) -> Html:
    """Return how the lanes shared the machine, what counts, and what the interval is made for."""
    return writer.lines(list(_method(run)))


def _method(run: Run) -> Iterator[str]:
    snapshot, verdict, names = run.end, run.found.verdict, run.names
    race = snapshot.race
    if len(run.lanes) > 1 and race.mode == TURNS:
        rounds = len({one.round for lane in run.lanes for one in lane.slices})
        yield (
            f"The lanes took turns: one trained at a time, in slices, {rounds} rounds since a knob or the mode "
            "last changed. The ratio is taken round by round."
        )
    elif len(run.lanes) > 1:
        yield "All lanes trained at once and shared the cores: their figures are contended."
    for found in run.found.lanes:
        lane = found.lane
        lasted = units.seconds(lane.steady.span_ns / 1e9)
        yield f"{names[lane.spec.name]}: measured for {lasted}; {units.discarded(lane.discarded_shares)}"
    if verdict.interval is not None:
        kind = KIND_TEXTS[verdict.interval.kind]
        yield (
            f"95 % confidence interval of the ratio: {verdict.interval.low:.4g} to "
            f"{verdict.interval.high:.4g}, {kind}, from {verdict.interval.pairs} pairs. Differences below "
            f"{100 * race.margin:g} % count as none."
        )
    if race.between is not None:
        races = race.between.races
        yield f"What {races} earlier races told of how much equal processes differ is part of the interval."
    most = max((lane.process for lane in run.lanes), default=0)
    if race.fresh and most > 1:
        yield f"Fresh processes: {most} of each lane raced, one after the other."
    if text := contention([lane.slices for lane in run.lanes]).text():
        yield text[0].upper() + text[1:] + "."
    for line in view_lines(snapshot):
        yield line[0].upper() + line[1:] + "."
    for lane in run.lanes:
        for what, reason in lane.not_measured.items():
            yield f"{names[lane.spec.name]}: {what} not measured: {reason}"


def settings_table(writer: Writer, run: Run) -> Html:
    """Return every knob with its value in effect at the end; those in which lanes differ are marked."""
    knobs = list(dict.fromkeys([*run.end.differing, *(name for lane in run.lanes for name in lane.in_effect)]))
    rows = [["knob", *(run.names[lane.spec.name] for lane in run.lanes), "default"]]
    for knob in knobs:
        cells = [show(lane.in_effect[knob]) if knob in lane.in_effect else DASH for lane in run.lanes]
        default = show(run.header.knobs[knob]) if knob in run.header.knobs else DASH
        rows.append([knob, *cells, default])
    differing = [place for place, knob in enumerate(knobs, 1) if knob in run.end.differing]
    left = range(len(run.lanes) + 2)
    return writer.table(rows, "In effect at the end; lanes differ in what is marked", left=left, marked=differing)


def again(writer: Writer, command: str) -> Html:
    """Return the command that repeats the race."""
    return Html(writer.tag("p", "To do it again:") + writer.tag("pre", command)) if command else NOTHING


def machine_table(writer: Writer, run: Run) -> Html:
    """Return the machine, the versions, and the variables that steer TensorFlow."""
    header, machine = run.header, run.end.machine
    rows = [
        ["", ""],
        ["processor", f"{machine.cpu_name or 'unknown'}, {machine.cores} cores"],
        ["usable cores", units.cores(machine.usable_cores)],
        ["memory", units.memory(machine.memory_bytes)],
        ["GPUs", ", ".join(machine.gpus) or f"none{': ' if machine.no_gpu else ''}{machine.no_gpu}"],
        ["system", machine.system],
        ["name", machine.hostname],
        ["tfmon", f"{header.tfmon}, Python {header.python}"],
    ]
    for lane in run.lanes:
        versions = [f"{name} {getattr(lane, name.lower())}" for name in ("TensorFlow", "Keras", "NumPy", "Python")]
        known_ones = [text for text in versions if not text.endswith(" ")]
        on = run.end.device_name(lane)
        rows.append([run.names[lane.spec.name], ", ".join([*([f"on {on}"] if on else []), *known_ones]) or DASH])
    rows += [[name, value] for name, value in header.environment.items()]
    rows.append(["scenario file", f"digest {header.source}" if header.source else DASH])
    return writer.table(rows, left=(0, 1))


def doctor(writer: Writer, report: Report | None) -> Html:
    """Return the doctor's findings on the machine of the race; None where that is another one."""
    if report is None:
        return writer.tag(
            "p", "The doctor did not examine it: this report was written on another machine.", class_="quiet"
        )
    told = [one for one in report.results if one.finding.status in (WARNING, BROKEN)]
    rows = [["doctor", "found", "expected", "fix"]]
    rows += [[one.title, one.finding.found, one.finding.expected, one.finding.fix] for one in told]
    heading = writer.tag("h3", "What the doctor finds as this report is written")
    return Html(
        heading
        + (writer.table(rows, left=range(4)) if told else writer.tag("p", "Nothing that slows a race down."))
    )
