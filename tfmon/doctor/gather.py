"""Gathers the facts that the checks judge: of the interpreter, the machine around it, and what else runs there."""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tfmon.doctor.children import import_tensorflow, open_libraries
from tfmon.doctor.facts import (
    VARIABLES,
    DriverFiles,
    Facts,
    HostFacts,
    Library,
    OthersLoad,
    Platform,
    Running,
)
from tfmon.model.limits import limited_memory, read_text
from tfmon.model.readings import HostSample, Missing, known
from tfmon.model.views import default_base
from tfmon.probes.gpus import look, read_visibility
from tfmon.probes.host import HostProbe
from tfmon.probes.interpreter import (
    Build,
    describe_interpreter,
    distributions,
    find_home,
    find_shadows,
    find_wheel,
    read_build,
    shadows_on,
)
from tfmon.probes.machine import in_wsl, read_machine, read_memory
from tfmon.probes.obstacles import LIBRARY
from tfmon.probes.views import find_view


@dataclass(frozen=True, slots=True)
class Roots:
    """Where the facts are read: on this machine, unless a test says otherwise."""

    root: Path = Path("/")
    folder: Path | None = None
    environ: Mapping[str, str] | None = None
    library: str = LIBRARY


HERE = Roots()


def gather(
    python: str | Path = sys.executable,
    *,
    imports: bool = True,
    roots: Roots = HERE,
    running: Running | None = None,
) -> Facts:
    """Return the facts about an interpreter and this machine.

    Takes well under a second without `imports`, unless the driver is slow.

    Args:
        running: The race in progress; its probes know the load of programs other than its lanes.

    Thread: any; blocks.
    """
    environ = dict(os.environ if roots.environ is None else roots.environ)
    watch = LoadWatch()
    platform = read_platform(roots.root, environ)
    interpreter = describe_interpreter(python, environ=environ)
    hidden = shadows_on(interpreter.path)
    blocked = {str(Path(shadow).parent) for shadow in hidden}
    path = [folder for folder in interpreter.path if folder not in blocked]
    installed = tuple(distributions(path))
    wheel, home = find_wheel(path), find_home(path)
    build = Build()
    if wheel is not None and home is not None:
        build = read_build(home, installed, wheel.distribution)
    visibility = read_visibility(
        environ=environ,
        root=roots.root,
        library=roots.library,
        system=platform.system,
        machine=interpreter.machine or platform.machine,
    )
    folder = roots.folder or Path.cwd()
    separate = home is None or folder.resolve() != home.resolve()
    facts = Facts(
        python=interpreter,
        visibility=visibility,
        platform=platform,
        environ={name: environ[name] for name in VARIABLES if name in environ},
        distributions=installed,
        wheel=wheel,
        home="" if home is None else str(home),
        build=build,
        shadows=hidden,
        local_shadows=find_shadows(folder, alone=home is None) if separate else (),
        driver=read_driver_files(roots.root),
        samples=tuple(look(visibility.physical_gpus)),
    )
    libraries = _open(facts, environ)
    others = watch.finish() if running is None else running.others
    imported = None
    if imports and not facts.python.error and facts.wheel is not None and not facts.shadows:
        imported = import_tensorflow(facts.python.executable, environ=environ)
    host = read_host(roots.root, others)
    own = () if running is None else running.pids
    view = None
    if running is None and roots.root == HERE.root:
        view = find_view(str(folder), default_base())
    return replace(facts, libraries=libraries, host=host, imported=imported, view=view, own_pids=own)


def _open(facts: Facts, environ: Mapping[str, str]) -> tuple[Library, ...] | None:
    if facts.platform.system != "Linux" or not facts.has_nvidia:
        return None
    if facts.wheel is None or facts.wheel.has_cuda is False:
        return None
    return open_libraries(facts.python.executable, facts.home, facts.build, environ=environ)


WATCH_S = 0.3
"""Shortest time for measuring the load of others."""
_GROUPS = {"kubepods": "kubernetes", "libpod": "podman", "docker": "docker", "lxc": "container"}


