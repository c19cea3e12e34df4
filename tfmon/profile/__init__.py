"""The parts of a step in a TensorFlow profile."""
