"""Pure functions from a snapshot to rows of text."""
