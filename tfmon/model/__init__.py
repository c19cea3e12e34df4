"""The state of a race. Standard library only."""
