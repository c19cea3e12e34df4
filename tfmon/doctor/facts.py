"""The facts for the checks: plain values, also sent from other machines."""

from __future__ import annotations

from dataclasses import dataclass, field

from tfmon.model.folder_views import View
from tfmon.model.gpu_samples import GpuSample
from tfmon.probes.cuda import DriverFiles, Library, XlaFiles
from tfmon.probes.find_gpus import conclude
from tfmon.probes.interpreter import Distribution, Import, Interpreter, Wheel
from tfmon.probes.obstacles import GpuVisibility, Obstacle
from tfmon.probes.surroundings import HostFacts, Platform

VARIABLES = (
    "CONDA_PREFIX", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES", "KERAS_BACKEND",
    "LD_LIBRARY_PATH", "NVIDIA_TF32_OVERRIDE", "NVIDIA_VISIBLE_DEVICES", "OMP_NUM_THREADS",
    "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "PYTHONPATH", "TF_CUDNN_DETERMINISTIC", "TF_DETERMINISTIC_OPS",
    "TF_ENABLE_ONEDNN_OPTS", "TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_XLA_FLAGS", "VIRTUAL_ENV",
    "XLA_FLAGS",
)  # fmt: skip
"""The only variables that are read."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts about an interpreter and a machine."""

    python: Interpreter
    visibility: GpuVisibility
    platform: Platform = field(default_factory=Platform)
    environ: dict[str, str] = field(default_factory=dict)
    distributions: tuple[Distribution, ...] = ()
    wheel: Wheel | None = None
    """Without the files that shadow it."""
    shadows: tuple[str, ...] = ()
    """Imported instead of TensorFlow."""
    local_shadows: tuple[str, ...] = ()
    """In the working directory: they affect scripts there."""
    libraries: tuple[Library, ...] | None = None
    xla: XlaFiles | None = None
    driver: DriverFiles = field(default_factory=DriverFiles)
    samples: tuple[GpuSample, ...] = ()
    host: HostFacts = field(default_factory=HostFacts)
    imported: Import | None = None
    view: View | None = None
    """View of the working folder."""
    own_pids: tuple[int, ...] = ()
    """Processes of the running race."""
    seconds: float = 0.0

    @property
    def build(self) -> Wheel:
        """The installed TensorFlow, or one without facts."""
        return self.wheel or Wheel()

    @property
    def obstacle(self) -> Obstacle | None:
        """Why tfmon plans no GPU lane."""
        search = conclude(self.visibility, lambda: self.wheel)
        return None if search.usable else Obstacle(search.reason, search.hint)

    @property
    def has_nvidia(self) -> bool:
        """Whether an NVIDIA GPU may exist."""
        return self.visibility.has_nvidia or bool(self.driver.nodes)

    def version_of(self, name: str) -> str:
        """Return the version of a package, or ""."""
        return next((distribution.version for distribution in self.distributions if distribution.name == name), "")
