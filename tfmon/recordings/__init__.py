"""Recordings of races, replayed, compared and exported. Never loads TensorFlow."""
