"""Why TensorFlow does not use a GPU, and whether a race on this machine would be fair."""
