"""Access to the operating system."""
