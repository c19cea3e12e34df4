"""A child that trains nothing and uses memory of the scripted driver's GPU, as long as it lives."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "lanes" / "children"))

from trainer import FakeTrainer

from support.gpu_profile import gpu_profile
from tfmon.model.lane_events import Profiled
from tfmon.model.requests import TakeProfile

BYTES = 3_000_000_000


class GpuTrainer(FakeTrainer):
    def heed(self, request) -> None:
        if isinstance(request, TakeProfile):
            self.say(Profiled, folder=request.folder, profile=gpu_profile())
        else:
            super().heed(request)


if __name__ == "__main__":
    if os.environ.get("CUDA_VISIBLE_DEVICES", "").startswith("GPU-"):
        script = Path(os.environ["FAKE_NVML_SCRIPT"])
        fresh = script.with_name(f"{script.name}.{os.getpid()}")
        fresh.write_text(script.read_text(encoding="utf-8") + f"lane 0 {os.getpid()} {BYTES}\n", encoding="utf-8")
        fresh.replace(script)
    GpuTrainer().live()
