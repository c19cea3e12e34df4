"""What stays out of a report that is handed on: host, user, home folders, and what looks like a secret. Pure."""

from __future__ import annotations

import functools
import getpass
import itertools
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tfmon.model.gpu_others import names_in
from tfmon.model.readings import ProcessName
from tfmon.model.session import Snapshot
from tfmon.reports.sections import Report

HIDDEN = "•••"
_SECRET = r"(?:api[-_]?key|access[-_]?key|token|secret|pass(?:word|wd|phrase)|credentials?|auth)"
"""A name that contains this names a secret, also outside of a command line."""
_OPTION = r"(?:key|pass|pwd|pw|pin|tok|cookie|sig|signature|dsn|cred|bearer)"
"""So does an option or a variable whose last word is this."""
_VALUE = r"""(?:"[^"]*"|'[^']*'|[^\s"',;&]+)"""
_PATTERNS = (
    # --api-key=…, --token …, PASSWORD=…, "secret": "…"; a small number of tokens is none
    (
        re.compile(
            rf"""(?i)(?!-{{0,2}}[\w.-]*tokens["']?[=:\s]+\d{{1,6}}(?![\w.]))"""
            rf"""(--?[\w.-]*{_SECRET}[\w.-]*(?:=|\s+)|\b[\w.-]*{_SECRET}[\w.-]*["']?\s*[=:]\s*)"""
            rf"""(?:bearer\s+)?{_VALUE}"""
        ),
        rf"\1{HIDDEN}",
    ),
    # --key=…, --wandb-key …, WANDB_KEY=…, COMET_KEY: …, -p …, -pS3cret; a number after -p is a port
    (re.compile(rf"(?i)((?<!\S)--?(?:[\w.-]*[-_.])?{_OPTION}(?:=|\s+)){_VALUE}"), rf"\1{HIDDEN}"),
    (re.compile(rf"(?i)((?:[?&]|\b\w[\w-]*[_-]){_OPTION}(?:=|:\s)){_VALUE}"), rf"\1{HIDDEN}"),
    (re.compile(rf"((?<!\S)-p(?:=|\s+|(?!=|[a-z_-]+(?:[=\s]|$))))(?!\d+(?!\S)){_VALUE}"), rf"\1{HIDDEN}"),
    (re.compile(r"(?i)(\bbearer\s+)[\w.~+/=-]{8,}"), rf"\1{HIDDEN}"),
    # user:password@ in an address; -u user:password
    (re.compile(r"(\w://)[^\s/?#\"']+@"), rf"\1{HIDDEN}@"),
    (re.compile(rf"((?<!\S)(?:-u|--user(?:name)?)(?:=|\s+)[^\s:]+:){_VALUE}"), rf"\1{HIDDEN}"),
    # Tokens of well-known services, by their prefixes; keys of AWS; JSON web tokens.
    (re.compile(r"\b(?:hf_|wk_|gh[opsur]_|github_pat_|glpat-|[spr]k[-_]|xox[abp]-|pypi-|AIza)[\w-]{10,}"), HIDDEN),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), HIDDEN),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), HIDDEN),
    # Home folders of any user.
    (re.compile(r"(?:/home|/Users)/[^/\s\"':;,]+"), "~"),
    (re.compile(r"(?<![\w/])/root(?=/|\b)"), "~"),
)
_LONG = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]{20,}(?![A-Za-z0-9])")
LEAST_DIGITS = 3
LEAST_CHANGES = 0.3
"""Of a random text of letters and digits, how many change from one kind to another: 0.4 to 0.6 is usual."""
_WORDS = {"cpu", "gpu", "localhost", "root"}
"""Names that say nothing about anyone."""


def keep(text: str) -> str:
    """Return the text as it is: for a report that may hold everything."""
    return text


def hides(report: Report, host: str = "", *, everything: bool = False) -> Callable[[str], str]:
    """Return a function that hides in a text whose machines they were, and what looks like a secret."""
    return keep if everything else hider({host, *report.hosts}, report.others)


def hider(hosts: Iterable[str], processes: Iterable[ProcessName] = ()) -> Callable[[str], str]:
    """Return a function that removes hosts, users, other people's command lines, and secrets from a text."""
    # Command lines go first: what another pattern takes out of one would keep it from being found.
    patterns = [*_of_processes(processes), *_PATTERNS]
    home, user = str(Path.home()), _user()
    if home not in ("/", "/root"):
        patterns.insert(0, (re.compile(re.escape(home) + r"(?=/|\b)"), "~"))
    if user and user not in _WORDS:
        patterns.append((re.compile(rf"(?<=/){re.escape(user)}(?=/|\s|$)|\b{re.escape(user)}(?=@)"), HIDDEN))
    for host in sorted(
        {*hosts, *(host.partition(".")[0] for host in hosts)} - _WORDS - {""}, key=len, reverse=True
    ):
        patterns.append((re.compile(rf"(?<![\w-]){re.escape(host)}(?![\w-])"), HIDDEN))

    @functools.lru_cache(maxsize=100_000)  # a report says the same names and figures again and again
    def hide(text: str) -> str:
        for pattern, instead in patterns:
            text = pattern.sub(instead, text)
        return _LONG.sub(lambda found: HIDDEN if _is_random(found[0]) else found[0], text)

    return hide


def _is_random(text: str) -> bool:
    """Return whether letters and digits take turns as in a key, and not as in a name with a number."""
    kinds = [(one.isdigit(), one.isupper()) for one in text]
    changes = sum(one != other for one, other in itertools.pairwise(kinds))
    return sum(digit for digit, _ in kinds) >= LEAST_DIGITS and changes >= LEAST_CHANGES * len(text)


def other_processes(snapshot: Snapshot) -> set[ProcessName]:
    """Return the other processes on the GPUs of a race."""
    named = {name for state in snapshot.hosts.values() for name in state.strangers}
    return named | names_in(sample for state in snapshot.hosts.values() for sample in state.gpus)


def _of_processes(processes: Iterable[ProcessName]) -> list[tuple[re.Pattern[str], str]]:
    """Return patterns for command lines, the longest first, and for users, wherever they stand."""
    known = set(processes)
    commands = sorted({one.command for one in known if len(one.command) > 1}, key=len, reverse=True)
    users = sorted({one.user for one in known} - _WORDS - {""}, key=len, reverse=True)
    words = [re.escape(command) for command in commands]
    words += [rf"(?<![\w-]){re.escape(user)}(?![\w-])" for user in users]
    return [(re.compile(word), HIDDEN) for word in words]


def in_all(value: Any, hide: Callable[[str], str]) -> Any:  # noqa: ANN401 - what JSON can hold
    """Return a value of JSON with every text in it, keys included, without what is hidden."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, dict):
        return {hide(key): in_all(item, hide) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [in_all(item, hide) for item in value]
    return value


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""
