"""NVIDIA GPUs, read through their driver's management library (NVML)."""
