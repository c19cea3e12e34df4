#!/usr/bin/env python3
"""A stand-in for ssh: drops the options, and runs the command by `sh -c` on this machine. For tests only.

FAKE_SSH in the environment says how it behaves, as a JSON object:
`exit`, `says`: ends at once with this code and these words on stderr.
`notice`: printed on stderr first. `banner`: printed by the login shell first.
`home`, `path`, `environment`: HOME, PATH and more variables there.
`halves`: bytes come three at a time. `log`: a file that gets the arguments.
`cut`: a file with which the link ends. `link`: a file that describes the link while it exists, as a JSON object:
`delay_s` in each direction, `bytes_per_s`, and `hole`: what is sent is lost, and neither side sees an end.
`hosts`: the same for single hosts, by name.
"""

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path


def main() -> None:
    behaviour = json.loads(os.environ.get("FAKE_SSH", "{}"))
    if log := behaviour.get("log"):
        with Path(log).open("a") as file:
            file.write(json.dumps(sys.argv[1:]) + "\n")
    assert "--" in sys.argv, "a host could be read as an option"
    host, *command = sys.argv[sys.argv.index("--") + 1 :]
    behaviour = {**behaviour, **behaviour.get("hosts", {}).get(host, {})}
    if "exit" in behaviour:
        print(behaviour.get("says", ""), file=sys.stderr, flush=True)
        sys.exit(behaviour["exit"])
    environment = {
        "HOME": behaviour.get("home", os.environ.get("HOME", "/")),
        "PATH": behaviour.get("path", os.environ["PATH"]),
        "SHELL": "/bin/sh",
        **behaviour.get("environment", {}),
    }
    login = " ".join(command)
    if "notice" in behaviour:
        print(behaviour["notice"], file=sys.stderr, flush=True)
    if "banner" in behaviour:
        os.write(1, behaviour["banner"].encode())
    if not {"halves", "cut", "link"} & set(behaviour):
        os.execve("/bin/sh", ["sh", "-c", login], environment)
    pipe = subprocess.PIPE
    shell_words = ["/bin/sh", "-c", login]
    with subprocess.Popen(shell_words, env=environment, stdin=pipe, stdout=pipe, start_new_session=True) as shell:
        assert shell.stdin and shell.stdout
        threading.Thread(target=carry, args=(0, shell.stdin.fileno(), behaviour), daemon=True).start()
        carry(shell.stdout.fileno(), 1, behaviour)
    sys.exit(shell.returncode)


def carry(source: int, target: int, behaviour: dict) -> None:
    halves, cut, held = behaviour.get("halves"), behaviour.get("cut"), False
    on_their_way: deque[tuple[float, bytes]] = deque()
    free_s = 0.0
    while True:
        if cut and Path(cut).exists():
            os._exit(255)
        link = describe(behaviour)
        if link.get("hole") and not held:
            held = True  # longer than this process
            subprocess.Popen(["sleep", "20"], pass_fds=(source, target), start_new_session=True)
        crowded = free_s > time.monotonic() + 1.0
        if not crowded and select.select([source], [], [], 0.005 if on_their_way else 0.02)[0]:
            chunk = os.read(source, 4096)
            free_s = max(free_s, time.monotonic()) + len(chunk) / link.get("bytes_per_s", float("inf"))
            if not link.get("hole"):
                on_their_way.append((free_s + link.get("delay_s", 0), chunk))
        elif crowded:
            time.sleep(0.005)
        while on_their_way and on_their_way[0][0] <= time.monotonic():
            _, chunk = on_their_way.popleft()
            if not chunk:
                os.close(target)
                return
            try:
                while chunk:
                    chunk = chunk[os.write(target, chunk[: 3 if halves else len(chunk)]) :]
            except OSError:
                return


def describe(behaviour: dict) -> dict:
    try:
        return json.loads(Path(behaviour["link"]).read_text())
    except (KeyError, FileNotFoundError):
        return {}


if __name__ == "__main__":
    main()
