"""Recordings of races."""
