"""The parts of the time of a step in a TensorFlow profile; read in the process that has TensorFlow."""
