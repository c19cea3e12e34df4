"""The children: started, read, commanded, stopped and reaped. Nothing here knows TensorFlow or the screen."""
