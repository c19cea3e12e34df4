"""Hides machines, users, commands and secrets in shared reports."""

from __future__ import annotations

import contextlib
import functools
import getpass
import itertools
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tfmon.model.gpu_samples import ProcessName, names_in
from tfmon.model.session import Snapshot
from tfmon.reports import Report

HIDDEN = "•••"
_SECRET = r"(?:api[-_]?key|access[-_]?key|token|secret|pass(?:word|wd|phrase)|credentials?|auth)"  # noqa: S105 - a pattern
"""Part of a secret's name."""
_OPTION = r"(?:key|pass|pwd|pw|pin|tok|cookie|sig|signature|dsn|cred|bearer)"
"""Last word of a secret option."""
_LIKE_P = "params?|patch|path|patience|plot|pool|port|precision|prefetch|prefix|pretrained|print|profile|progress"
"""Options that begin with -p and take no password."""
_VALUE = r"""(?:"[^"]*"|'[^']*'|[^\s"',;&]+)"""
_AFTER = rf"\1{HIDDEN}"
_TABLE = (
    # --api-key=…, --token …, PASSWORD=…, "secret": "…"; a small number of tokens is not secret
    (
        rf"""(?i)(?!-{{0,2}}[\w.-]*tokens["']?[=:\s]+\d{{1,6}}(?![\w.]))"""
        rf"""(--?[\w.-]*{_SECRET}[\w.-]*(?:=|\s+)|\b[\w.-]*{_SECRET}[\w.-]*["']?\s*[=:]\s*)"""
        rf"""(?:bearer\s+)?{_VALUE}""",
        _AFTER,
    ),
    # --key=…, --wandb-key …, WANDB_KEY=…, COMET_KEY: …, -p …, -pS3cret; a number after -p is a port
    (rf"(?i)((?<!\S)--?(?:[\w.-]*[-_.])?{_OPTION}(?:=|\s+)){_VALUE}", _AFTER),
    (rf"(?i)((?:[?&]|\b\w[\w-]*[_-]){_OPTION}(?:=|:\s)){_VALUE}", _AFTER),
    (rf"((?<!\S)(?!-(?:{_LIKE_P})(?:[=\s]|$))-p(?:=|\s+|(?!=)))(?!\d+(?!\S)){_VALUE}", _AFTER),
    (r"(?i)(\bbearer\s+)[\w.~+/=-]{8,}", _AFTER),
    # user:password@ in an address; -u user:password
    (r"(\w://)[^\s/?#\"']+@", rf"\1{HIDDEN}@"),
    (rf"((?<!\S)(?:-u|--user(?:name)?)(?:=|\s+)[^\s:]+:){_VALUE}", _AFTER),
    # tokens of services, by prefix; AWS keys; JSON web tokens
    (r"\b(?:hf_|wk_|gh[opsur]_|github_pat_|glpat-|[spr]k[-_]|xox[abp]-|pypi-|AIza)[\w-]{10,}", HIDDEN),
    (r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", HIDDEN),
    (r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*", HIDDEN),
    (r"(?:/home|/Users)/[^/\s\"':;,]+", "~"),
    (r"(?<![\w/])/root(?=/|\b)", "~"),
)
_LONG = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]{20,}(?![A-Za-z0-9])")
LEAST_DIGITS = 3
LEAST_CHANGES = 0.3
"""Share of changes of kind in a long word. Random words have 0.4 to 0.6."""
_NOT_HIDDEN = {"cpu", "gpu", "localhost", "root", ""}


def keep(text: str) -> str:
    """Return the text unchanged."""
    return text


def hides(report: Report, host: str = "", *, everything: bool = False) -> Callable[[str], str]:
    """Return a function that hides secrets of a report."""
    return keep if everything else hider({host, *report.hosts}, report.processes)


def hider(hosts: Iterable[str], processes: Iterable[ProcessName] = ()) -> Callable[[str], str]:
    """Return a function that hides names and secrets."""
    known = set(processes)
    home, user = str(Path.home()), ""
    with contextlib.suppress(OSError, KeyError):
        user = getpass.getuser()
    table = [(rf"{re.escape(home)}(?=/|\b)", "~")] if home not in ("/", "/root") else []
    # Before other patterns, which would change a part of a command.
    commands = _longest({process.command for process in known if process.command[1:]})
    table += [(re.escape(command), HIDDEN) for command in commands]
    table += [(_word(name), HIDDEN) for name in _longest({process.user for process in known})]
    table += _TABLE
    if user not in _NOT_HIDDEN:
        table.append((rf"(?<=/){re.escape(user)}(?=/|\s|$)|\b{re.escape(user)}(?=@)", HIDDEN))
    table += [(_word(name), HIDDEN) for name in _longest({*hosts, *(host.partition(".")[0] for host in hosts)})]
    patterns = [(re.compile(pattern), replacement) for pattern, replacement in table]

    @functools.lru_cache(maxsize=100_000)
    def hide(text: str) -> str:
        for pattern, replacement in patterns:
            text = pattern.sub(replacement, text)
        return _LONG.sub(_without_key, text)

    return hide


def _longest(names: set[str]) -> list[str]:
    return sorted(names - _NOT_HIDDEN, key=len, reverse=True)


def _word(name: str) -> str:
    return rf"(?<![\w-]){re.escape(name)}(?![\w-])"


def _without_key(word: re.Match[str]) -> str:
    kinds = [(letter.isdigit(), letter.isupper()) for letter in word[0]]
    changes = sum(first != second for first, second in itertools.pairwise(kinds))
    is_random = sum(digit for digit, _ in kinds) >= LEAST_DIGITS and changes >= LEAST_CHANGES * len(kinds)
    return HIDDEN if is_random else word[0]


def other_processes(snapshot: Snapshot) -> set[ProcessName]:
    """Return other users' processes on GPUs."""
    users = {name for state in snapshot.hosts.values() for name in state.gpu_users}
    return users | names_in(sample for state in snapshot.hosts.values() for sample in state.gpus)


def in_all(value: Any, hide: Callable[[str], str]) -> Any:  # noqa: ANN401 - what JSON can hold
    """Return a JSON value with every text hidden."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, dict):
        return {hide(key): in_all(item, hide) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [in_all(item, hide) for item in value]
    return value
