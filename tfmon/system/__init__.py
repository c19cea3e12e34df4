"""Access to the operating system that several packages share: threads, descriptors, the clock of a lane, files."""
