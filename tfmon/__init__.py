"""tfmon races TensorFlow training on the CPU and the GPU, live in a terminal, and says which is faster and why.

This module imports nothing: training children load the package in any interpreter that has TensorFlow.
"""

__version__ = "0.1.0"
