"""Reads the facts."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tfmon.doctor.facts import VARIABLES, Facts
from tfmon.model.readings import HostSample
from tfmon.probes.cuda import find_xla_files, open_libraries, read_driver_files
from tfmon.probes.find_gpus import look, read_visibility
from tfmon.probes.host_probe import HostProbe
from tfmon.probes.interpreter import (
    describe_interpreter,
    distributions,
    find_shadows,
    find_wheel,
    import_tensorflow,
    shadows_on,
)
from tfmon.probes.obstacles import LIBRARY
from tfmon.probes.surroundings import read_host, read_platform
from tfmon.probes.view_support import find_view
from tfmon.system.view_files import recordings_folder

HERE = Path("/")
WATCH_S = 0.3
"""Least time of measuring the load of other programs."""


def gather_facts(
    python: str | Path = sys.executable,
    *,
    imports: bool = True,
    folder: Path | None = None,
    samples: tuple[HostSample, ...] | None = None,
    own_pids: tuple[int, ...] = (),
    environ: Mapping[str, str] = os.environ,
    root: Path = HERE,
    library: str = LIBRARY,
) -> Facts:
    """Return the facts about an interpreter and this machine.

    A race passes its processes and the samples of the machine. Without `imports`, the call takes under a second.
    Thread: any; blocks.
    """
    begun = time.monotonic()
    watch = HostProbe(dict, own_cpu_s=lambda: sum(os.times()[:4]))
    watch.sample_machine()
    platform = read_platform(root, environ)
    interpreter = describe_interpreter(python, environ=environ)
    shadows = shadows_on(interpreter.path)
    blocked = {str(Path(shadow).parent) for shadow in shadows}
    path = [folder for folder in interpreter.path if folder not in blocked]
    wheel = find_wheel(path)
    visibility = read_visibility(
        environ=environ,
        root=root,
        library=library,
        system=platform.system,
        machine=interpreter.machine or platform.machine,
    )
    driver = read_driver_files(root)
    gpu_samples = tuple(look(visibility.physical_gpus))
    folder = folder or Path.cwd()
    separate = wheel is None or folder.resolve() != Path(wheel.home).resolve()
    libraries = xla = imported = view = None
    has_gpu = platform.system == "Linux" and (visibility.has_nvidia or driver.nodes)
    if has_gpu and wheel is not None and wheel.has_cuda is not False:
        libraries = open_libraries(interpreter.executable, wheel, environ=environ)
        xla = find_xla_files(wheel.home, folder, environ, root)
    load = samples
    if load is None:
        time.sleep(max(0.0, begun + WATCH_S - time.monotonic()))
        load = (watch.sample_machine(),)
    if imports and not interpreter.error and wheel is not None and not shadows:
        imported = import_tensorflow(interpreter.executable, environ=environ)
    if samples is None and root == HERE:
        view = find_view(str(folder), recordings_folder())
    return Facts(
        python=interpreter,
        visibility=visibility,
        platform=platform,
        environ={name: environ[name] for name in VARIABLES if name in environ},
        distributions=tuple(distributions(path)),
        wheel=wheel,
        shadows=shadows,
        local_shadows=find_shadows(folder, alone=wheel is None) if separate else (),
        libraries=libraries,
        xla=xla,
        driver=driver,
        samples=gpu_samples,
        host=read_host(root, load),
        imported=imported,
        view=view,
        own_pids=own_pids,
        seconds=time.monotonic() - begun,
    )
