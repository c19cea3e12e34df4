"""Why a host cannot be used, and the remedy."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from tfmon.errors import EXIT_DEVICE_ABSENT, TfmonError
from tfmon.lanes.remote.remote_host import Host, last_report
from tfmon.model.codec import clean
from tfmon.model.lane_texts import signal_name

LONGEST = 200
_KEYS = "tfmon asks for no password: set up a key by `ssh-copy-id {host}` or `ssh-add`; `ssh {host} true` tries it"
_SSH = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "the host key of {host} changed",
        "if that is right, `{forget}` forgets the old one; then run `ssh {host}` once",
    ),
    (
        "Host key verification failed",
        "the host key of {host} is not known here",
        "run `ssh {host}` once and compare the fingerprint",
    ),
    ("Too many authentication failures|Permission denied", "{host}: permission denied: {said}", _KEYS),
    (
        "Could not resolve hostname",
        "there is no host {host}: {said}",
        "name one as ssh knows it, or one of [hosts] in the settings file",
    ),
)


class HostError(TfmonError):
    """A host cannot be used."""

    exit_code = EXIT_DEVICE_ABSENT

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, options=("ray", "ray_python"))


def no_launcher(host: Host, program: str, error: OSError) -> HostError:
    """Return the error of a launcher that did not start."""
    why = error.strerror or str(error)
    if host.ray is not None:
        return HostError(f"{program} did not start: {why}", "--ray-python names a Python that has Ray")
    if isinstance(error, FileNotFoundError) and _by_ssh(host):
        return HostError("there is no ssh on this machine", "install the OpenSSH client")
    return HostError(f"{program}, which reaches {host.name}, did not start: {why}", _look_at_run(host))


def ended_early(host: Host, code: int | None, error_lines: list[str], printed: str) -> HostError:
    """Return the error of a launcher that ended before Python."""
    text = "\n".join(error_lines)
    # ssh knows the name, port and file of the key.
    forget = re.search(r"ssh-keygen -f .*", text)
    texts = {
        "host": host.name,
        "said": last_line(error_lines),
        "forget": _cut(forget[0]) if forget else f"ssh-keygen -R {host.name.rpartition('@')[2]}",
    }
    if host.ray is not None and (report := bridge_error(error_lines)):
        return report
    if _by_ssh(host):
        for sign, message, hint in _SSH:
            if re.search(sign, text):
                return HostError(message.format(**texts), hint.format(**texts))
        if code == 255:
            why = texts["said"] or "ssh ended without a message"
            return HostError(f"{host.name} cannot be reached: {why}", f"`ssh {host.name} true` tries it")
    if code in (126, 127):
        why = texts["said"] or f"exit code {code}"
        return HostError(f"there is no shell on {host.name}: {why}", "tfmon needs `sh` and Python there")
    # A banner of sshd looks like ssh's own message, so the shell's output comes first.
    why = " · ".join(filter(None, (last_line(printed.splitlines()), texts["said"]))) or "nothing was said"
    hint = f"`ssh {host.name} sh` must start a shell" if _by_ssh(host) else _look_at_run(host)
    return HostError(f"{host.name} {how_ended(code)} before Python began: {why}", hint)


def how_ended(code: int | None) -> str:
    """Describe how a program ended."""
    if code is not None and code < 0:
        return f"was killed by {signal_name(-code)}"
    return f"ended with exit code {code}"


def too_slow(host: Host, patience_s: float, error_lines: list[str], printed: str) -> HostError:
    """Return the error of a host without an answer."""
    last = " · ".join(filter(None, (last_line(printed.splitlines()), last_line(error_lines))))
    why = f", but this: {last}" if last else ""
    return HostError(
        f"{host.name} did not answer within {patience_s:.0f} s{why}",
        f"`ssh {host.name} true` tries it; does it ask something?" if _by_ssh(host) else _look_at_run(host),
    )


def other_python(host: Host) -> str:
    """Return the hint how to configure another Python."""
    return f'python = "~/…/bin/python" under {settings_table(host)} sets another'


def no_agent(host: Host, why: str, folder: str = "") -> HostError:
    """Return the error of code that could not be unpacked into `folder` or run."""
    message = f"tfmon's agent did not start on {host.name}: {_cut(why)}"
    if not folder:
        return HostError(message)
    run = (
        f'run = ["ssh", "{host.name}", "env", "TMPDIR=FOLDER"]'
        if _by_ssh(host)
        else "run, with env TMPDIR=FOLDER,"
    )
    hint = f"free some space there, or {run} under {settings_table(host)} names another folder"
    return HostError(f"{message}; it writes into {_cut(folder)}", hint)


def why_ended(host: Host, code: int | None, error_lines: list[str]) -> str:
    """Return why an established connection has ended."""
    last = last_line(error_lines)
    program = host.run[0] if host.run else "ssh" if host.ray is None else "the bridge to Ray"
    if last:
        return f"{program} said: {last}"
    if code == 255 and _by_ssh(host):
        return "tfmon's agent there was killed, or ssh ended without a message (exit code 255)"
    return f"{program} {how_ended(code)}" if code else "the connection was closed there"


def bridge_error(error_lines: list[str]) -> HostError | None:
    """Return why the bridge ends, if it reported it."""
    report = last_report(error_lines)
    if not report.get("error"):
        return None
    return HostError(clean(str(report["error"]), 400), clean(str(report.get("hint", "")), 400))


def last_line(lines: Sequence[str]) -> str:
    """Return the last line that is not empty, shortened."""
    whole = [line for line in (_cut(line) for line in lines) if line]
    return whole[-1] if whole else ""


def _cut(text: str) -> str:
    return " ".join(clean(text, LONGEST).split())


def settings_table(host: Host) -> str:
    """Return the name of a host's table, and where it is."""
    name = host.name
    plain = name.replace("-", "").replace("_", "").isalnum()
    return f"[hosts.{name if plain else json.dumps(name)}] in {host.settings}"


def _by_ssh(host: Host) -> bool:
    return not host.run and host.ray is None


def _look_at_run(host: Host) -> str:
    if host.ray is not None:
        return "`tfmon hosts --ray` says which nodes there are"
    return f"see run under {settings_table(host)}; it must pass stdin and stdout"
