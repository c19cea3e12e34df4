"""Access to the operating system that several packages share."""
