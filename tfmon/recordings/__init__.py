"""What was seen, kept: recordings of races, replayed, compared and exported. Never loads TensorFlow."""
