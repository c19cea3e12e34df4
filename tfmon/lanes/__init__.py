"""The lanes of a race: one child process each, scheduled, read, watched and ended."""
