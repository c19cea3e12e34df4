"""Readings of the machine."""
