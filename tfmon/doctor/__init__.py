"""Why TensorFlow uses no GPU, and whether a race would be fair."""