def read_platform(root: Path, environ: Mapping[str, str]) -> Platform:
    """Return the kind of system. Source: uname; /etc/os-release, /proc/1/cgroup and the files of containers."""
    match = re.search(r"^ID=[\"']?([\w.-]+)", read_text(root / "etc/os-release"), re.MULTILINE)
    return Platform(
        system=platform.system(),
        machine=platform.machine(),
        distribution=match[1] if match else "",
        container=_container(root, environ),
        wsl=_wsl(root),
    )


def _container(root: Path, environ: Mapping[str, str]) -> str:
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "kubernetes"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    groups = read_text(root / "proc/1/cgroup")
    for word, name in _GROUPS.items():
        if word in groups:
            return name
    return "container" if "container" in environ else ""


def _wsl(root: Path) -> int:
    if not in_wsl(root):
        return 0
    version = read_text(root / "proc/version")
    return 2 if "microsoft-standard" in version or "WSL2" in version or (root / "dev/dxg").exists() else 1


class LoadWatch:
    """Measures the load of other programs if no race runs, from its creation to `finish`, as a race does."""

    def __init__(self) -> None:
        self._probe = HostProbe(dict, own_cpu_s=_own_cpu_s)
        self._before = self._sample()

    def finish(self) -> OthersLoad:
        """Return the CPU time that others used, over `WATCH_S` at least."""
        time.sleep(max(0.0, self._before.at_ns / 1e9 + WATCH_S - time.monotonic()))
        after = self._sample()
        others, stolen = after.others_cpu_pct, known(after.steal_pct)
        if isinstance(others, Missing):
            return OthersLoad(source=others.reason)
        stolen_share = None if stolen is None else stolen / 100 / (os.cpu_count() or 1)
        return OthersLoad(others / 100, stolen_share, f"over {(after.at_ns - self._before.at_ns) / 1e9:.1f} s")

    def _sample(self) -> HostSample:
        return next(one for one in self._probe.sample() if isinstance(one, HostSample))


def _own_cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def read_host(root: Path, others: OthersLoad) -> HostFacts:
    """Return the facts of processors and memory, and their use by others.

    Source: as `read_machine`; /proc/meminfo, /sys/devices/system/cpu, /sys/class/power_supply.
    """
    machine = read_machine(root)
    total, available = _memory(root)
    files = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    supplies = list((root / "sys/class/power_supply").glob("*"))
    mains = [read_text(one / "online").strip() for one in supplies if read_text(one / "type").strip() == "Mains"]
    return HostFacts(
        cores=machine.cores,
        usable_cores=machine.usable_cores,
        quota_cores=machine.quota_cores,
        governors=tuple(sorted({read_text(file).strip() for file in files} - {""})),
        total_bytes=total,
        available_bytes=available,
        others=others,
        on_battery=all(online == "0" for online in mains) if mains else None,
    )


def _memory(root: Path) -> tuple[int, int]:
    try:
        total, available = read_memory(root / "proc" if (root / "proc/meminfo").exists() else None)
    except OSError:
        return 0, 0
    return limited_memory(total, available, root)


def read_driver_files(root: Path) -> DriverFiles:
    """Return the NVIDIA driver's files. Source: /proc/driver/nvidia/version, /dev."""
    match = re.search(
        r"Kernel Module.*?\b(\d{3,}\.\d+(?:\.\d+)*)\b", read_text(root / "proc/driver/nvidia/version")
    )
    entries = (entry.name for entry in (root / "dev").glob("*"))
    names = sorted(name for name in entries if re.fullmatch(r"nvidia(\d+|ctl|-uvm)|dxg", name))
    denied = [name for name in names if not os.access(root / "dev" / name, os.R_OK | os.W_OK)]
    nodes, refused = (tuple(f"/dev/{name}" for name in some) for some in (names, denied))
    return DriverFiles(match[1] if match else "", nodes, refused)
