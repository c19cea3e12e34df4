"""What a TensorFlow profile says about where the time of a step went; read in the process that has TensorFlow."""
