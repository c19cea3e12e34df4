"""The lanes of a race: one process each."""
