"""NVIDIA GPUs, through their management library (NVML)."""
