"""Recordings of races, replayed, compared and exported."""
